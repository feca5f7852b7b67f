"""The coordinator's HTTP client against a small real server on loopback."""

from __future__ import annotations

import asyncio
import json
import socket

import aiohttp
import pytest
from aiohttp import web

from rljob_core.api import RLJob
from rljob_core.api.directive import Directive, StaleSyncLimits
from rljob_core.api.report import Report
from rljob_core.tokens import job_token
from rljob_operator.job_client import JobClient
from rljob_operator.links import JobLinks

DIRECTIVE = Directive(revision=3, stale_sync=StaleSyncLimits(max_version_lag=1))


class Coordinator:
    """Answers like one: long polls, checks the token, keeps directives."""

    def __init__(self):
        self.report = Report(sequence=1, step=4).to_wire()
        self.directives = []
        self.refusals = 0
        self.polls = 0
        self.torn = False

    async def get(self, request):
        self.polls += 1
        if request.headers["Authorization"] != "Bearer secret":
            return web.Response(status=401, text="wrong token")
        if isinstance(self.report, dict) and int(request.query["after"]) >= self.report["sequence"]:
            await asyncio.sleep(0.05)
        if isinstance(self.report, str):
            return web.Response(text=self.report)
        if self.torn:
            response = web.StreamResponse()
            await response.prepare(request)
            text = json.dumps(self.report).encode()
            await response.write(text[:20])
            await asyncio.sleep(0.05)
            await response.write(text[20:])
            return response
        return web.json_response(self.report)

    async def put(self, request):
        if self.refusals:
            self.refusals -= 1
            return web.Response(status=500, text="not yet")
        self.directives.append(await request.json())
        return web.json_response({})


@pytest.fixture
async def coordinator():
    coordinator = Coordinator()
    app = web.Application()
    app.add_routes([web.get("/v1/report", coordinator.get), web.put("/v1/directive", coordinator.put)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    coordinator.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    yield coordinator
    await runner.cleanup()


@pytest.fixture
def unused_port():
    """Nothing listens there while the test runs: the socket is bound, and never listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def until(condition, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
async def client(session, coordinator):
    woken = []
    client = JobClient(session, coordinator.url, "secret", lambda: woken.append(1))
    client.woken = woken
    client.start()
    yield client
    await client.close()


async def test_latest_report_is_kept_and_wakes(client, coordinator):
    await until(lambda: client.report)
    assert (client.report.step, client.error) == (4, "")
    await until(lambda: coordinator.polls > 2)
    assert client.woken == [1], "the same report again is no news"
    coordinator.report = Report(sequence=2, step=5).to_wire()
    await until(lambda: client.report.step == 5)


async def test_a_report_that_arrives_in_pieces_is_read_whole(client, coordinator):
    coordinator.torn = True
    coordinator.report = Report(sequence=2, step=5).to_wire()
    await until(lambda: client.report and client.report.step == 5)
    assert client.error == ""


async def test_a_coordinator_that_does_not_listen_yet_is_said_in_words(session, unused_port):
    woken = []
    client = JobClient(session, f"http://127.0.0.1:{unused_port}", "secret", lambda: woken.append(1))
    client.start()
    await until(lambda: woken)
    assert (client.error, client.report) == ("it is still starting, nothing listens yet", None)
    await client.close()


async def test_directive_is_put_until_it_is_taken(client, coordinator):
    coordinator.refusals = 1
    client.direct(DIRECTIVE)
    await until(lambda: coordinator.directives)
    assert coordinator.directives == [json.loads(json.dumps(DIRECTIVE.to_wire()))]
    client.direct(DIRECTIVE)
    await asyncio.sleep(0.05)
    assert len(coordinator.directives) == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "not a Report"),
        (json.dumps({"protocolMajor": 2, "sequence": 1}), "protocolMajor 2 is not supported"),
        (json.dumps({"protocolMajor": 2}), "protocolMajor 2 is not supported"),
        ("x" * 20_000, "over 16384 bytes"),
    ],
    ids=["torn", "other major", "other major, other shape", "too long"],
)
async def test_what_is_no_report_is_an_error_in_words(client, coordinator, body, words):
    await until(lambda: client.report)
    coordinator.report = body
    await until(lambda: client.error)
    assert words in client.error
    assert client.report.step == 4


async def test_wrong_token_is_said(session, coordinator):
    client = JobClient(session, coordinator.url, "other", lambda: None)
    client.start()
    await until(lambda: client.error)
    assert "HTTP 401: wrong token" in client.error
    await client.close()


async def test_nobody_listens(session):
    client = JobClient(session, "http://127.0.0.1:1", "secret", lambda: None)
    client.start()
    await until(lambda: client.error)
    assert client.report is None
    await client.close()


async def test_a_new_attempt_forgets_the_old_report(session, coordinator):
    key = b"k"
    job = RLJob.from_object(
        {
            "metadata": {"name": "demo", "uid": "u1"},
            "spec": {"model": {"path": "/m"}, "data": {}, "reward": {}, "algorithm": {}},
        }
    )
    coordinator.get_token = job_token(key, "u1")
    links = JobLinks(session, key, lambda uid: None)
    links.attend(job, 0, coordinator.url)
    await until(lambda: links.latest(job)[1])
    assert "HTTP 401" in links.latest(job)[1]
    links.attend(job, 1, coordinator.url)
    assert links.latest(job) == (None, "")
    links.attend(job, 1, None)
    links.direct(job, DIRECTIVE)
    await links.close()
    assert coordinator.directives == []
