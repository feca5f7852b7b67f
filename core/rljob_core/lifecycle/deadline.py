"""Deadline policy: `lifecycle.activeDeadlineSeconds`, counted from the creation of the RLJob."""

from __future__ import annotations

from rljob_core.api.spec import RLJob
from rljob_core.api.status import Phase, Reason
from rljob_core.lifecycle.model import Ending, Observed


def seconds_left(job: RLJob, observed: Observed, now: float) -> float | None:
    """Until the deadline; None without one."""
    limit = job.spec.lifecycle.active_deadline_seconds
    return None if limit is None else observed.created_at + limit - now


def overdue(job: RLJob, observed: Observed, now: float) -> Ending | None:
    """Failed once the deadline has passed."""
    left = seconds_left(job, observed, now)
    if left is None or left > 0:
        return None
    message = (
        f"not done {job.spec.lifecycle.active_deadline_seconds} s after creation "
        "(spec.lifecycle.activeDeadlineSeconds); raise it or train fewer steps"
    )
    return Ending(phase=Phase.FAILED, reason=Reason.DEADLINE_EXCEEDED, message=message)
