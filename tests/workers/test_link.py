"""A worker's link when connections break, coordinators change, or nobody is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import pytest
from aiohttp import WSMsgType, web

from rljob_core.api.directive import StageName
from rljob_core.api.messages import Ack, Pulled, TakeTrain
from rljob_core.api.spec import RLJob
from rljob_core.errors import CoordinatorGoneError, RefusedError
from rljob_core.names import Role
from rljob_workers import link as link_module
from rljob_workers.context import Context
from rljob_workers.frames import WORKER_PATH
from rljob_workers.link import HANDSHAKE_S, CoordinatorLink, patience_s, register_message

pytestmark = pytest.mark.processes
PULLED = Pulled(version=1, bytes=2, seconds=0.5)
JOB = RLJob.from_object(
    {
        "metadata": {"name": "j"},
        "spec": {"model": {}, "data": {}, "reward": {}, "algorithm": {}},
    }
)


class FakeCoordinator:
    """Answers registrations and Acks; records frames. Each connection ends after `requests` other requests."""

    def __init__(self) -> None:
        self.port = 0
        self.instances: list[str] = ["one"] * 10
        self.frames: list[dict[str, Any]] = []
        self.break_before_answer: list[str] = []
        self.all_broken = threading.Event()
        self.refuse: str = ""
        self.stops_after: int | None = None
        """Connections after which it is stopped: the kernel still takes connections, nobody answers."""

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        if self.stops_after == 0:
            await asyncio.Event().wait()
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        registered = {"worker_id": 1, "heartbeat_s": 0.05, "instance": self.instances.pop(0)}
        await socket.send_bytes(msgpack.packb({"id": 0, "body": registered}))
        if self.stops_after is not None:
            self.stops_after -= 1
            await asyncio.Event().wait()
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                frame = msgpack.unpackb(message.data)
                self.frames.append(frame)
                if frame["type"] in self.break_before_answer:
                    self.break_before_answer.remove(frame["type"])
                    if not self.break_before_answer:
                        self.all_broken.set()
                    await socket.close()
                elif self.refuse and frame["type"] != "Heartbeat":
                    await socket.send_bytes(msgpack.packb({"id": frame["id"], "error": self.refuse}))
                elif frame["type"] != "TakeTrain":
                    await socket.send_bytes(msgpack.packb({"id": frame["id"], "body": {"ok": True}}))
        return socket

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.add_routes([web.get(WORKER_PATH, self.handle)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    def context(self) -> Context:
        return Context(job=JOB, role=Role.REWARD, coordinator=f"127.0.0.1:{self.port}")

    def link(self, connect_s: float = 5.0, reconnect_s: float = 5.0) -> CoordinatorLink:
        return CoordinatorLink(self.context(), connect_s=connect_s, reconnect_s=reconnect_s)

    def named(self, kind: str) -> list[dict[str, Any]]:
        return [f for f in self.frames if f["type"] == kind]


async def with_link(fake: FakeCoordinator, use: Callable[[CoordinatorLink], Any], **bounds: float) -> Any:
    """`use` with a started link, in a thread."""

    def run() -> Any:
        with fake.link(**bounds) as link:
            link.start(register_message(fake.context()))
            return use(link)

    return await asyncio.to_thread(run)


async def test_request_open_when_the_connection_broke_is_sent_again_under_its_id() -> None:
    fake = FakeCoordinator()
    fake.break_before_answer = ["Pulled"]
    async with fake.serving():
        assert (await with_link(fake, lambda link: link.call(PULLED, Ack))).ok
    first, second = fake.named("Pulled")
    assert first["id"] == second["id"]


async def test_calls_from_several_threads_do_not_mix() -> None:
    fake = FakeCoordinator()

    def use(link: CoordinatorLink) -> None:
        threads = [threading.Thread(target=lambda: link.call(PULLED, Ack)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async with fake.serving():
        await with_link(fake, use)
    assert len({f["id"] for f in fake.named("Pulled")}) == 8


async def test_stages_arrive_as_spans_even_right_before_the_end() -> None:
    fake = FakeCoordinator()

    def use(link: CoordinatorLink) -> None:
        with link.stage(StageName.TRAIN, step=7):
            pass

    async with fake.serving():
        await with_link(fake, use)
    spans = [s for f in fake.named("Heartbeat") for s in f["body"]["spans"]]
    assert [(s["stage"], s["step"]) for s in spans] == [("train", 7)]
    assert spans[0]["end"] >= spans[0]["start"]


async def test_stages_of_a_heartbeat_that_a_broken_connection_took_arrive_once() -> None:
    """It is sent again under its id: the coordinator, which may have read it before, counts it once."""
    fake = FakeCoordinator()

    def use(link: CoordinatorLink) -> None:
        link.call(PULLED, Ack)
        with link.stage(StageName.TRAIN, step=7):
            pass
        fake.break_before_answer = ["Heartbeat", "Heartbeat"]
        assert fake.all_broken.wait(5)

    async with fake.serving():
        await with_link(fake, use)
    told = {f["id"]: s["stage"] for f in fake.named("Heartbeat") for s in f["body"]["spans"]}
    assert list(told.values()) == ["train"]
    assert len(fake.named("Heartbeat")) > len({f["id"] for f in fake.named("Heartbeat")}), "one was sent again"


async def test_error_inside_the_block_becomes_the_goodbye() -> None:
    fake = FakeCoordinator()

    def use(link: CoordinatorLink) -> None:
        raise ValueError("boom")

    async with fake.serving():
        with pytest.raises(ValueError, match="boom"):
            await with_link(fake, use)
    assert fake.named("Goodbye")[0]["body"] == {"error": "boom", "invalid_input": False}


async def test_refusal_raises_where_the_call_was_made() -> None:
    fake = FakeCoordinator()
    fake.refuse = "no such row"
    async with fake.serving():
        with pytest.raises(RefusedError, match="no such row"):
            await with_link(fake, lambda link: link.call(PULLED, Ack))


async def test_nobody_there_within_the_bound() -> None:
    fake = FakeCoordinator()
    async with fake.serving():
        pass
    with pytest.raises(CoordinatorGoneError, match="does not answer"):
        await with_link(fake, lambda link: None, connect_s=0.2)


async def test_coordinator_that_does_not_come_back_ends_open_calls() -> None:
    fake = FakeCoordinator()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def use(link: CoordinatorLink) -> None:
        loop.call_soon_threadsafe(started.set)
        link.call(TakeTrain(), Ack)

    async with fake.serving():
        waiting = asyncio.create_task(with_link(fake, use, reconnect_s=0.2))
        await started.wait()
    with pytest.raises(CoordinatorGoneError):
        await waiting


@pytest.mark.parametrize("connections", [0, 1], ids=["from the start", "later"])
async def test_a_stopped_coordinator_is_given_up_in_bounded_time(
    connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP, or a node that hangs: pings are not answered, then new connections are taken and left alone."""
    monkeypatch.setattr(link_module, "PING_S", 0.1)
    monkeypatch.setattr(link_module, "HANDSHAKE_S", 0.1)
    fake = FakeCoordinator()
    fake.stops_after = connections
    async with fake.serving(), asyncio.timeout(5):
        with pytest.raises(CoordinatorGoneError, match=r"does not answer: nothing came within 0\.1 s"):
            await with_link(fake, lambda link: link.call(TakeTrain(), Ack), connect_s=0.3, reconnect_s=0.3)


def test_trainers_give_up_first_so_that_one_loss_is_counted() -> None:
    assert patience_s(Role.TRAINER) + HANDSHAKE_S < patience_s(Role.ROLLOUT) == patience_s(Role.REWARD)


async def test_another_coordinator_at_the_address_ends_the_link() -> None:
    fake = FakeCoordinator()
    fake.instances = ["one", "two"]
    fake.break_before_answer = ["Pulled"]
    async with fake.serving():
        with pytest.raises(CoordinatorGoneError, match="another coordinator"):
            await with_link(fake, lambda link: link.call(PULLED, Ack))
