"""Removes store keys nobody needs any more, in the background and in batches."""

from __future__ import annotations

import asyncio
import logging

from rljob_core.errors import StoreError
from rljob_workers.seams import KVStore

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before keys that could not be removed are tried again; doubled while they cannot."""
_log = logging.getLogger(__name__)


class Garbage:
    """discard() never blocks; run() works until cancelled."""

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._keys: list[str] = []
        self._some = asyncio.Event()

    def discard(self, keys: tuple[str, ...]) -> None:
        self._keys += keys
        self._some.set()

    async def run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            await self._some.wait()
            self._some.clear()
            keys, self._keys = self._keys, []
            try:
                await asyncio.to_thread(self._store.remove, keys)
                pause_s = FIRST_PAUSE_S
            except StoreError as error:
                _log.warning("%d keys stay in the store for now, tried again in %g s: %s", len(keys), pause_s, error)
                self.discard(tuple(keys))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
