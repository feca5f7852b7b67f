"""summary.json: the whole run in one object."""

from __future__ import annotations

from typing import Any

from rljob_core.api.report import Outcome, Report
from rljob_core.api.status import Phase
from rljob_core.session.summary import figures

PHASES = {
    Outcome.STEPS_DONE: Phase.SUCCEEDED,
    Outcome.TARGET_REACHED: Phase.SUCCEEDED,
    Outcome.DRAINED: Phase.PENDING,
    Outcome.INVALID_INPUT: Phase.FAILED,
    Outcome.FAILED: Phase.FAILED,
}


def summary(
    report: Report, *, started_at: float, now: float, attempt: int, tokens_here: int, sampling_since: float | None
) -> dict[str, Any]:
    """Figures as the coordinator sees them at its end, times in seconds. It knows no replaced pods: restarts are
    attempts here.

    tokens_here: generated since this process began. sampling_since: its first sampled token, unix seconds.
    """
    first = report.first_token_at
    sampled_s = now - sampling_since if sampling_since is not None else 0.0
    return figures(report) | {
        "phase": str(PHASES[report.outcome]),
        "reason": str(report.outcome),
        "message": report.outcome_message,
        "seconds": round(now - started_at, 3),
        "startup_seconds": round(first - started_at, 3) if first is not None else None,
        "tokens_per_second": round(tokens_here / sampled_s, 1) if sampled_s > 0 else 0.0,
        "restarts": attempt,
    }
