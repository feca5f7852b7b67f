"""The last lines of `rljob run`: what came out, where it lies, and on failure what the first cause said."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rljob_core.api import RLJob
from rljob_core.api.status import Phase, RLJobStatus
from rljob_core.lifecycle import causes
from rljob_core.lifecycle.text import three_digits
from rljob_operator.embedded.earlier import BEGIN_ANEW
from rljob_operator.embedded.rundir import RunDirectory
from rljob_operator.embedded.supervisor import Result

LOG_LINES = 20


def lines(run: RunDirectory, job: RLJob, folder: Path, result: Result, figures: dict[str, Any]) -> list[str]:
    """A short account for the console. folder: of the RLJob file."""
    status = result.status
    killed = result.killed and not status.phase.terminal
    name = "Killed" if killed else str(status.phase) if status.phase.terminal else status.reason
    said = f": {status.message}" if status.message and not killed else ""
    out = [f"{run.path.name}: {name} after {figures['seconds']:.0f} s{said}", *_figures(figures)]
    out += _missed_target(job, figures) if status.phase is Phase.SUCCEEDED else []
    if status.phase is Phase.FAILED:
        out += _first_cause(run, result)
    out += _files(run, job, folder)
    if status.phase is Phase.FAILED:
        out.append(f"  run the same command again to try once more {_from(run, job, folder)}, or with --fresh anew")
    elif not status.phase.terminal:
        out.append(f"  run the same command again to resume {_from(run, job, folder)}")
    return out


def already_succeeded(run: RunDirectory, job: RLJob, folder: Path, status: RLJobStatus) -> list[str]:
    """What an earlier command reached, and how to begin anew. folder: of the RLJob file."""
    figures: dict[str, Any] = {}
    if run.summary_file.exists():
        with run.reading(run.summary_file) as text:
            figures = json.loads(text)
    head = f"{run.path.name} has already ended: {status.phase} ({status.message})"
    return [head, *_figures(figures), *_files(run, job, folder), f"  to train again, {BEGIN_ANEW}"]


def _missed_target(job: RLJob, figures: dict[str, Any]) -> list[str]:
    target = job.spec.evaluation.target_exact_match if job.spec.evaluation else None
    if target is None or figures.get("eval_exact_match", 0.0) >= target:
        return []
    return [f"  evaluation.targetExactMatch {three_digits(target)} was not reached"]


def _from(run: RunDirectory, job: RLJob, folder: Path) -> str:
    step = run.newest_checkpoint(job, folder)
    return "from the beginning" if step is None else f"from the checkpoint of step {step}"


def _figures(figures: dict[str, Any]) -> list[str]:
    """One line; none before the first step."""
    if not figures.get("steps"):
        return []
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
    return [f"  {', '.join(out)}"]


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


def _files(run: RunDirectory, job: RLJob, folder: Path) -> list[str]:
    files = [
        ("report", run.report_file),
        ("summary", run.summary_file),
        ("metrics", run.path / "metrics.jsonl"),
        ("samples", run.path / "samples.jsonl"),
        ("checkpoints", run.places(job, folder).checkpoints),
        ("logs", run.path / "logs"),
    ]
    return [f"  {what:<12} {_short(path)}" for what, path in files if path.exists()]


def _short(path: Path) -> str:
    """Relative to where the command runs, when that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
