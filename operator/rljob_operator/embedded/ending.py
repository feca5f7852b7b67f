"""The last lines of `rljob run`: what came out, where it lies, and on failure what the first cause said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rljob_core.api.status import Phase
from rljob_core.lifecycle import causes
from rljob_core.lifecycle.text import three_digits
from rljob_operator.embedded.rundir import RunDirectory
from rljob_operator.embedded.supervisor import Result

LOG_LINES = 20


def lines(run: RunDirectory, result: Result, figures: dict[str, Any]) -> list[str]:
    """A short account for the console."""
    status = result.status
    head = "Killed" if result.killed and not status.phase.terminal else status.reason
    name = str(status.phase) if status.phase.terminal else head
    out = [
        f"{run.path.name}: {name} after {figures['seconds']:.0f} s" + (f": {status.message}" if status.message else "")
    ]
    shown = _figures(figures)
    if shown:
        out.append("  " + ", ".join(shown))
    if status.phase is Phase.FAILED:
        out += _first_cause(run, result)
    out += [f"  {what:<12} {_short(path)}" for what, path in _files(run) if path.exists()]
    if not status.phase.terminal:
        out.append("  run the same command again to resume")
    return out


def _figures(figures: dict[str, Any]) -> list[str]:
    wanted = [
        ("steps", "steps", "{:.0f}"),
        ("eval_exact_match", "held-out exact match", None),
        ("eval_mean_reward", "held-out reward", None),
        ("tokens_per_second", "tokens/s", None),
        ("startup_seconds", "s to the first token", "{:.1f}"),
        ("max_version_lag", "largest lag", "{:.0f}"),
    ]
    out = []
    for key, label, form in wanted:
        value = figures.get(key)
        if isinstance(value, int | float):
            out.append(f"{label} {form.format(value) if form else three_digits(float(value))}")
    return out


def _first_cause(run: RunDirectory, result: Result) -> list[str]:
    cause = result.status.first_cause
    if cause is None:
        return []
    log = run.path / "logs" / f"{cause.pod}.log"
    sentence = causes.sentence(cause)
    out = [] if sentence in result.status.message else [f"  first cause: {sentence}"]
    if log.exists():
        text = log.read_text(encoding="utf-8", errors="replace").splitlines()
        out += [f"  last lines of {_short(log)}:", *(f"    {line}" for line in text[-LOG_LINES:])]
    return out


def _files(run: RunDirectory) -> list[tuple[str, Path]]:
    identity = run.identity()
    checkpoints = run.places(identity.job, run.path).checkpoints if identity else run.path / "checkpoints"
    return [
        ("report", run.report_file),
        ("summary", run.summary_file),
        ("metrics", run.path / "metrics.jsonl"),
        ("samples", run.path / "samples.jsonl"),
        ("checkpoints", checkpoints),
        ("logs", run.path / "logs"),
    ]


def _short(path: Path) -> str:
    """Relative to where the command runs, when that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
