"""summary.json: what the coordinator knew at the end, and what only the supervisor knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rljob_core.api.report import Report
from rljob_core.api.status import RLJobStatus


def coordinator_summary(path: Path, since: float) -> dict[str, Any]:
    """The coordinator's summary.json when it was written by this run (not before `since`, unix seconds)."""
    if not path.exists() or path.stat().st_mtime < since:
        return {}
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return body


def merged(
    written: dict[str, Any],
    report: Report | None,
    status: RLJobStatus,
    *,
    started_at: float,
    ended_at: float,
    peak_pss_bytes: int,
) -> dict[str, Any]:
    """Figures of the report where the coordinator wrote none; times and memory as seen from here.

    startup_seconds: start of the command to the first sampled token; absent when none was sampled by this command.
    """
    out = _from_report(report) | written
    first = report.first_token_at if report else None
    out |= {
        "phase": str(status.phase),
        "reason": status.reason,
        "message": status.message,
        "seconds": round(ended_at - started_at, 3),
        "startup_seconds": round(first - started_at, 3) if first is not None and first >= started_at else None,
        "restarts": status.restarts.counted + status.restarts.uncounted,
        "peak_pss_bytes": peak_pss_bytes,
    }
    return {key: value for key, value in out.items() if value is not None}


def _from_report(report: Report | None) -> dict[str, Any]:
    if report is None:
        return {}
    phase_seconds: dict[str, dict[str, float]] = {}
    for spent in report.stages:
        phase_seconds.setdefault(spent.role, {})[str(spent.stage)] = spent.seconds
    return {
        "steps": report.step,
        "tokens_generated": report.tokens_generated,
        "tokens_per_second": report.tokens_per_second,
        "eval_exact_match": report.eval_exact_match,
        "eval_mean_reward": report.eval_mean_reward,
        "policy_version": report.policy_version,
        "max_version_lag": report.max_version_lag_seen,
        "logprob_gap": report.logprob_gap,
        "kv": report.kv.model_dump(),
        "queue": report.queue.model_dump(),
        "weights": report.weights.model_dump(),
        "experts": report.experts.model_dump(),
        "phase_seconds": phase_seconds,
    }
