"""The pass over one job, the same on both substrates: observe, decide, remember, apply, write status, post events.

Level-triggered: it may run at any time, and twice is once. What it leans on is four small Protocols beside the
Substrate; each substrate brings its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rljob_core.api.directive import Directive
from rljob_core.api.report import Report
from rljob_core.api.spec import RLJob
from rljob_core.api.status import RLJobStatus
from rljob_core.lifecycle.decide import decide
from rljob_core.lifecycle.model import ApplyError, Event, Memory, Observed, ObservedWorkload, Plan, WorkloadPhase
from rljob_core.names import Role
from rljob_operator.substrates.base import Substrate

DELETE_GRACE_S = 10.0
"""Between asking a workload to stop and killing it, where a plan deletes it. Evictions and drains from outside leave a
pod its own grace period."""

CONCURRENT_CALLS = 16
"""Creations and deletions of one job under way at once."""

RETRY_DELETE_S = 2.0


class MemoryStore(Protocol):
    """Where Memory survives a restart of the operator."""

    async def load(self, job: RLJob) -> Memory:
        """What was saved last; a blank Memory when there is nothing."""
        ...

    async def save(self, job: RLJob, memory: Memory) -> None:
        """Durable when it returns."""
        ...


class StatusWriter(Protocol):
    async def write(self, job: RLJob, status: RLJobStatus) -> None: ...


class EventPoster(Protocol):
    async def post(self, job: RLJob, event: Event) -> None: ...


class Links(Protocol):
    """Connections to coordinators, kept by tasks of their own; nothing here waits for the network."""

    def attend(self, job: RLJob, attempt: int, url: str | None) -> None:
        """Talk to this attempt's coordinator from now on; None: to nobody. Reports of another one are dropped."""
        ...

    def latest(self, job: RLJob) -> tuple[Report | None, str]:
        """Latest report and the last error."""
        ...

    def direct(self, job: RLJob, directive: Directive) -> None:
        """Have the directive put."""
        ...


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the caller knows of a job beside its workloads; meanings as in Observed."""

    created_at: float
    durable_checkpoints: bool = False
    invalid_input: str = ""
    drain_requested: bool = False
    units: str = "pods"


class Reconciler:
    """Runs passes. It remembers, per job, the memory it last saved and what the last apply was refused.

    clock: unix seconds.
    """

    def __init__(
        self,
        *,
        substrate: Substrate,
        memories: MemoryStore,
        statuses: StatusWriter,
        events: EventPoster,
        links: Links,
        clock: Callable[[], float],
    ) -> None:
        self._substrate, self._memories, self._statuses = substrate, memories, statuses
        self._events, self._links, self._clock = events, links, clock
        self._memory: dict[str, Memory] = {}
        self._errors: dict[str, tuple[ApplyError, ...]] = {}

    async def reconcile(self, job: RLJob, status: RLJobStatus, circumstances: Circumstances) -> Plan:
        """One pass. Returns the plan it acted on, its `requeue_after` shortened when an action was refused.

        One pass a job at a time: the caller sees to it. Raises what the API or the machine raised, after status was
        written.
        """
        uid = job.metadata.uid
        before = self._memory.get(uid)
        if before is None:
            before = await self._memories.load(job)
        workloads = await self._substrate.observe(job)
        report, report_error = self._links.latest(job)
        self._attend(job, before, workloads)
        observed = Observed(
            workloads=workloads,
            report=report,
            report_error=report_error,
            errors=self._errors.pop(uid, ()),
            status=status,
            drain_requested=circumstances.drain_requested,
            durable_checkpoints=circumstances.durable_checkpoints,
            invalid_input=circumstances.invalid_input,
            created_at=circumstances.created_at,
            units=circumstances.units,
        )
        plan = decide(job, observed, before, self._clock())
        if plan.memory.durable() != before.durable():
            await self._memories.save(job, plan.memory)
        self._memory[uid] = plan.memory
        if plan.directive is not None:
            self._links.direct(job, plan.directive)
        errors, raised = await self._apply(job, plan)
        self._errors[uid] = errors
        if plan.status != status:
            await self._statuses.write(job, plan.status)
        for event in plan.events:
            await self._events.post(job, event)
        if raised:
            raise raised[0]
        return _requeued(plan, errors)

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._memory.pop(uid, None)
        self._errors.pop(uid, None)

    def _attend(self, job: RLJob, memory: Memory, workloads: Iterable[ObservedWorkload]) -> None:
        """Listen to the coordinator of the remembered attempt while it runs; to an older one never."""
        ours = (w for w in workloads if w.role is Role.COORDINATOR and w.attempt == memory.attempt)
        running = any(w.phase is WorkloadPhase.RUNNING for w in ours)
        self._links.attend(job, memory.attempt, self._substrate.coordinator_url(job) if running else None)

    async def _apply(self, job: RLJob, plan: Plan) -> tuple[tuple[ApplyError, ...], list[BaseException]]:
        """Delete, then prepare and create; what was refused, and what was raised."""
        errors, raised = await _bounded(self._substrate.delete(job, name, DELETE_GRACE_S) for name in plan.delete)
        if not plan.create:
            return tuple(errors), raised
        refused = await self._substrate.prepare(job)
        if refused:
            return (*errors, *refused), raised
        more, more_raised = await _bounded(self._substrate.create(job, workload) for workload in plan.create)
        return (*errors, *more), raised + more_raised


async def _bounded(
    calls: Iterable[Coroutine[Any, Any, ApplyError | None]],
) -> tuple[list[ApplyError], list[BaseException]]:
    """Run the calls in order, a bounded number at once; all of them, whatever some do."""
    turn = asyncio.Semaphore(CONCURRENT_CALLS)

    async def one(call: Coroutine[Any, Any, ApplyError | None]) -> ApplyError | None:
        async with turn:
            return await call

    results = await asyncio.gather(*(one(call) for call in calls), return_exceptions=True)
    errors = [result for result in results if isinstance(result, ApplyError)]
    return errors, [result for result in results if isinstance(result, BaseException)]


def _requeued(plan: Plan, errors: tuple[ApplyError, ...]) -> Plan:
    """Look again at once when a creation was refused (to say so), soon when a deletion was."""
    if not errors:
        return plan
    soon = RETRY_DELETE_S if all(error.action == "delete" for error in errors) else 0.0
    waits = [soon] if plan.requeue_after is None else [soon, plan.requeue_after]
    return replace(plan, requeue_after=min(waits))
