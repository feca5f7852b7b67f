"""Phase timeline: one lane a process, one colour a stage."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rljob_core.api.directive import StageName
from rljob_operator.report_html.charts import ticks
from rljob_operator.report_html.records import Span

WIDTH, LEFT, RIGHT, LANE, BOTTOM = 1160, 120, 10, 20, 26
BINS = 1030
"""Columns of the plot: spans narrower than one are merged, so that the file stays small however long the run."""

DETAIL_STEPS = 3


def timeline(spans: Sequence[Span]) -> str:
    """All there is, and a few steps from its middle close up."""
    shown = [s for s in spans if s.stage != StageName.IDLE and s.end > s.start]
    if not shown:
        return "<p class='empty'>no phase was recorded</p>"
    origin = min(s.start for s in shown)
    out = [_legend(shown), "<h3>All that was recorded</h3>", _lanes(shown, origin, origin, max(s.end for s in shown))]
    window = _middle(shown)
    if window is not None:
        low, high, first = window
        out += [f"<h3>Steps {first} to {first + DETAIL_STEPS - 1}</h3>", _lanes(shown, origin, low, high)]
    return "".join(out)


def _middle(spans: Sequence[Span]) -> tuple[float, float, int] | None:
    """Start, end and number of a few training steps in the middle of the run."""
    trained = sorted({s.step for s in spans if s.stage == StageName.TRAIN})
    if len(trained) < 3 * DETAIL_STEPS:
        return None
    first = trained[len(trained) // 2]
    inside = [s for s in spans if s.stage == StageName.TRAIN and first <= s.step < first + DETAIL_STEPS]
    low, high = min(s.start for s in inside), max(s.end for s in inside)
    before = [s.end for s in spans if s.stage == StageName.TRAIN and s.step == first - 1]
    return (max(before, default=low), high, first)


def _lanes(spans: Sequence[Span], origin: float, low: float, high: float) -> str:
    """Lanes of the window low … high; the axis counts from origin."""
    processes = sorted({(s.role, s.process) for s in spans})
    height = len(processes) * LANE + BOTTOM
    parts = [f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='phases by process'>"]
    width = WIDTH - LEFT - RIGHT
    for mark in ticks(low - origin, high - origin, 10):
        at = LEFT + (mark - (low - origin)) / (high - low) * width
        if LEFT <= at <= WIDTH - RIGHT:
            parts.append(f"<line class='grid' x1='{at:.1f}' x2='{at:.1f}' y1='0' y2='{height - BOTTOM}'/>")
            parts.append(f"<text class='tick' x='{at:.1f}' y='{height - 8}' text-anchor='middle'>{mark:g} s</text>")
    for number, (_, process) in enumerate(processes):
        top = number * LANE
        parts.append(f"<text class='lane' x='{LEFT - 8}' y='{top + 14}' text-anchor='end'>{escape(process)}</text>")
        own = [s for s in spans if s.process == process and s.end > low and s.start < high]
        for first, last, stage in merged(own, low, high):
            x = LEFT + first * width / BINS
            w = (last - first) * width / BINS
            parts.append(
                f"<rect class='s-{stage}' x='{x:.1f}' y='{top + 3}' width='{w:.1f}' height='{LANE - 6}'>"
                f"<title>{stage}</title></rect>"
            )
    parts.append("</svg>")
    return "".join(parts)


def merged(spans: Sequence[Span], low: float, high: float) -> list[tuple[float, float, str]]:
    """(first column, last column, stage): each column shows the stage it holds most of, neighbours joined; a span
    wider than a column keeps its exact ends."""
    scale = BINS / (high - low)
    share: dict[int, dict[str, float]] = {}
    wide: list[tuple[float, float, str]] = []
    for span in spans:
        first, last = max(0.0, (span.start - low) * scale), min(float(BINS), (span.end - low) * scale)
        if last - first >= 1.0:
            wide.append((first, last, span.stage))
        else:
            stages = share.setdefault(int(first), {})
            stages[span.stage] = stages.get(span.stage, 0.0) + last - first
    narrow = [(float(b), b + 1.0, max(stages, key=lambda s: stages[s])) for b, stages in share.items()]
    out: list[tuple[float, float, str]] = []
    for first, last, stage in sorted(wide + narrow):
        if out and out[-1][2] == stage and first - out[-1][1] <= 0.5:
            out[-1] = (out[-1][0], max(out[-1][1], last), stage)
        else:
            out.append((first, last, stage))
    return out


def _legend(spans: Sequence[Span]) -> str:
    present = {s.stage for s in spans}
    keys = "".join(f"<span class='key s-{stage}'>{stage}</span>" for stage in StageName if stage in present)
    return f"<p class='legend'>{keys}</p>"
