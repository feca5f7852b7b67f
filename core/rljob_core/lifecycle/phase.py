"""Phase policy: one word, one reason, one sentence with numbers, from what is there now."""

from __future__ import annotations

from dataclasses import dataclass

from rljob_core.api.report import Outcome
from rljob_core.api.status import Phase, Reason
from rljob_core.lifecycle import causes, drain
from rljob_core.lifecycle.model import Memory, Observed
from rljob_core.lifecycle.remember import trusted_report
from rljob_core.lifecycle.view import View, fit
from rljob_core.names import Role


@dataclass(frozen=True, kw_only=True)
class Verdict:
    phase: Phase
    reason: Reason
    message: str


def verdict(observed: Observed, view: View, memory: Memory) -> Verdict:
    """Running only with the whole gang ready and a Report received (B9); level-triggered: no memory of events (B10)."""
    if memory.ending is not None:
        return Verdict(phase=memory.ending.phase, reason=memory.ending.reason, message=memory.ending.message)
    if observed.drain_requested:
        return _draining(observed, view, memory)
    if view.whole:
        if memory.final_report is not None or trusted_report(observed, view) is not None:
            return Verdict(
                phase=Phase.RUNNING, reason=Reason.TRAINING, message=f"{len(view.wanted)} {observed.units} ready"
            )
        why = f": {observed.report_error}" if observed.report_error else ""
        message = f"{len(view.wanted)} {observed.units} ready, waiting for the coordinator's first report{why}"
        return _starting(memory, Reason.WAITING_FOR_REPORT, message)
    trouble = memory.create_trouble
    if trouble is not None:
        message = f"{trouble.name}: {trouble.message} (try {trouble.tries})"
        if view.current:
            return _starting(memory, trouble.reason, message)
        return Verdict(phase=Phase.PENDING, reason=trouble.reason, message=message)
    ready = sum(w.name in view.current and fit(view.current[w.name]) for w in view.wanted)
    message = f"{ready} of {len(view.wanted)} {observed.units} ready{_obstacle(view)}"
    return _starting(memory, Reason.WAITING_FOR_PODS, message)


def _draining(observed: Observed, view: View, memory: Memory) -> Verdict:
    """Pending from the moment draining begins: it shall not run."""
    report = memory.final_report or trusted_report(observed, view)
    step = report.last_checkpoint_step if report else observed.status.last_checkpoint_step
    saved = "no checkpoint yet" if step is None else f"checkpoint of step {step}"
    if drain.drained(observed, view):
        return Verdict(phase=Phase.PENDING, reason=Reason.DRAINED, message=saved)
    if report is not None and report.outcome is Outcome.NONE and view.live(Role.COORDINATOR):
        last = "none" if step is None else f"step {step}"
        message = f"finishing the step under way, then a checkpoint (last: {last})"
    else:
        live = sum(pod.live for pod in observed.workloads)
        message = f"{observed.units} still stopping: {live}; {saved}"
    return Verdict(phase=Phase.PENDING, reason=Reason.DRAINING, message=message)


def _starting(memory: Memory, reason: Reason, message: str) -> Verdict:
    """Provisioning the first time; Restarting, with the first cause, after a loss (B30)."""
    if not memory.attempt and not memory.replacements:
        return Verdict(phase=Phase.PROVISIONING, reason=reason, message=message)
    if memory.first_cause is None:
        return Verdict(phase=Phase.RESTARTING, reason=Reason.RESTARTING_FROM_CHECKPOINT, message=message)
    why = Reason.RESTARTING_FROM_CHECKPOINT if memory.attempt else Reason.WORKER_FAILED
    cause = causes.sentence(memory.first_cause)
    return Verdict(phase=Phase.RESTARTING, reason=why, message=f"{message}; {cause}")


def _obstacle(view: View) -> str:
    """What the first pod that is not fit says about itself."""
    for workload in view.wanted:
        pod = view.current.get(workload.name)
        if pod is not None and not fit(pod) and (pod.reason or pod.message):
            return f"; {pod.name}: {pod.reason}{' ' if pod.reason and pod.message else ''}{pod.message}"
    return ""
