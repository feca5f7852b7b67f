"""Removes store keys nobody needs any more, in the background and in batches."""

from __future__ import annotations

import asyncio
import logging

from rljob_core.errors import StoreError
from rljob_workers.seams import KVStore

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
        while True:
            await self._some.wait()
            self._some.clear()
            keys, self._keys = self._keys, []
            try:
                await asyncio.to_thread(self._store.remove, keys)
            except StoreError as error:
                _log.warning("%d keys stay in the store: %s", len(keys), error)
