"""The observed workloads, sorted once into what the policies ask about."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rljob_core.api.report import Outcome, Report
from rljob_core.api.spec import RLJob
from rljob_core.errors import EXIT_DRAINED
from rljob_core.lifecycle import startup
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


def look(job: RLJob, observed: Observed, memory: Memory, now: float) -> View:
    """Sort what is observed by what this attempt wants. Identity is the name and, once seen, the uid."""
    wanted = desired(job, memory)
    names = {w.name for w in wanted}
    current = {pod.name: pod for pod in observed.workloads if pod.name in names}
    stale = tuple(pod for pod in observed.workloads if pod.name not in names)
    uids = {member.name: member.uid for member in memory.gang}
    lost = (_lost(job, w, current.get(w.name), uids.get(w.name), observed.report, now) for w in wanted)
    return View(wanted=wanted, current=current, stale=stale, lost=tuple(loss for loss in lost if loss))


def _lost(
    job: RLJob, workload: Workload, pod: ObservedWorkload | None, uid: str | None, report: Report | None, now: float
) -> Loss | None:
    """uid: of the pod this attempt was seen to have; None before."""
    if uid is not None and (pod is None or pod.uid != uid):
        return Loss(workload=workload, pod=None, disrupted=True)
    if pod is None:
        return None
    if _broken(pod):
        disrupted = pod.disrupted or pod.deleting or pod.exit_code == EXIT_DRAINED
        return Loss(workload=workload, pod=pod, disrupted=disrupted)
    if pod.live and pod.role in REPLACEABLE and report is not None and pod.name in report.silent:
        return Loss(workload=workload, pod=replace(pod, reason="Silent", message=SILENT), disrupted=False)
    left = startup.seconds_left(job, workload, pod, report, now)
    if left is not None and left <= 0:
        hung = replace(pod, reason="NotRegistered", message=startup.message(job))
        return Loss(workload=workload, pod=hung, disrupted=False)
    return None


def _broken(pod: ObservedWorkload) -> bool:
    store_left = pod.phase is WorkloadPhase.SUCCEEDED and pod.role in (Role.STORE, Role.STORE_MASTER)
    return pod.phase is WorkloadPhase.FAILED or store_left or (pod.live and pod.deleting)
