"""Success policy: the goal is reached. Ground truth is what coordinator and trainers say and how they ended."""

from __future__ import annotations

from rljob_core.api.report import Outcome
from rljob_core.api.spec import RLJob
from rljob_core.api.status import Phase, Reason
from rljob_core.lifecycle.model import Ending, Memory, WorkloadPhase
from rljob_core.lifecycle.view import GOAL_REACHED, View
from rljob_core.names import Role

FINISH_GRACE_S = 60.0
"""How long coordinator and trainers may take to end once the goal is reached."""


def completed(job: RLJob, view: View, memory: Memory, now: float) -> Ending | None:
    """Succeeded when nothing of coordinator and trainers runs any more and either the coordinator said that the goal is
    reached, or it said nothing and all trainers ended with exit code 0 (B1); or when it said so and the grace is over.
    """
    said_so = memory.final_report is not None and memory.final_report.outcome in GOAL_REACHED
    silent = memory.final_report is None
    trainers = view.of(Role.TRAINER)
    all_zero = len(trainers) == job.spec.trainer.replicas and all(t.phase is WorkloadPhase.SUCCEEDED for t in trainers)
    ended = not view.live(Role.COORDINATOR, Role.TRAINER)
    overdue = memory.done_since is not None and now - memory.done_since >= FINISH_GRACE_S
    if (ended and (said_so or (silent and all_zero))) or (said_so and overdue):
        return Ending(phase=Phase.SUCCEEDED, reason=_reason(memory), message=_message(memory))
    return None


def finishing(memory: Memory) -> bool:
    """The goal is reached; what ends now is no failure."""
    return memory.done_since is not None


def _reason(memory: Memory) -> Reason:
    report = memory.final_report
    target = report is not None and report.outcome is Outcome.TARGET_REACHED
    return Reason.TARGET_REACHED if target else Reason.STEPS_DONE


def _message(memory: Memory) -> str:
    report = memory.final_report
    if report is None:
        return "all trainers ended with exit code 0"
    return report.outcome_message or f"{report.step} of {report.total_steps} steps done"
