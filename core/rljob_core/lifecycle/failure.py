"""Failure policy: a lost rollout or reward pod is replaced, anything else restarts the gang from the last checkpoint.

Both count against `lifecycle.backoffLimit` unless the loss was a disruption (B2, B20, B26). One incident counts once:
what is lost is no longer wanted under its name afterwards. The back-off grows with the tries that brought no new step.
"""

from __future__ import annotations

from rljob_core.api.spec import RLJob
from rljob_core.api.status import Phase, Reason
from rljob_core.lifecycle import backoff, causes
from rljob_core.lifecycle.desired import desired, slot
from rljob_core.lifecycle.model import Ending, Memory, Workload
from rljob_core.lifecycle.view import REPLACEABLE, Loss, View
from rljob_core.names import Role
from rljob_core.worker_env import rollout_group


def react(job: RLJob, view: View, memory: Memory, now: float) -> Memory:
    """Memory after the losses of this pass: a new attempt, replacements, or the end of the job's patience."""
    if not view.lost:
        return memory
    found = causes.first(view.lost)
    fatal = [loss for loss in view.lost if loss.workload.role not in REPLACEABLE]
    incidents = [list(view.lost)] if fatal else _by_unit(job, view.lost)
    counted = sum(not causes.first(incident).disrupted for incident in incidents)
    memory = memory.model_copy(update={"first_cause": causes.cause(found, now)})
    limit = job.spec.lifecycle.backoff_limit
    if memory.counted_restarts + counted > limit:
        return memory.model_copy(update={"ending": _exhausted(memory, limit)})
    memory = memory.model_copy(
        update={
            "counted_restarts": memory.counted_restarts + counted,
            "uncounted_restarts": memory.uncounted_restarts + len(incidents) - counted,
            "tries": memory.tries + 1,
        }
    )
    not_before = now + backoff.delay(memory.tries)
    return restart(memory, not_before) if fatal else _replace(job, view.lost, memory, not_before)


def restart(memory: Memory, not_before: float) -> Memory:
    """The next attempt: nothing of the old gang is remembered but counters and the first cause."""
    return memory.model_copy(
        update={
            "attempt": memory.attempt + 1,
            "restart_not_before": not_before,
            "gang": [],
            "resumed_step": None,
            "final_report": None,
            "done_since": None,
            "last_directive": None,
        }
    )


def _unit(job: RLJob, workload: Workload) -> tuple[Role, int]:
    """What is replaced together: the ranks of a rollout group share collectives."""
    in_group = workload.role is Role.ROLLOUT
    return (workload.role, rollout_group(job, workload.index) if in_group else workload.index)


def _by_unit(job: RLJob, lost: tuple[Loss, ...]) -> list[list[Loss]]:
    units: dict[tuple[Role, int], list[Loss]] = {}
    for loss in lost:
        units.setdefault(_unit(job, loss.workload), []).append(loss)
    return list(units.values())


def _replace(job: RLJob, lost: tuple[Loss, ...], memory: Memory, not_before: float) -> Memory:
    broken = {_unit(job, loss.workload) for loss in lost}
    gone = [w for w in desired(job, memory) if _unit(job, w) in broken]
    names = {w.name for w in gone}
    return memory.model_copy(
        update={
            "replacements": memory.replacements | {slot(w.role, w.index): w.replacement + 1 for w in gone},
            "replace_not_before": not_before,
            "gang": [member for member in memory.gang if member.name not in names],
        }
    )


def _exhausted(memory: Memory, limit: int) -> Ending:
    cause = causes.sentence(memory.first_cause) if memory.first_cause else ""
    message = f"{memory.counted_restarts} restarts used, spec.lifecycle.backoffLimit is {limit}; {cause}"
    return Ending(phase=Phase.FAILED, reason=Reason.BACKOFF_LIMIT_EXCEEDED, message=message)
