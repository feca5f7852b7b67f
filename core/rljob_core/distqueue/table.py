"""One DistQueue table: rows that become ready, are leased by consumers, and are committed at most once.

A row lives from `offer` to an accepted `commit` (or `remove`). Between, any number of leases may take it; each lease
has an attempt id that is never used again, so a completion that comes late or twice is told apart and refused
(rl.md 33). Payload is elsewhere: a row here is a number. All operations are batched; none reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rljob_core.errors import QueueError


@dataclass(frozen=True, kw_only=True)
class Leased:
    """What a consumer got: equal-length columns, best priority first. All rows of one lease share its attempt id."""

    rows: list[int]
    attempts: list[int]


@dataclass(slots=True)
class _Row:
    """priority: smaller is served first; partition: which consumers may take it; attempt: of its lease, 0 for none."""

    priority: int
    partition: int
    ready: bool
    attempt: int = 0


@dataclass(slots=True)
class _Lease:
    consumer: int
    deadline: float
    rows: set[int] = field(default_factory=set)


class Table:
    """Rows of one task. Cost of an operation: O(log n) a row taken, O(1) a row offered, committed or returned.

    Partitions split a table between fixed consumers (static dispatch); dynamic dispatch uses partition 0 alone.
    """

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._leases: dict[int, _Lease] = {}
        self._attempts_of: dict[int, set[int]] = {}
        self._queues: dict[int, list[tuple[int, int]]] = {}
        self._ready: dict[int, int] = {}
        self._deadlines: list[tuple[float, int]] = []
        """One entry a lease, not later than its deadline: a renewal moves it when it comes up."""
        self._last_attempt = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def ready(self, partition: int = 0) -> int:
        """Rows a consumer of the partition could take now."""
        return self._ready.get(partition, 0)

    @property
    def leased(self) -> int:
        """Rows being worked on."""
        return sum(len(lease.rows) for lease in self._leases.values())

    @property
    def total_ready(self) -> int:
        return sum(self._ready.values())

    def held_by(self, consumer: int) -> int:
        """Rows leased to one consumer."""
        return sum(len(self._leases[a].rows) for a in self._attempts_of.get(consumer, ()))

    def holds(self, row: int, attempt: int) -> bool:
        """The row is leased under this attempt now."""
        record = self._rows.get(row)
        return record is not None and record.attempt == attempt != 0

    def is_ready(self, row: int) -> bool:
        """Ready and not leased."""
        record = self._rows.get(row)
        return record is not None and record.ready and not record.attempt

    def offer(
        self,
        rows: Sequence[int],
        priorities: Sequence[int],
        *,
        partitions: Sequence[int] | None = None,
        ready: bool = True,
    ) -> None:
        """Add rows; QueueError for one that is here already."""
        for i, (row, priority) in enumerate(zip(rows, priorities, strict=True)):
            if row in self._rows:
                raise QueueError(f"row {row} is offered twice")
            record = _Row(priority, partitions[i] if partitions is not None else 0, ready)
            self._rows[row] = record
            if ready:
                self._enqueue(row, record)

    def set_ready(self, rows: Iterable[int], ready: bool = True) -> None:
        """Rows gain, or lose, what their consumers need. A row that is leased stays so, and follows on its return."""
        for row in rows:
            record = self._rows[row]
            if record.ready == ready:
                continue
            record.ready = ready
            if not record.attempt:
                if ready:
                    self._enqueue(row, record)
                else:
                    self._ready[record.partition] -= 1

    def lease(self, consumer: int, limit: int, now: float, lease_s: float, partition: int = 0) -> Leased:
        """Take up to `limit` ready rows of a partition, best priority first, until now + lease_s."""
        queue = self._queues.get(partition, [])
        self._last_attempt += 1
        attempt = self._last_attempt
        taken: list[int] = []
        while queue and len(taken) < limit:
            priority, row = heappop(queue)
            record = self._rows.get(row)
            if record is None or record.attempt or not record.ready or record.priority != priority:
                continue  # a stale entry: removed, leased through another entry, or not ready any more
            record.attempt = attempt
            taken.append(row)
        if taken:
            self._ready[partition] -= len(taken)
            self._leases[attempt] = _Lease(consumer, now + lease_s, set(taken))
            self._attempts_of.setdefault(consumer, set()).add(attempt)
            heappush(self._deadlines, (now + lease_s, attempt))
        return Leased(rows=taken, attempts=[attempt] * len(taken))

    def commit(self, rows: Sequence[int], attempts: Sequence[int]) -> list[bool]:
        """Finish rows. False where the lease is over: expired, returned, or committed before. They leave the table."""
        accepted = []
        for row, attempt in zip(rows, attempts, strict=True):
            good = self.holds(row, attempt)
            if good:
                self._drop_from_lease(row, attempt)
                del self._rows[row]
            accepted.append(good)
        return accepted

    def release(self, rows: Sequence[int], attempts: Sequence[int]) -> None:
        """A consumer hands rows back unfinished; what is not leased under that attempt is left alone."""
        for row, attempt in zip(rows, attempts, strict=True):
            if self.holds(row, attempt):
                self._drop_from_lease(row, attempt)
                self._return(row, self._rows[row])

    def renew(self, consumer: int, deadline: float) -> None:
        """A consumer is alive: its leases last until `deadline` at least."""
        for attempt in self._attempts_of.get(consumer, ()):
            lease = self._leases[attempt]
            lease.deadline = max(lease.deadline, deadline)

    def release_consumer(self, consumer: int) -> list[int]:
        """A consumer is lost: its rows return. Returns them, ascending."""
        return self._end_leases(sorted(self._attempts_of.get(consumer, ())))

    def expire(self, now: float) -> list[int]:
        """Return the rows of every lease whose deadline has passed. Returns them, ascending."""
        over = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, attempt = heappop(self._deadlines)
            lease = self._leases.get(attempt)
            if lease is None:
                continue
            if lease.deadline > now:
                heappush(self._deadlines, (lease.deadline, attempt))  # renewed since
            else:
                over.append(attempt)
        return self._end_leases(over)

    def remove(self, rows: Iterable[int]) -> None:
        """Forget rows in whatever state; completions that come later are refused. Unknown rows are fine."""
        for row in rows:
            record = self._rows.pop(row, None)
            if record is None:
                continue
            if record.attempt:
                self._drop_from_lease(row, record.attempt)
            elif record.ready:
                self._ready[record.partition] -= 1

    def _enqueue(self, row: int, record: _Row) -> None:
        heappush(self._queues.setdefault(record.partition, []), (record.priority, row))
        self._ready[record.partition] = self._ready.get(record.partition, 0) + 1

    def _return(self, row: int, record: _Row) -> None:
        record.attempt = 0
        if record.ready:
            self._enqueue(row, record)

    def _end_leases(self, attempts: Sequence[int]) -> list[int]:
        returned = []
        for attempt in attempts:
            lease = self._leases.pop(attempt)
            self._forget_attempt(lease.consumer, attempt)
            for row in lease.rows:
                self._return(row, self._rows[row])
                returned.append(row)
        return sorted(returned)

    def _drop_from_lease(self, row: int, attempt: int) -> None:
        lease = self._leases[attempt]
        lease.rows.discard(row)
        if not lease.rows:
            del self._leases[attempt]
            self._forget_attempt(lease.consumer, attempt)

    def _forget_attempt(self, consumer: int, attempt: int) -> None:
        attempts = self._attempts_of[consumer]
        attempts.discard(attempt)
        if not attempts:
            del self._attempts_of[consumer]
