"""Status: phase and conditions at once, progress figures at most every 10 s; no change gives the same object back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rljob_core.api.report import Report
from rljob_core.api.spec import RLJob
from rljob_core.api.status import Phase, Ready, Restarts, RLJobStatus
from rljob_core.lifecycle.conditions import conditions
from rljob_core.lifecycle.desired import replicas
from rljob_core.lifecycle.model import Memory, Observed
from rljob_core.lifecycle.phase import verdict
from rljob_core.lifecycle.remember import trusted_report
from rljob_core.lifecycle.text import rfc3339, shorten, three_digits
from rljob_core.lifecycle.view import View, fit

PROGRESS_EVERY_S = 10.0
MESSAGE_LIMIT = 1024
NOTHING_WANTED = "-"
"""READY of a job that has ended: `0/7` would look like trouble."""

PROGRESS_FIELDS = (
    "step",
    "progress",
    "policy_version",
    "reward",
    "eval_exact_match",
    "lag",
    "tokens_per_second",
    "balance",
    "last_checkpoint_step",
)


def next_status(job: RLJob, observed: Observed, view: View, memory: Memory, now: float) -> tuple[RLJobStatus, Memory]:
    """The status to show now, and memory with the time progress was last let through."""
    before = observed.status
    if before.phase.terminal:
        return _frozen(before, job.metadata.generation), memory
    fresh = _status(job, observed, view, memory, now)
    held = fresh.model_copy(update=_held(before, fresh))
    same_but_progress = held == before
    if same_but_progress and now - memory.progress_at < PROGRESS_EVERY_S:
        return before, memory
    if fresh == before:
        return before, memory
    return fresh, memory.model_copy(update={"progress_at": now})


def _status(job: RLJob, observed: Observed, view: View, memory: Memory, now: float) -> RLJobStatus:
    found = verdict(observed, view, memory)
    report = memory.final_report or trusted_report(observed, view)
    message = shorten(found.message, MESSAGE_LIMIT)
    generation = job.metadata.generation
    roles = _roles(job, view, found.phase)
    running = found.phase is Phase.RUNNING and report is not None
    return observed.status.model_copy(
        update={
            "phase": found.phase,
            "reason": report.stage.capitalize() if running and report else str(found.reason),
            "message": message,
            "observed_generation": generation,
            "conditions": conditions(found.phase, found.reason, message, generation, observed, view, memory, now),
            "mode": str(job.spec.deployment.mode),
            "pods_ready": _pods_ready(roles),
            "roles": roles,
            "restarts": Restarts(counted=memory.counted_restarts, uncounted=memory.uncounted_restarts),
            "attempt": memory.attempt,
            "first_cause": memory.first_cause,
            "resumed_step": memory.resumed_step,
            "start_time": _time(memory.start_time),
            "completion_time": _time(memory.completion_time),
            **_progress(job, observed.status, view, report),
        }
    )


def _roles(job: RLJob, view: View, phase: Phase) -> dict[str, Ready]:
    """Ready counts; after the end nothing is wanted any more."""
    if phase.terminal:
        return {}
    return {
        str(role): Ready(ready=sum(fit(pod) for pod in view.of(role)), wanted=wanted)
        for role, wanted in replicas(job).items()
    }


def _pods_ready(roles: Mapping[str, Ready]) -> str:
    if not roles:
        return NOTHING_WANTED
    return f"{sum(r.ready for r in roles.values())}/{sum(r.wanted for r in roles.values())}"


def _progress(job: RLJob, before: RLJobStatus, view: View, report: Report | None) -> dict[str, Any]:
    """Figures of the report, rounded before comparison; without a report the last ones stay."""
    total = _total_steps(job, before, view, report)
    if report is None:
        return {"total_steps": total, "progress": f"{before.step}/{total}"}
    evaluated = report.eval_exact_match
    saved = report.last_checkpoint_step
    return {
        "step": report.step,
        "total_steps": total,
        "progress": f"{report.step}/{total}",
        "policy_version": report.policy_version,
        "reward": three_digits(report.reward_mean) if report.step else before.reward,
        "eval_exact_match": three_digits(evaluated) if evaluated is not None else before.eval_exact_match,
        "lag": report.lag_oldest,
        "tokens_per_second": three_digits(report.tokens_per_second),
        "balance": three_digits(report.experts.max_over_mean) if report.experts.max_over_mean else before.balance,
        "last_checkpoint_step": saved if saved is not None else before.last_checkpoint_step,
    }


def _total_steps(job: RLJob, before: RLJobStatus, view: View, report: Report | None) -> int:
    """Those of the job as it runs: pods read their spec at their start, so an edit is not theirs (B57)."""
    if report is not None and report.total_steps:
        return report.total_steps
    return before.total_steps if before.total_steps and view.current else job.spec.algorithm.steps


def _held(before: RLJobStatus, fresh: RLJobStatus) -> dict[str, Any]:
    """Progress as it was shown last. While Running, the reason is the RL phase: progress too."""
    fields = list(PROGRESS_FIELDS)
    if before.phase is Phase.RUNNING and fresh.phase is Phase.RUNNING:
        fields.append("reason")
    return {name: getattr(before, name) for name in fields}


def _frozen(status: RLJobStatus, generation: int) -> RLJobStatus:
    """A terminal status stays as it is; only the generation it speaks about may follow (B17)."""
    if status.observed_generation == generation:
        return status
    followed = [c.model_copy(update={"observed_generation": generation}) for c in status.conditions]
    return status.model_copy(update={"observed_generation": generation, "conditions": followed})


def _time(unix_seconds: float | None) -> str | None:
    return None if unix_seconds is None else rfc3339(unix_seconds)
