"""The page: figures at the end, charts over steps, phases over time, samples, the whole summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from rljob_core.lifecycle.text import three_digits
from rljob_operator.report_html.charts import Point, Series, line_chart
from rljob_operator.report_html.gantt import timeline
from rljob_operator.report_html.records import Row, Run, read_run
from rljob_operator.report_html.style import CSS

SAMPLES_SHOWN = 24
"""Spread evenly over the run, the last one included."""

MIB = 1 << 20


def write_report(folder: Path, target: Path) -> None:
    """Read a run directory, write its report."""
    page = render(read_run(folder))
    partial = target.with_suffix(".tmp")
    partial.write_text(page, encoding="utf-8")
    partial.replace(target)  # a report that is there is whole


def render(run: Run) -> str:
    """The page as HTML that is well-formed XML as well."""
    phase = str(run.summary.get("phase", "Unfinished"))
    return "".join(
        [
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'/>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'/>",
            f"<title>{escape(run.name)}: {escape(phase)}</title><style>{CSS}</style></head><body>",
            f"<h1>{escape(run.name)}<span class='badge {escape(phase, quote=True)}'>{escape(phase)}</span></h1>",
            f"<p class='message'>{escape(str(run.summary.get('message', '')))}</p>",
            f"<div class='tiles'>{_tiles(run)}</div>",
            f"<h2>Learning</h2><div class='charts'>{_charts(run)}</div>",
            f"<h2>Phases</h2><div class='card'>{timeline(run.spans)}</div>",
            f"<h2>Samples</h2><div class='card'>{_samples(run.samples)}</div>",
            f"<h2>Summary</h2><div class='card'>{_summary(run.summary)}</div>",
            "<footer>Written by <code>rljob run</code>.</footer></body></html>\n",
        ]
    )


def _tiles(run: Run) -> str:
    s = run.summary
    last = run.steps[-1] if run.steps else {}
    pss = s.get("peak_pss_bytes")
    tiles: list[tuple[str, Any, str]] = [
        ("steps", s.get("steps"), ""),
        ("seconds", s.get("seconds"), ""),
        ("reward, last step", last.get("reward_mean"), ""),
        ("held-out exact match", s.get("eval_exact_match"), ""),
        ("tokens a second", s.get("tokens_per_second"), ""),
        ("largest lag", s.get("max_version_lag"), ""),
        ("log-probability gap", s.get("logprob_gap"), ""),
        ("to the first token", s.get("startup_seconds"), " s"),
        ("peak memory (PSS)", pss / MIB if pss else None, " MiB"),
        ("restarts", s.get("restarts"), ""),
    ]
    return "".join(
        f"<div class='tile'><b>{_number(value)}{unit}</b><span>{label}</span></div>"
        for label, value, unit in tiles
        if value is not None
    )


def _charts(run: Run) -> str:
    bound = run.max_version_lag
    steps = [float(row["step"]) for row in run.steps]
    limit = [(x, float(bound)) for x in (steps[:1] + steps[-1:])] if bound is not None else []
    evaluated = _points(run.evaluations, "eval_exact_match")
    return "".join(
        [
            line_chart(
                "Reward",
                "mean of a step",
                [
                    Series(label="reward", points=_points(run.steps, "reward_mean")),
                    Series(label="exact match", points=_points(run.steps, "exact_match"), colour=3),
                    Series(label="held out", points=evaluated, colour=2, dots=True),
                ],
                floor=0.0,
            ),
            line_chart(
                "Lag",
                "policy versions, at the oldest token",
                [
                    Series(label="maxVersionLag", points=limit, colour=2, dashed=True),
                    Series(label="lag", points=_points(run.steps, "lag_oldest"), dots=True),
                ],
                floor=0.0,
                finest=1.0,
            ),
            line_chart(
                "Throughput",
                "sampled tokens a second",
                [Series(label="tokens/s", points=_points(run.steps, "tokens_per_second"))],
                floor=0.0,
            ),
            line_chart("Loss", "of a step", [Series(label="loss", points=_points(run.steps, "loss"), colour=4)]),
            line_chart(
                "Gradient norm",
                "before clipping",
                [Series(label="norm", points=_points(run.steps, "grad_norm"), colour=4)],
                floor=0.0,
            ),
            line_chart(
                "Expert load",
                "max / mean over experts",
                [Series(label="balance", points=_points(run.steps, "experts_max_over_mean"), colour=3)],
                floor=1.0,
            ),
        ]
    )


def _points(rows: Sequence[Row], key: str) -> list[Point]:
    """(step, value) where there is a finite number."""
    values = [(row["step"], row.get(key)) for row in rows]
    return [(float(x), float(y)) for x, y in values if isinstance(y, int | float) and abs(y) < float("inf")]


def _samples(samples: Sequence[Row]) -> str:
    if not samples:
        return "<p class='empty'>no sample was recorded</p>"
    shown = min(SAMPLES_SHOWN, len(samples))
    rows = [samples[(i + 1) * len(samples) // shown - 1] for i in range(shown)]
    texts, numbers = ("prompt", "response", "answer"), ("step", "version", "reward")
    columns = [c for c in ("step", "version", *texts, "reward") if any(c in row for row in rows)]
    head = "".join(f"<th>{c}</th>" for c in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td class='{'number' if c in numbers else 'text'}'>{_number(row.get(c, ''))}</td>" for c in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _summary(summary: Row) -> str:
    rows = "".join(
        f"<tr><td>{escape(key)}</td><td class='text'>{_number(value)}</td></tr>" for key, value in summary.items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _number(value: Any) -> str:
    """Numbers short, the rest as it is, all of it escaped and free of characters XML has no place for."""
    if isinstance(value, float):
        return three_digits(value) if value == 0 or abs(value) >= 1e-3 else f"{value:.2g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return escape("".join(c if c in "\t\n" or c.isprintable() else "�" for c in text))
