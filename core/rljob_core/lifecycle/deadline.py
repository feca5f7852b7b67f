"""Deadline policy: `lifecycle.activeDeadlineSeconds`, counted from the creation of the RLJob, or its last new try."""

from __future__ import annotations

from rljob_core.api.spec import RLJob
from rljob_core.api.status import Phase, Reason
from rljob_core.lifecycle.model import Ending, Memory, Observed


def seconds_left(job: RLJob, observed: Observed, memory: Memory, now: float) -> float | None:
    """Until the deadline; None without one."""
    limit = job.spec.lifecycle.active_deadline_seconds
    since = observed.created_at if memory.deadline_from is None else memory.deadline_from
    return None if limit is None else since + limit - now


def overdue(job: RLJob, observed: Observed, memory: Memory, now: float) -> Ending | None:
    """Failed once the deadline has passed."""
    left = seconds_left(job, observed, memory, now)
    if left is None or left > 0:
        return None
    since = "creation" if memory.deadline_from is None else "the new try"
    message = (
        f"not done {job.spec.lifecycle.active_deadline_seconds} s after {since} "
        "(spec.lifecycle.activeDeadlineSeconds); raise it or train fewer steps"
    )
    return Ending(phase=Phase.FAILED, reason=Reason.DEADLINE_EXCEEDED, message=message)
