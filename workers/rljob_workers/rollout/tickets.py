"""Samples handed to the engines and not committed yet, on rank 0 of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rljob_core.api.messages import CompleteRollout, RolloutWork, TableName
from rljob_workers.packs import Sample, pack
from rljob_workers.seams import Finished


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """One sample in flight."""

    table: TableName
    row: int
    attempt: int
    version: int
    prompt: list[int]
    rank: int


@dataclass
class Tickets:
    """Handles are never reused: a row may come twice (its lease ran out), the handle tells which is which."""

    ranks: int
    in_flight: dict[int, Ticket] = field(default_factory=dict)
    done: list[tuple[Ticket, Finished]] = field(default_factory=list)
    """Finished and not committed."""
    _next: int = 0

    def held(self) -> list[int]:
        """Samples in flight, by rank."""
        out = [0] * self.ranks
        for ticket in self.in_flight.values():
            out[ticket.rank] += 1
        return out

    def add(self, work: RolloutWork, rank: int) -> list[int]:
        """Handles of a rank's part of DECODE work."""
        handles = list(range(self._next, self._next + len(work.rows)))
        self._next += len(handles)
        for handle, row, attempt, prompt in zip(handles, work.rows, work.attempts, work.prompts, strict=True):
            self.in_flight[handle] = Ticket(
                table=work.table, row=row, attempt=attempt, version=work.version, prompt=prompt, rank=rank
            )
        return handles

    def finish(self, finished: Sequence[Finished]) -> None:
        self.done += [(self.in_flight.pop(f.slot), f) for f in finished]

    def take_done(self) -> dict[TableName, list[tuple[Ticket, Finished]]]:
        """What is finished, by table; it counts as committed from here on."""
        out: dict[TableName, list[tuple[Ticket, Finished]]] = {}
        for ticket, finished in sorted(self.done, key=lambda pair: pair[0].row):
            out.setdefault(ticket.table, []).append((ticket, finished))
        self.done.clear()
        return out


def packed(samples: Sequence[tuple[Ticket, Finished]]) -> tuple[bytes, CompleteRollout]:
    """The payload of finished samples of one table, and the message that commits it.

    The key carries row and attempt of its first sample: no two commits share a (row, attempt).
    """
    payload = pack(
        [
            Sample(
                prompt_ids=np.array(ticket.prompt, np.int32),
                response_ids=np.array(finished.token_ids, np.int32),
                logprobs=np.array(finished.logprobs, np.float32),
            )
            for ticket, finished in samples
        ]
    )
    tickets, results = [t for t, _ in samples], [f for _, f in samples]
    first = tickets[0]
    return payload, CompleteRollout(
        table=first.table,
        rows=[t.row for t in tickets],
        attempts=[t.attempt for t in tickets],
        pack_key=f"queue/{first.table}/{first.row}.{first.attempt}",
        pack_bytes=len(payload),
        first_versions=[t.version for t in tickets],
        last_versions=[t.version for t in tickets],
        prompt_lengths=[len(t.prompt) for t in tickets],
        response_lengths=[len(f.token_ids) for f in results],
        finish_reasons=[f.finish_reason for f in results],
    )
