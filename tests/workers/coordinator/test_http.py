"""What the operator sees of a coordinator, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rljob_core.api.messages import Ack, Goodbye, Register, RewardWork, TakeReward
from rljob_core.errors import CoordinatorGoneError, RefusedError
from rljob_core.names import Role
from rljob_core.session import Session
from rljob_workers.coordinator.peer import RequestFailedError
from rljob_workers.link import CoordinatorLink, register_message

pytestmark = pytest.mark.processes
MakeStage = Callable[..., Any]


@pytest.mark.parametrize("token", ["", "wrong", "a-token-and-more"])
@pytest.mark.parametrize("path", ["/v1/report", "/v1/statistics/experts", "/v1/worker"])
async def test_without_the_right_token_nothing_is_told(stage: MakeStage, path: str, token: str) -> None:
    job = stage()
    async with job.coordinator():
        assert (await job.get(path, token))[0] == 401
        assert (await job.put("/v1/directive", b"{}", token))[0] == 401


async def test_link_with_a_wrong_token_is_refused_at_once(stage: MakeStage) -> None:
    job = stage()
    context = replace(job.context(Role.REWARD), token="wrong")

    def start() -> None:
        with CoordinatorLink(context) as link:
            link.start(register_message(context))

    async with job.coordinator():
        with pytest.raises(RefusedError, match="401"):
            await asyncio.to_thread(start)


async def test_link_of_another_protocol_is_refused(stage: MakeStage) -> None:
    job = stage()

    def start() -> None:
        with job.link(Role.REWARD) as link:
            link.start(register_message(job.context(Role.REWARD)).model_copy(update={"protocol_major": 9}))

    async with job.coordinator():
        with pytest.raises(RefusedError, match="protocol 9 is not supported"):
            await asyncio.to_thread(start)


async def test_request_that_makes_no_sense_is_refused_and_the_link_goes_on(stage: MakeStage) -> None:
    job = stage()

    def calls() -> None:
        with job.link(Role.REWARD) as link:
            link.start(register_message(job.context(Role.REWARD)))
            with pytest.raises(RefusedError, match="Register is not expected here"):
                link.call(Register(role="reward", pod="x", pod_uid="x", rank=0), Ack)
            assert link.call(Goodbye(), Ack).ok

    async with job.coordinator():
        await asyncio.to_thread(calls)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("register", "Register of a new worker: KeyError: 7"),
        ("take_reward", "TakeReward of reward rank 0: KeyError: 7"),
    ],
)
async def test_an_error_of_the_coordinator_itself_ends_it_and_frees_the_worker(
    stage: MakeStage, monkeypatch: pytest.MonkeyPatch, method: str, said: str
) -> None:
    job = stage()

    def fails(*arguments: object) -> None:
        raise KeyError(7)

    def ask() -> None:
        with job.link(Role.REWARD) as link:
            link.start(register_message(job.context(Role.REWARD)))
            link.call(TakeReward(max_rows=1), RewardWork)

    monkeypatch.setattr(Session, method, fails)
    async with asyncio.timeout(15), job.coordinator() as coordinator:
        asked = asyncio.create_task(asyncio.to_thread(ask))
        with pytest.raises(RequestFailedError, match=said):
            await coordinator
        with pytest.raises(CoordinatorGoneError):
            await asked


async def test_a_full_disk_ends_the_coordinator(stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = stage()

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with asyncio.timeout(15), job.coordinator() as coordinator:
        monkeypatch.setattr(os, "fsync", full)
        await job.direct(1, action="Drain")
        with pytest.raises(OSError, match=r"journal\.jsonl cannot be written \(No space left"):
            await coordinator


async def test_directive_is_applied_once_and_older_ones_are_ignored(stage: MakeStage) -> None:
    job = stage()
    async with job.coordinator():
        assert await job.direct(5) == (200, '{"appliedRevision": 5}')
        assert await job.direct(4, action="Drain") == (200, '{"appliedRevision": 5}')
        assert await job.direct(5, action="Drain") == (200, '{"appliedRevision": 5}')
        report = await job.report()
        assert report.applied_revision == 5
        assert report.outcome == "None"


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        pytest.param(b"x" * (64 * 1024 + 1), 413, "", id="oversized"),
        pytest.param(b"{", 400, "not a Directive", id="not JSON"),
        pytest.param(b"[1]", 400, "not a JSON object", id="not an object"),
        pytest.param(b'{"protocolMajor": 2}', 400, "protocolMajor 2 is not supported", id="unknown major"),
        pytest.param(b'{"protocolMajor": 1}', 400, "revision", id="field missing"),
    ],
)
async def test_bad_bodies_are_refused_without_effect(stage: MakeStage, body: bytes, status: int, why: str) -> None:
    job = stage()
    async with job.coordinator():
        got, text = await job.put("/v1/directive", body)
        assert got == status
        assert why in text
        assert (await job.report()).applied_revision == 0


async def test_unknown_keys_of_a_newer_minor_are_ignored(stage: MakeStage) -> None:
    job = stage()
    async with job.coordinator():
        assert (await job.direct(1, protocolMinor=7, somethingNew=True))[0] == 200


async def test_report_waits_for_news_and_wakes_at_once(stage: MakeStage) -> None:
    job = stage()
    async with job.coordinator():
        first = await job.report()
        waiting = asyncio.create_task(job.report(f"?after={first.sequence}&wait=20"))
        await asyncio.sleep(0)
        await job.direct(1)
        news = await asyncio.wait_for(waiting, 5)
        assert news.sequence > first.sequence
        assert news.applied_revision == 1


async def test_report_comes_back_unchanged_when_the_wait_is_over(stage: MakeStage) -> None:
    job = stage()
    async with job.coordinator():
        first = await job.report()
        assert (await job.report(f"?after={first.sequence}&wait=0.05")).sequence == first.sequence
        assert (await job.get("/v1/report?after=x"))[0] == 400


async def test_expert_statistics_are_a_resource_of_their_own(stage: MakeStage) -> None:
    job = stage()
    async with job.coordinator():
        status, body = await job.get("/v1/statistics/experts")
        assert (status, json.loads(body)) == (200, {"step": 0, "counts": []})
