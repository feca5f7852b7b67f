"""summary.json: the whole run in one object."""

from __future__ import annotations

from typing import Any

from rljob_core.api.report import Outcome, Report
from rljob_core.api.status import Phase

PHASES = {
    Outcome.STEPS_DONE: Phase.SUCCEEDED,
    Outcome.TARGET_REACHED: Phase.SUCCEEDED,
    Outcome.INVALID_INPUT: Phase.FAILED,
    Outcome.FAILED: Phase.FAILED,
}


def summary(report: Report, *, started_at: float, now: float, attempt: int, tokens_here: int) -> dict[str, Any]:
    """Figures as the coordinator sees them. tokens_here: generated since this process began; times in seconds."""
    first = report.first_token_at
    phase_seconds: dict[str, dict[str, float]] = {}
    for spent in report.stages:
        phase_seconds.setdefault(spent.role, {})[str(spent.stage)] = spent.seconds
    sampled_s = now - first if first is not None else 0.0
    return {
        "phase": str(PHASES.get(report.outcome, Phase.RUNNING)),
        "reason": str(report.outcome),
        "message": report.outcome_message,
        "steps": report.step,
        "seconds": round(now - started_at, 3),
        "startup_seconds": round(first - started_at, 3) if first is not None else None,
        "tokens_generated": report.tokens_generated,
        "tokens_per_second": round(tokens_here / sampled_s, 1) if sampled_s > 0 else 0.0,
        "eval_exact_match": report.eval_exact_match,
        "eval_mean_reward": report.eval_mean_reward,
        "reward_mean": report.reward_mean,
        "policy_version": report.policy_version,
        "max_version_lag": report.max_version_lag_seen,
        "logprob_gap": report.logprob_gap,
        "kv": report.kv.model_dump(),
        "queue": report.queue.model_dump(),
        "weights": report.weights.model_dump(),
        "experts": report.experts.model_dump(),
        "restarts": attempt,
        "phase_seconds": phase_seconds,
        "dropped_prompts": report.dropped_prompts,
        "reward_timeouts": report.reward_timeouts,
        "last_checkpoint_step": report.last_checkpoint_step,
    }
