"""What a run directory holds, read for the report. A line that is no JSON (its writer was killed) is left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_core.run_files import earlier

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Span:
    """One stage of one process. start, end: unix seconds."""

    process: str
    role: str
    stage: str
    start: float
    end: float
    step: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """name: of the job. steps and evaluations: lines of metrics.jsonl, one a step, the newest where one was redone."""

    name: str
    summary: Row
    steps: tuple[Row, ...]
    evaluations: tuple[Row, ...]
    samples: tuple[Row, ...]
    spans: tuple[Span, ...]
    max_version_lag: int | None


def read_run(folder: Path) -> Run:
    """Everything there is; what is missing is empty."""
    metrics = _lines(folder / "metrics.jsonl")
    job = _document(folder / "job.json")
    return Run(
        name=job.get("metadata", {}).get("name", folder.name),
        summary=_document(folder / "summary.json"),
        steps=_newest([row for row in metrics if "reward_mean" in row]),
        evaluations=_newest([row for row in metrics if "eval_exact_match" in row]),
        samples=tuple(_both(folder / "samples.jsonl")),
        spans=tuple(_span(row) for row in _both(folder / "timeline.jsonl")),
        max_version_lag=job.get("spec", {}).get("staleSync", {}).get("maxVersionLag"),
    )


def _newest(rows: Sequence[Row]) -> tuple[Row, ...]:
    """After a resume steps are done again: the later line of a step holds, and steps beyond it are void."""
    kept: list[Row] = []
    for row in rows:
        while kept and kept[-1]["step"] >= row["step"]:
            kept.pop()
        kept.append(row)
    return tuple(kept)


def _span(row: Row) -> Span:
    role = str(row.get("role", ""))
    process = str(row.get("process") or f"{role} {row.get('rank', 0)}")
    return Span(
        process=process,
        role=role,
        stage=str(row["stage"]),
        start=float(row["start"]),
        end=float(row["end"]),
        step=int(row.get("step", -1)),
    )


def _both(path: Path) -> list[Row]:
    """Lines of a file that is cut, those before the newest cut first."""
    return _lines(path.with_name(earlier(path.name))) + _lines(path)


def _lines(path: Path) -> list[Row]:
    if not path.exists():
        return []
    out = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:
            continue
    return out


def _document(path: Path) -> Row:
    if not path.exists():
        return {}
    body: Row = json.loads(path.read_text(encoding="utf-8"))
    return body
