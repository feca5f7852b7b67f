"""The observed workloads, sorted once into what the policies ask about."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rljob_core.api.report import Outcome
from rljob_core.api.spec import RLJob
from rljob_core.errors import EXIT_DRAINED
from rljob_core.lifecycle.desired import desired
from rljob_core.lifecycle.model import Memory, Observed, ObservedWorkload, Workload, WorkloadPhase
from rljob_core.names import Role

REPLACEABLE = (Role.ROLLOUT, Role.REWARD)
"""A pod of these is replaced alone."""
SILENT = "it runs, but nothing was heard of it"
GOAL_REACHED = (Outcome.STEPS_DONE, Outcome.TARGET_REACHED)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A wanted workload that existed and is no good any more. pod: as last seen; None when it vanished."""

    workload: Workload
    pod: ObservedWorkload | None
    disrupted: bool
    """Deleted, evicted, preempted or drained from outside: not counted (B26)."""


@dataclass(frozen=True, kw_only=True)
class View:
    """wanted: the gang. current: observed pod of each wanted name. stale: observed pods nobody wants."""

    wanted: tuple[Workload, ...]
    current: dict[str, ObservedWorkload]
    stale: tuple[ObservedWorkload, ...]
    lost: tuple[Loss, ...]

    def of(self, *roles: Role) -> list[ObservedWorkload]:
        """Current pods of these roles."""
        return [pod for pod in self.current.values() if pod.role in roles]

    def live(self, *roles: Role) -> bool:
        """Whether any current pod of these roles (of any role when none is given) has not ended."""
        return any(pod.live for pod in self.current.values() if not roles or pod.role in roles)

    @property
    def whole(self) -> bool:
        """Every wanted pod is ready, or did its work and left with exit code 0 (B9)."""
        return all(w.name in self.current and fit(self.current[w.name]) for w in self.wanted)


def fit(pod: ObservedWorkload) -> bool:
    """Ready, or done."""
    return not pod.deleting and (pod.phase is WorkloadPhase.SUCCEEDED or (pod.live and pod.ready))


def look(job: RLJob, observed: Observed, memory: Memory) -> View:
    """Sort what is observed by what this attempt wants. Identity is the name and, once seen, the uid."""
    wanted = desired(job, memory)
    names = {w.name for w in wanted}
    current = {pod.name: pod for pod in observed.workloads if pod.name in names}
    stale = tuple(pod for pod in observed.workloads if pod.name not in names)
    uids = {member.name: member.uid for member in memory.gang}
    silent = observed.report.silent if observed.report is not None else []
    lost = []
    for workload in wanted:
        pod = current.get(workload.name)
        if workload.name in uids and (pod is None or pod.uid != uids[workload.name]):
            lost.append(Loss(workload=workload, pod=None, disrupted=True))
        elif pod is not None and _broken(pod):
            disrupted = pod.disrupted or pod.deleting or pod.exit_code == EXIT_DRAINED
            lost.append(Loss(workload=workload, pod=pod, disrupted=disrupted))
        elif pod is not None and pod.live and pod.role in REPLACEABLE and pod.name in silent:
            lost.append(Loss(workload=workload, pod=replace(pod, reason="Silent", message=SILENT), disrupted=False))
    return View(wanted=wanted, current=current, stale=stale, lost=tuple(lost))


def _broken(pod: ObservedWorkload) -> bool:
    store_left = pod.phase is WorkloadPhase.SUCCEEDED and pod.role in (Role.STORE, Role.STORE_MASTER)
    return pod.phase is WorkloadPhase.FAILED or store_left or (pod.live and pod.deleting)
