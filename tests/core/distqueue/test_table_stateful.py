"""No row is lost and none is committed twice, for any interleaving of lease, expiry, commit and loss of consumers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rljob_core.distqueue import Leased, Table

CONSUMERS = st.integers(1, 3)
LEASE_S = 5.0


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.now = 0.0
        self.offered: set[int] = set()
        self.ready: set[int] = set()
        self.committed: list[int] = []
        self.removed: set[int] = set()
        self.leases: list[Leased] = []
        self.owner: dict[int, tuple[int, int, float]] = {}
        """row -> (attempt, consumer, deadline) as the model sees it."""

    @rule(count=st.integers(1, 5), ready=st.booleans())
    def offer(self, count: int, ready: bool) -> None:
        rows = list(range(len(self.offered), len(self.offered) + count))
        self.table.offer(rows, [row % 3 for row in rows], ready=ready)
        self.offered.update(rows)
        self.ready.update(rows if ready else [])

    @rule(data=st.data(), ready=st.booleans())
    def set_ready(self, data: st.DataObject, ready: bool) -> None:
        live = sorted(self._live())
        if live:
            rows = data.draw(st.lists(st.sampled_from(live), unique=True))
            self.table.set_ready(rows, ready)
            (self.ready.update if ready else self.ready.difference_update)(rows)

    @rule(consumer=CONSUMERS, limit=st.integers(0, 6))
    def lease(self, consumer: int, limit: int) -> None:
        free = self._free()
        leased = self.table.lease(consumer, limit, self.now, LEASE_S)
        assert len(leased.rows) == min(limit, len(free))
        assert len(set(leased.rows)) == len(leased.rows)
        assert set(leased.rows) <= free
        for row, attempt in zip(leased.rows, leased.attempts, strict=True):
            self.owner[row] = (attempt, consumer, self.now + LEASE_S)
        self.leases.append(leased)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Any lease ever given, or a part of it, current or long over."""
        if not self.leases:
            return
        leased = data.draw(st.sampled_from(self.leases))
        count = data.draw(st.integers(0, len(leased.rows)))
        rows, attempts = leased.rows[:count], leased.attempts[:count]
        expected = [self.owner.get(r, (0, 0, 0.0))[0] == a for r, a in zip(rows, attempts, strict=True)]
        assert self.table.commit(rows, attempts) == expected
        for row, good in zip(rows, expected, strict=True):
            if good:
                self.committed.append(row)
                del self.owner[row]

    @rule(seconds=st.floats(0, 4))
    def expire(self, seconds: float) -> None:
        self.now += seconds
        over = sorted(row for row, (_, _, deadline) in self.owner.items() if deadline <= self.now)
        assert self.table.expire(self.now) == over
        for row in over:
            del self.owner[row]

    @rule(consumer=CONSUMERS)
    def lose_consumer(self, consumer: int) -> None:
        held = sorted(row for row, (_, who, _) in self.owner.items() if who == consumer)
        assert self.table.release_consumer(consumer) == held
        for row in held:
            del self.owner[row]

    @rule(consumer=CONSUMERS, seconds=st.floats(0, 8))
    def renew(self, consumer: int, seconds: float) -> None:
        deadline = self.now + seconds
        self.table.renew(consumer, deadline)
        for row, (attempt, who, until) in self.owner.items():
            if who == consumer:
                self.owner[row] = (attempt, who, max(until, deadline))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        live = sorted(self._live())
        if live:
            row = data.draw(st.sampled_from(live))
            self.table.remove([row])
            self.removed.add(row)
            self.owner.pop(row, None)

    def _live(self) -> set[int]:
        return self.offered - set(self.committed) - self.removed

    def _free(self) -> set[int]:
        return {row for row in self._live() if row in self.ready and row not in self.owner}

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        assert len(self.committed) == len(set(self.committed))
        assert len(self.table) == len(self._live())
        assert self.table.ready() == self.table.total_ready == len(self._free())
        assert self.table.leased == len(self.owner)
        assert sum(self.table.held_by(c) for c in (1, 2, 3)) == len(self.owner)


TableMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTable = TableMachine.TestCase
