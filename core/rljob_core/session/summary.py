"""What summary.json takes from a report: the same keys, whoever writes the file."""

from __future__ import annotations

from typing import Any

from rljob_core.api.report import Report


def figures(report: Report) -> dict[str, Any]:
    """Figures of the whole run so far; None where there is none yet."""
    phase_seconds: dict[str, dict[str, float]] = {}
    for spent in report.stages:
        phase_seconds.setdefault(spent.role, {})[str(spent.stage)] = spent.seconds
    return {
        "steps": report.step,
        "tokens_generated": report.tokens_generated,
        "tokens_per_second": report.tokens_per_second,
        "eval_exact_match": report.eval_exact_match,
        "eval_mean_reward": report.eval_mean_reward,
        "eval_step": report.eval_step,
        "reward_mean": report.reward_mean,
        "policy_version": report.policy_version,
        "max_version_lag": report.max_version_lag_seen,
        "logprob_gap": report.logprob_gap,
        "kv": report.kv.model_dump(),
        "queue": report.queue.model_dump(),
        "weights": report.weights.model_dump(),
        "experts": report.experts.model_dump(),
        "phase_seconds": phase_seconds,
        "dropped_prompts": report.dropped_prompts,
        "reward_timeouts": report.reward_timeouts,
        "last_checkpoint_step": report.last_checkpoint_step,
    }
