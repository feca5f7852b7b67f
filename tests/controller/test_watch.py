"""The pod cache against a scripted API: pages, bookmarks, 410, silence, own creates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rljob_core.names import Role, labels
from rljob_operator.cluster.api import ApiError, Object, Resource
from rljob_operator.cluster.children import RETRY_S, Children
from rljob_operator.cluster.health import Patience

pytestmark = pytest.mark.looptime


def pod(name: str, version: int, job: str = "j1", phase: str = "Pending") -> Object:
    owner = {"kind": "RLJob", "uid": job, "controller": True}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": labels("rl", job, Role.REWARD, 0, 0),
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "status": {"phase": phase}}


def event(kind: str, body: Object) -> Object:
    return {"type": kind, "object": body}


SILENT = object()


class ScriptedApi:
    """Lists and streams in the order they are asked for; after the last stream, silence."""

    def __init__(self, lists: list[list[list[Object]]], streams: list[list[Any]], version: int = 10) -> None:
        self.lists, self.streams, self.version = lists, streams, version
        self.asked: list[str] = []

    async def list_page(self, resource: Resource, namespace: str | None, selector: str, token: str = "") -> Object:
        self.asked.append(f"list {token}".strip())
        pages = self.lists[0]
        number = int(token or 0)
        more = str(number + 1) if number + 1 < len(pages) else ""
        if not more and len(self.lists) > 1:
            self.lists.pop(0)
        return {"metadata": {"resourceVersion": str(self.version), "continue": more}, "items": pages[number]}

    @asynccontextmanager
    async def watch(
        self, resource: Resource, namespace: str | None, selector: str, version: str, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[Object]]:
        self.asked.append(f"watch {version}")
        yield self._lines(self.streams.pop(0) if self.streams else [SILENT])

    async def _lines(self, script: list[Any]) -> AsyncIterator[Object]:
        for line in script:
            if line is SILENT:
                await asyncio.sleep(10_000)
            if isinstance(line, Exception):
                raise line
            yield line


class Seen:
    """A cache on a scripted API, with what it told."""

    def __init__(self, api: ScriptedApi) -> None:
        self.changed: list[str] = []
        self.beats: list[float] = []
        self.api = api
        loop = asyncio.get_running_loop()

        def beat() -> None:
            self.beats.append(loop.time())

        self.cache = Children(api, None, self.changed.append, beat, Patience())  # type: ignore[arg-type]

    async def run(self, seconds: float) -> None:
        task = asyncio.create_task(self.cache.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def names(self, job: str = "j1") -> list[str]:
        return sorted(self.cache.of(job))


async def test_a_list_in_pages_then_events() -> None:
    stream = [
        event("ADDED", pod("c", 11)),
        event("MODIFIED", pod("a", 12, phase="Running")),
        event("DELETED", pod("b", 13)),
        SILENT,
    ]
    seen = Seen(ScriptedApi([[[pod("a", 5)], [pod("b", 6), pod("x", 7, job="j2")]]], [stream]))
    await seen.run(1)
    assert seen.api.asked == ["list", "list 1", "watch 10"]
    assert seen.names() == ["a", "c"]
    assert seen.names("j2") == ["x"]
    assert seen.cache.of("j1")["a"].workload.phase == "Running"
    assert seen.cache.synced.is_set()
    assert set(seen.changed) == {"j1", "j2"}


async def test_a_stream_the_server_ended_goes_on_from_its_last_bookmark() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "40"}})
    seen = Seen(ScriptedApi([[[]]], [[bookmark], [SILENT]]))
    await seen.run(1)
    assert seen.api.asked == ["list", "watch 10", "watch 40"]


@pytest.mark.parametrize(
    "trouble",
    [
        event("ERROR", {"code": 410, "reason": "Expired"}),
        event("ERROR", {"code": 500, "reason": "InternalError"}),
        ApiError("watch", "pods", "", 410, {"reason": "Expired"}),
        ConnectionResetError("peer"),
    ],
)
async def test_a_broken_or_too_old_stream_is_listed_again_b40(trouble: Any) -> None:
    seen = Seen(ScriptedApi([[[pod("a", 5)]], [[pod("b", 8)]]], [[trouble], [SILENT]]))
    await seen.run(RETRY_S + 1)
    assert seen.api.asked == ["list", "watch 10", "list", "watch 10"]
    assert seen.names() == ["b"]


async def test_silence_is_noticed_within_90_s_b40() -> None:
    seen = Seen(ScriptedApi([[[pod("a", 5)]], [[]]], [[SILENT], [SILENT]]))
    await seen.run(90)
    assert Patience().silence_s + RETRY_S < 90
    assert seen.api.asked[:3] == ["list", "watch 10", "list"]
    assert seen.names() == []


async def test_every_line_is_a_sign_of_life() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "11"}})
    seen = Seen(ScriptedApi([[[]]], [[bookmark, bookmark, SILENT]]))
    await seen.run(1)
    assert len(seen.beats) == 4


async def test_our_own_create_is_seen_before_the_stream_tells_b38() -> None:
    seen = Seen(ScriptedApi([[[]]], [[event("BOOKMARK", {"metadata": {"resourceVersion": "20"}}), SILENT]]))
    await seen.run(1)
    seen.cache.put(pod("new", 21))
    assert seen.names() == ["new"]
    seen.cache.put(pod("made-and-gone-meanwhile", 19))
    assert seen.names() == ["new"]


async def test_a_relist_keeps_what_was_created_after_it() -> None:
    seen = Seen(ScriptedApi([[[]], [[]]], [[SILENT]]))
    await seen.run(1)
    seen.cache.put(pod("new", 21))
    await seen.run(1)
    assert seen.names() == ["new"]


async def test_a_pod_without_our_identity_or_owner_is_nobodys() -> None:
    stray, orphan = pod("stray", 5), pod("orphan", 6)
    stray["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "rljob-operator"}
    orphan["metadata"]["ownerReferences"] = []
    seen = Seen(ScriptedApi([[[stray, orphan]]], [[SILENT]]))
    await seen.run(1)
    assert seen.names() == []


async def test_pods_of_an_earlier_job_of_the_name_are_known_until_they_end() -> None:
    others = [pod("a", 1, "old", "Running"), pod("b", 2, "old", "Failed"), pod("c", 3, "new", "Running")]
    seen = Seen(ScriptedApi([[others]], [[SILENT]]))
    await seen.run(1)
    assert seen.cache.of_earlier("ns", "rl", "new") == ["a"]
    assert seen.cache.of_earlier("ns", "rl", "newest") == ["a", "c"]
    assert seen.cache.of_earlier("ns", "another", "new") == []
    assert seen.cache.of_earlier("elsewhere", "rl", "new") == []
