"""A store in this process's memory, with MooncakeStore's semantics: for tests, and whatever fits one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rljob_workers.kv_store.base import INVALID_PARAMS, NOT_FOUND, BaseStore
from rljob_workers.kv_store.ledger import NO_SPACE


@dataclass(kw_only=True)
class MemoryPool:
    """What several stores (clients) share. capacity: bytes; a put beyond it is refused with -200."""

    capacity: int = 1 << 30
    values: dict[str, bytes] = field(default_factory=dict)

    def used(self) -> int:
        return sum(len(v) for v in self.values.values())


class MemoryStore(BaseStore):
    """One client of a MemoryPool."""

    def __init__(
        self, *, uid: str = "job", budgets: Mapping[str, int], pool: MemoryPool | None = None, **options: Any
    ) -> None:
        super().__init__(uid=uid, budgets=budgets, **options)
        self._pool = pool if pool is not None else MemoryPool()

    def _put(self, items: Sequence[tuple[str, memoryview]]) -> list[int]:
        return [self._put_one(key, value) for key, value in items]

    def _put_one(self, key: str, value: memoryview) -> int:
        if key not in self._pool.values:
            if self._pool.used() + value.nbytes > self._pool.capacity:
                return NO_SPACE
            self._pool.values[key] = bytes(value)
        return 0

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        values = self._pool.values
        return [len(values[k]) if k in values else None for k in keys]

    def _read(self, keys: Sequence[str], sizes: Sequence[int]) -> list[bytes | int]:
        return [self._pool.values.get(key, NOT_FOUND) for key in keys]

    def _read_ranges(self, key: str, ranges: Sequence[tuple[int, int, int]], into: memoryview) -> int:
        value = self._pool.values.get(key)
        if value is None:
            return NOT_FOUND
        for source, target, length in ranges:
            if source + length > len(value) or target + length > into.nbytes:
                return INVALID_PARAMS
            into[target : target + length] = value[source : source + length]
        return 0

    def _remove(self, keys: Sequence[str]) -> list[int]:
        return [0 if self._pool.values.pop(key, None) is not None else NOT_FOUND for key in keys]

    def _remove_below(self, prefix: str) -> int:
        gone = [key for key in self._pool.values if key.startswith(prefix)]
        for key in gone:
            del self._pool.values[key]
        return len(gone)

    def _close(self) -> None:
        """Nothing is held."""
