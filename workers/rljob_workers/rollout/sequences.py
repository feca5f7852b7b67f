"""Bookkeeping of the sequences in the decode batch, in columns: no loop over sequences while none ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rljob_workers.seams import Finished


class Sequences:
    """S rows; new sequences take the lowest free row, so that rows in use stay together at the front."""

    def __init__(self, capacity: int, max_response_tokens: int, eos_ids: Sequence[int]) -> None:
        self.capacity = capacity
        self._eos = np.array(eos_ids, np.int64)
        self._handles = np.zeros(capacity, np.int64)
        self._limits = np.zeros(capacity, np.int64)
        self._tokens = np.zeros((capacity, max_response_tokens), np.int64)
        self._logprobs = np.zeros((capacity, max_response_tokens), np.float32)
        self.active = np.zeros(capacity, bool)
        self.pending = np.zeros(capacity, bool)
        """The newest token is sampled but not in the cache yet."""
        self.cached = np.zeros(capacity, np.int64)
        """Tokens in the cache."""
        self.generated = np.zeros(capacity, np.int64)
        self.greedy = np.zeros(capacity, bool)
        self.seeds = np.zeros(capacity, np.uint64)
        self._columns: tuple[npt.NDArray[Any], ...] = (
            self._handles, self._limits, self._tokens, self._logprobs, self.active, self.pending, self.cached,
            self.generated, self.greedy, self.seeds,
        )  # fmt: skip
        """All that belongs to a row and moves with it."""

    @property
    def in_flight(self) -> int:
        return int(self.active.sum())

    @property
    def extent(self) -> int:
        """Rows up to the last one in use."""
        used = np.flatnonzero(self.active)
        return int(used[-1]) + 1 if used.size else 0

    def join(self, handle: int, prompt_tokens: int, max_tokens: int, greedy: bool, seed: int) -> int:
        """Take a row for a sequence whose prompt is in the cache (or will be before the next draw)."""
        row = int(self.active.argmin())
        assert not self.active[row], f"all {self.capacity} sequences are in use"
        assert 1 <= max_tokens <= self._tokens.shape[1], f"max_tokens {max_tokens} is outside the engine's limit"
        self._handles[row], self._limits[row] = handle, max_tokens
        self.active[row], self.pending[row] = True, False
        self.cached[row], self.generated[row] = prompt_tokens, 0
        self.greedy[row], self.seeds[row] = greedy, seed & (1 << 64) - 1
        return row

    def newest(self, rows: int) -> npt.NDArray[np.int64]:
        """Newest token of the first rows; 0 where there is none."""
        last = np.maximum(self.generated[:rows] - 1, 0)
        return np.where(self.pending[:rows], self._tokens[np.arange(rows), last], 0)

    def fed(self) -> None:
        """Every pending token is in the cache now."""
        self.cached += self.pending
        self.pending[:] = False

    def record(self, tokens: npt.NDArray[np.int64], logprobs: npt.NDArray[np.float32]) -> list[Finished]:
        """Append one token to each active row among the first len(tokens); returns and frees those that ended."""
        rows = np.flatnonzero(self.active[: len(tokens)])
        at = self.generated[rows]
        self._tokens[rows, at], self._logprobs[rows, at] = tokens[rows], logprobs[rows]
        self.generated[rows] += 1
        ended = np.isin(tokens[rows], self._eos)
        done = ended | (self.generated[rows] >= self._limits[rows])
        self.active[rows[done]] = False
        self.pending[rows] = ~done
        return [
            self._finished(row, "eos" if eos else "length") for row, eos in zip(rows[done], ended[done], strict=True)
        ]

    def _finished(self, row: int, reason: str) -> Finished:
        count = self.generated[row]
        return Finished(
            slot=int(self._handles[row]),
            token_ids=self._tokens[row, :count].tolist(),
            logprobs=self._logprobs[row, :count].tolist(),
            finish_reason=reason,
        )

    def compact(self) -> tuple[list[int], list[int]]:
        """Move the last rows in use onto free ones at the front; returns (from, to), which the cache must follow."""
        used, count = np.flatnonzero(self.active), self.in_flight
        sources, targets = used[used >= count], np.flatnonzero(~self.active[:count])
        for column in self._columns:
            column[targets] = column[sources]
        self.active[sources] = False
        self.pending[sources] = False
        return sources.tolist(), targets.tolist()
