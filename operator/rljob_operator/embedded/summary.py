"""summary.json: what the coordinator knew at the end, and what only the supervisor knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rljob_core.api.report import Report
from rljob_core.api.status import RLJobStatus
from rljob_core.session.summary import figures


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
    created_at: float,
    started_at: float,
    ended_at: float,
    peak_pss_bytes: int,
) -> dict[str, Any]:
    """Figures of the report where the coordinator wrote none; times (unix seconds) and memory as seen from here.

    created_at: of the job, by the first command of the run. started_at, ended_at: of this command.
    """
    out = (figures(report) if report else {}) | written
    first = report.first_token_at if report else None
    out |= {
        "phase": str(status.phase),
        "reason": status.reason,
        "message": status.message,
        "seconds": round(ended_at - started_at, 3),
        "startup_seconds": round(first - created_at, 3) if first is not None else None,
        "restarts": status.restarts.counted + status.restarts.uncounted,
        "peak_pss_bytes": peak_pss_bytes,
    }
    return {key: value for key, value in out.items() if value is not None}
