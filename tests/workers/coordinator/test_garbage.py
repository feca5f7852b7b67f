"""Garbage of the store: removed in the background, tried again where the store refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from rljob_core.errors import StoreError
from rljob_workers.coordinator.garbage import Garbage
from rljob_workers.kv_store.memory import MemoryStore


class RefusingStore(MemoryStore):
    """Refuses the first removals, then says that one was done."""

    def __init__(self, refusals: int, done: Callable[[], object]) -> None:
        super().__init__(budgets={"queue": 1 << 20})
        self._done: Callable[[], object] = done
        self.refusals, self.asked = refusals, 0
        self.put({f"queue/{n}": b"x" for n in range(3)})

    def remove(self, keys: Sequence[str]) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise StoreError("remove", keys[0], -900)
        super().remove(keys)
        self._done()


@pytest.mark.parametrize("refusals", [0, 1, 3])
async def test_keys_that_could_not_be_removed_are_tried_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    loop, removed = asyncio.get_running_loop(), asyncio.Event()
    store, sleep = RefusingStore(refusals, lambda: loop.call_soon_threadsafe(removed.set)), asyncio.sleep
    removing, pauses = Garbage(store), list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    running = asyncio.create_task(removing.run())
    removing.discard(("queue/0", "queue/1"))
    async with asyncio.timeout(5):
        await removed.wait()
    running.cancel()
    assert store.get(["queue/0", "queue/1", "queue/2"]) == [None, None, b"x"]
    assert store.asked == refusals + 1, "nothing is tried without a pause"
    assert pauses == [1.0, 2.0, 4.0][:refusals]
