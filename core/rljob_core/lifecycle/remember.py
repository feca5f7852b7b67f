"""What a pass adds to memory before any policy looks at it: counters kept, the gang seen, the coordinator's account."""

from __future__ import annotations

from rljob_core.api.report import Outcome, Report
from rljob_core.api.status import Phase, Reason, RLJobStatus
from rljob_core.lifecycle.model import Ending, GangMember, Memory, Observed
from rljob_core.lifecycle.text import unix_seconds
from rljob_core.lifecycle.view import GOAL_REACHED, View
from rljob_core.names import Role


def recover(memory: Memory, status: RLJobStatus) -> Memory:
    """Counters, start and terminal verdict survive the loss of the memory document (B17): status holds them too."""
    ending = memory.ending
    if ending is None and status.phase.terminal:
        ending = Ending(phase=status.phase, reason=_reason(status), message=status.message)
    return memory.model_copy(
        update={
            "attempt": max(memory.attempt, status.attempt),
            "counted_restarts": max(memory.counted_restarts, status.restarts.counted),
            "uncounted_restarts": max(memory.uncounted_restarts, status.restarts.uncounted),
            "furthest_step": max(memory.furthest_step, status.step),
            "first_cause": memory.first_cause or status.first_cause,
            "start_time": memory.start_time if memory.start_time is not None else unix_seconds(status.start_time),
            "ending": ending,
        }
    )


def _reason(status: RLJobStatus) -> Reason:
    fallback = Reason.STEPS_DONE if status.phase is Phase.SUCCEEDED else Reason.WORKER_FAILED
    return next((reason for reason in Reason if reason == status.reason), fallback)


def trusted_report(observed: Observed, view: View) -> Report | None:
    """The report, while the coordinator it came from is still to be seen."""
    return observed.report if view.of(Role.COORDINATOR) else None


def account(observed: Observed, view: View, memory: Memory) -> Report | None:
    """The coordinator's account of the end: from its last words, a last report, or remembered (B1)."""
    for pod in view.of(Role.COORDINATOR):
        if pod.last_words and pod.last_words.report:
            return pod.last_words.report
    report = trusted_report(observed, view)
    if report and report.outcome is not Outcome.NONE:
        return report
    return memory.final_report


def remember(observed: Observed, view: View, memory: Memory, now: float) -> Memory:
    """Memory with everything this observation teaches."""
    known = {member.name: member for member in memory.gang}
    for workload in view.wanted:
        pod = view.current.get(workload.name)
        if pod is not None and workload.name not in known:
            known[workload.name] = GangMember(name=pod.name, uid=pod.uid)
    final = account(observed, view, memory)
    told = trusted_report(observed, view) or final
    done = final is not None and final.outcome in GOAL_REACHED
    return memory.model_copy(
        update={
            "gang": list(known.values()),
            "resumed_step": told.resumed_step if told else memory.resumed_step,
            "final_report": final,
            **_progress(memory, told),
            "done_since": (memory.done_since or now) if done else None,
            "drain_since": (memory.drain_since or now) if observed.drain_requested else None,
            "start_time": memory.start_time if memory.start_time is not None else now,
        }
    )


def _progress(memory: Memory, report: Report | None) -> dict[str, int]:
    """A step nobody had done before: what is lost from now on is a first try again."""
    if report is None or report.step <= memory.furthest_step:
        return {}
    return {"furthest_step": report.step, "tries": 0}
