"""The loop of a rollout rank: ask for work, pull weights, prefill, decode, commit; until told to stop.

Rank 0 of a group asks and commits; every order is shared with the other ranks, which hold their part of the prompts
and samples. Decoding is continuous: while sequences are in flight the group asks for more without waiting, as soon as
it has room.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from rljob_core.api.directive import StageName
from rljob_core.api.messages import (
    Ack,
    Committed,
    CompletePrefill,
    Pulled,
    RolloutWork,
    TakeRollout,
    WorkKind,
)
from rljob_core.api.spec import RLJobSpec
from rljob_core.errors import WeightMismatchError
from rljob_workers.link import CoordinatorLink
from rljob_workers.rollout.group import Group, part, spread
from rljob_workers.rollout.rank import RolloutRank
from rljob_workers.rollout.stages import Stages
from rljob_workers.rollout.tickets import Tickets, packed
from rljob_workers.seams import KVStore, TransferStats

LONG_POLL_S = 5.0
POLL_EVERY_S = 0.01
"""Between two questions for more work while sequences are in flight."""
COMMIT_ROWS, COMMIT_AFTER_S = 64, 0.05
"""Finished samples are committed when so many, or so old, or when nothing is in flight."""
PULL_PATIENCE_S, PULL_PAUSE_S = 60.0, 0.2

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """sequences_per_rank: decoded at once on each rank. deterministic: work comes only when nothing is in flight."""

    sequences_per_rank: int
    deterministic: bool

    @classmethod
    def of(cls, spec: RLJobSpec) -> LoopSettings:
        rollout = spec.rollout
        ranks = rollout.layout.dp * rollout.layout.tp
        return cls(sequences_per_rank=-(-rollout.max_sequences // ranks), deterministic=spec.algorithm.deterministic)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the group does now: each rank's part of the work and the handles of its samples, then maybe a step."""

    kind: WorkKind
    version: int = -1
    parts: tuple[RolloutWork, ...] = ()
    handles: tuple[list[int], ...] = ()
    step: bool = False


