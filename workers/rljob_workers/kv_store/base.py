"""The rules every store keeps, over a handful of primitives: budgets, retries, existing keys, one lock.

MooncakeStore accepts much silently: a put on an existing key keeps the old value and says 0, a call after close ends
the interpreter. Here each of these is an error. A value has one copy.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from rljob_core.errors import StoreError, StoreFullError, StoreMissError
from rljob_workers.kv_store.ledger import NO_SPACE, Ledger, use_of

CLOSED = -1
INVALID_PARAMS = -600
NOT_READY = -703
NOT_FOUND = -704
LEASE_EXPIRED = -707
TRANSFER_FAILED = -800

MISSING = frozenset({NOT_FOUND, NOT_READY, LEASE_EXPIRED, TRANSFER_FAILED})
"""A value that cannot be read now: never written, still being written, reclaimed, or on a segment that died."""

REFUSED = frozenset({NO_SPACE, TRANSFER_FAILED})
"""A put worth repeating: no space yet, or the segment chosen has died and is not yet taken out."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


class BaseStore(ABC):
    """Implements seams.KVStore for one job over full keys `<uid>/<key>`.

    patience_s: how long refused keys are tried again before StoreFullError. retried: keys refused once and put again.
    """

    def __init__(
        self,
        *,
        uid: str,
        budgets: Mapping[str, int],
        patience_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not uid:
            raise ValueError("a store needs the job's uid: keys of jobs on one master must not meet")
        self._root = f"{uid}/"
        self._ledger = Ledger(budgets)
        self._patience_s = patience_s
        self._clock, self._sleep = clock, sleep
        self._lock = threading.RLock()
        self._open = True
        self.retried = 0

    # Primitives over full keys; the lock is held and the store is open.

    @abstractmethod
    def _put(self, items: Sequence[tuple[str, memoryview]]) -> list[int]:
        """Write values of any size; one code a key (0, or negative)."""

    @abstractmethod
    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        """Bytes of each value; None for a key that is surely not there, StoreError when nobody can tell."""

    @abstractmethod
    def _read(self, keys: Sequence[str], sizes: Sequence[int]) -> list[bytes | int]:
        """Values, or a negative code."""

    @abstractmethod
    def _read_ranges(self, key: str, ranges: Sequence[tuple[int, int, int]], into: memoryview) -> int:
        """0, or the first negative code."""

    @abstractmethod
    def _remove(self, keys: Sequence[str]) -> list[int]: ...

    @abstractmethod
    def _remove_below(self, prefix: str) -> int:
        """Remove every key that starts with `prefix`; how many, or a negative code."""

    @abstractmethod
    def _close(self) -> None: ...

    # seams.KVStore

    def put(self, items: Mapping[str, bytes | memoryview]) -> None:
        values = {key: memoryview(value).cast("B") for key, value in items.items()}
        for key, value in values.items():
            if not value.nbytes:
                raise StoreError("put", key, INVALID_PARAMS, "a value may not be empty")
        with self._lock:
            self._check_open("put", next(iter(values), ""))
            self._charge({key: value.nbytes for key, value in values.items()})
        try:
            self._put_all(values)
        except StoreError:
            self._release_absent(values)
            raise

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        with self._lock:
            self._check_open("get", keys[0] if keys else "")
            sizes = self._sizes([self._root + key for key in keys])
            there = [(i, key, size) for i, (key, size) in enumerate(zip(keys, sizes, strict=True)) if size is not None]
            read = self._read([self._root + key for _, key, _ in there], [size for _, _, size in there])
        out: list[bytes | None] = [None] * len(keys)
        for (i, key, _), value in zip(there, read, strict=True):
            if isinstance(value, bytes):
                out[i] = value
            elif value not in MISSING:
                raise StoreError("get", key, value)
        return out

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int, int]], into: memoryview) -> None:
        with self._lock:
            self._check_open("get_ranges", key)
            code = self._read_ranges(self._root + key, ranges, into.cast("B"))
        if code in MISSING:
            raise StoreMissError("get_ranges", key, code)
        if code:
            raise StoreError("get_ranges", key, code)

    def remove(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        with self._lock:
            self._check_open("remove", keys[0])
            codes = self._remove([self._root + key for key in keys])
            self._ledger.release(keys)
        for key, code in zip(keys, codes, strict=True):
            if code not in (0, NOT_FOUND):
                raise StoreError("remove", key, code)

    def sweep(self, prefix: str) -> int:
        """`kv/3` and `kv/3/` both mean everything below `kv/3/`, never `kv/30`; empty: all keys of this job."""
        below = f"{prefix.rstrip('/')}/" if prefix else ""
        with self._lock:
            self._check_open("sweep", prefix)
            removed = self._remove_below(self._root + below)
            self._ledger.release_below(below)
        if removed < 0:
            raise StoreError("sweep", prefix, removed)
        return removed

    def close(self) -> None:
        with self._lock:
            if self._open:
                self._open = False
                self._close()

    def used(self, use: str) -> int:
        """Bytes this process counts against the budget of a use."""
        with self._lock:
            return self._ledger.used(use)

    def _check_open(self, operation: str, key: str) -> None:
        if not self._open:
            raise StoreError(operation, key, CLOSED, "the store is closed")

    def _charge(self, sizes: Mapping[str, int]) -> None:
        """Book bytes; when a budget seems full, first forget own keys that others have removed since."""
        try:
            self._ledger.charge(sizes)
        except StoreFullError:
            for use in {use_of(key) for key in sizes}:
                own = self._ledger.keys(use)
                found = self._sizes([self._root + key for key in own])
                self._ledger.release(key for key, size in zip(own, found, strict=True) if size is None)
            self._ledger.charge(sizes)

    def _put_all(self, values: Mapping[str, memoryview]) -> None:
        """Put, repeat what was refused with growing pauses, then prove sizes."""
        waiting, pause, deadline = list(values), FIRST_PAUSE_S, self._clock() + self._patience_s
        while True:
            with self._lock:
                self._check_open("put", waiting[0] if waiting else "")
                codes = self._put([(self._root + key, values[key]) for key in waiting])
            for key, code in zip(waiting, codes, strict=True):
                if code and code not in REFUSED:
                    raise StoreError("put", key, code)
            refused = {key: code for key, code in zip(waiting, codes, strict=True) if code}
            waiting = list(refused)
            if not waiting:
                break
            if self._clock() + pause > deadline:
                kind = StoreFullError if refused[waiting[0]] == NO_SPACE else StoreError
                raise kind("put", waiting[0], refused[waiting[0]], f"refused for {self._patience_s} s: {_SPACE}")
            self.retried += len(waiting)
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        self._prove(values)

    def _prove(self, values: Mapping[str, memoryview]) -> None:
        with self._lock:
            self._check_open("put", next(iter(values), ""))
            sizes = self._sizes([self._root + key for key in values])
        for (key, value), size in zip(values.items(), sizes, strict=True):
            if size is None:
                raise StoreMissError("put", key, NOT_FOUND, "gone right after it was written")
            if size != value.nbytes:
                raise StoreError(
                    "put", key, INVALID_PARAMS, f"exists with {size} bytes, not {value.nbytes}; use a new key"
                )

    def _release_absent(self, values: Mapping[str, memoryview]) -> None:
        """After a failed put: keep booked what is in the store with our size."""
        with self._lock:
            if not self._open:
                return
            for key, value in values.items():
                try:
                    size = self._sizes([self._root + key])[0]
                except StoreError:
                    return
                if size != value.nbytes:
                    self._ledger.release([key])


_SPACE = "raise kvStore.managed.segmentBytes or segments, or let less lie in the store"