@dataclass
class RolloutLoop:
    """version: what the group's weights prove; -1 when they prove nothing."""

    link: CoordinatorLink
    group: Group
    store: KVStore
    rank: RolloutRank
    settings: LoopSettings
    clock: Callable[[], float] = time.time
    version: int = -1
    first_token_at: float | None = None
    pull_failing_since: float | None = None
    asked_at: float = 0.0
    first_done_at: float = 0.0
    kv_hits: int = 0
    kv_misses: int = 0
    tickets: Tickets = field(init=False)
    stages: Stages = field(init=False)

    def __post_init__(self) -> None:
        self.tickets = Tickets(self.group.size)
        self.stages = Stages(self.link)

    def run(self) -> None:
        """Until STOP. CoordinatorGoneError after the link's patience; WeightMismatchError when pulls keep failing."""
        with closing(self.stages):
            while True:
                order = self.group.share(self.next_order() if self.group.leads else None)
                match order.kind:
                    case WorkKind.STOP:
                        return
                    case WorkKind.PULL:
                        self.pull(order)
                    case WorkKind.PREFILL:
                        self.prefill(order)
                    case WorkKind.DECODE:
                        self.rank.admit(order.parts[self.group.rank], order.handles[self.group.rank])
                    case WorkKind.WAIT:
                        pass
                if order.step:
                    self.step()

    # Rank 0: from the coordinator's answer to an order.

    def next_order(self) -> Order:
        work = self.ask()
        held = self.tickets.held()
        if work.kind is WorkKind.PREFILL:
            indices = spread(len(work.rows), [0] * self.group.size)
            return Order(
                kind=work.kind, parts=tuple(part(work, i) for i in indices), step=any(held), version=work.version
            )
        if work.kind is WorkKind.DECODE:
            parts = tuple(part(work, i) for i in spread(len(work.rows), held))
            handles = tuple(self.tickets.add(p, rank) for rank, p in enumerate(parts))
            self.stages.enter(StageName.DECODE, work.first_step)
            return Order(kind=work.kind, parts=parts, handles=handles, step=True, version=work.version)
        return Order(kind=work.kind, version=work.version, step=any(held))

    def ask(self) -> RolloutWork:
        """The coordinator's next work: at once while sequences are in flight, with patience when none is."""
        in_flight = len(self.tickets.in_flight)
        room = self.settings.sequences_per_rank * self.group.size - in_flight
        now = self.clock()
        if in_flight and (self.settings.deterministic or not room or now - self.asked_at < POLL_EVERY_S):
            return RolloutWork(kind=WorkKind.WAIT)
        if not in_flight:
            self.stages.enter(StageName.IDLE)
        take = TakeRollout(
            version=self.version,
            free_sequences=room,
            in_flight=in_flight,
            wait_s=0.0 if in_flight else LONG_POLL_S,
        )
        work = self.link.call(take, RolloutWork)
        self.asked_at = self.clock()
        return work

    # All ranks: carrying it out.

    def pull(self, order: Order) -> None:
        self.stages.enter(StageName.SYNC)
        outcome = self.rank.pull(order.version)
        outcomes = self.group.gather(outcome)
        self.version = order.version if isinstance(outcome, TransferStats) else -1
        if not self.group.leads:
            return
        failed = [o for o in outcomes if isinstance(o, str)]
        if failed:
            self.version = -1
            self.pull_failed(failed[0])
            return
        self.pull_failing_since = None
        stats = [o for o in outcomes if isinstance(o, TransferStats)]
        size, seconds = sum(s.bytes for s in stats), max(s.seconds for s in stats)
        self.link.call(Pulled(version=order.version, bytes=size, seconds=seconds), Ack)

    def pull_failed(self, why: str) -> None:
        """Ask again (there may be a newer version by now), for a bounded time."""
        now = self.clock()
        since = self.pull_failing_since = self.pull_failing_since or now
        if now - since > PULL_PATIENCE_S:
            raise WeightMismatchError(f"no version could be pulled for {now - since:.0f} s; last: {why}")
        log.warning("pull failed, asking again: %s", why)
        time.sleep(PULL_PAUSE_S)

    def prefill(self, order: Order) -> None:
        self.stages.enter(StageName.PREFILL)
        stored = self.group.gather(self.rank.prefill(order.parts[self.group.rank]))
        if not self.group.leads:
            return
        keys = [entry for rank in stored for entry in rank]
        done = CompletePrefill(
            version=order.version,
            rows=[row for p in order.parts for row in p.rows],
            attempts=[attempt for p in order.parts for attempt in p.attempts],
            kv_keys=[key for key, _ in keys],
            kv_bytes=[size for _, size in keys],
        )
        self.link.call(done, Ack)

    def step(self) -> None:
        self.stages.enter(StageName.DECODE)
        outcomes = self.group.gather(self.rank.step())
        if not self.group.leads:
            return
        now = self.clock()
        self.first_token_at = self.first_token_at or now
        if not self.tickets.done:
            self.first_done_at = now
        for outcome in outcomes:
            self.tickets.finish(outcome.finished)
            self.kv_hits += outcome.kv_hits
            self.kv_misses += outcome.kv_misses
        waiting = len(self.tickets.done)
        old = now - self.first_done_at > COMMIT_AFTER_S
        if waiting and (waiting >= COMMIT_ROWS or old or not self.tickets.in_flight):
            self.commit()

    def commit(self) -> None:
        """Pack what is finished and hand it over; a refused sample (its lease ran out) is somebody else's by now, and
        the coordinator removes a pack without any accepted one."""
        for samples in self.tickets.take_done().values():
            payload, message = packed(samples)
            self.store.put({message.pack_key: payload})
            counts = {
                "kv_hits": self.kv_hits,
                "kv_misses": self.kv_misses,
                "first_token_at": self.first_token_at,
            }
            self.kv_hits = self.kv_misses = 0
            committed = self.link.call(message.model_copy(update=counts), Committed)
            refused = committed.accepted.count(False)
            if refused:
                log.warning("%d of %d samples came too late and were refused", refused, len(samples))
