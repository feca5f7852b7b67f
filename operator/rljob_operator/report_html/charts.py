"""Line charts as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rljob_core.lifecycle.text import three_digits

WIDTH, HEIGHT = 560, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 28
MOST_POINTS = 600

Point = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Series:
    """points: (x, y), x ascending. colour: CSS class suffix 1 … 4. dots: marks instead of a line. dashed: a bound."""

    label: str
    points: Sequence[Point]
    colour: int = 1
    dots: bool = False
    dashed: bool = False


def line_chart(title: str, unit: str, series: Sequence[Series], floor: float | None = None, finest: float = 0.0) -> str:
    """A figure with axes, a legend and, on hover, the values of dots.

    floor: where the y axis begins at the latest. finest: smallest distance of y ticks (1 for counts).
    """
    drawn = [s for s in series if s.points]
    if not drawn:
        return _figure(title, unit, "<p class='empty'>nothing recorded</p>", "")
    xs = [x for s in drawn for x, _ in s.points]
    ys = [y for s in drawn for _, y in s.points] + ([] if floor is None else [floor])
    x_ticks, y_ticks = ticks(min(xs), max(xs), 6), ticks(min(ys), max(ys), 4, finest)
    scale = _Scale(min(xs), max(xs), min(y_ticks[0], min(ys)), max(y_ticks[-1], max(ys)))
    parts = [f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(title, quote=True)}'>"]
    for y in y_ticks:
        at = scale.y(y)
        parts.append(f"<line class='grid' x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{at:.1f}' y2='{at:.1f}'/>")
        parts.append(f"<text class='tick' x='{LEFT - 6}' y='{at + 4:.1f}' text-anchor='end'>{three_digits(y)}</text>")
    for x in x_ticks:
        at = scale.x(x)
        parts.append(f"<text class='tick' x='{at:.1f}' y='{HEIGHT - 8}' text-anchor='middle'>{three_digits(x)}</text>")
    parts += [_drawn(s, scale) for s in drawn]
    parts.append("</svg>")
    legend = "".join(
        f"<span class='key c{s.colour}{' dashed' if s.dashed else ''}'>{escape(s.label)}</span>" for s in drawn
    )
    return _figure(title, unit, "".join(parts), legend)


def ticks(low: float, high: float, wanted: int, finest: float = 0.0) -> list[float]:
    """Round numbers that cover low … high, about `wanted` of them, `finest` apart at least."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    raw = max((high - low) / wanted, finest)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) for i in range(first, last + 1)]


def thin(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS: the mean of each bucket."""
    if len(points) <= MOST_POINTS:
        return list(points)
    size = math.ceil(len(points) / MOST_POINTS)
    buckets = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in b) / len(b), sum(y for _, y in b) / len(b)) for b in buckets]


@dataclass(frozen=True)
class _Scale:
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        return LEFT + (value - self.x0) / ((self.x1 - self.x0) or 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y0) / ((self.y1 - self.y0) or 1.0) * (HEIGHT - TOP - BOTTOM)


def _drawn(series: Series, scale: _Scale) -> str:
    css = f"c{series.colour}"
    if series.dots:
        return "".join(
            f"<circle class='{css}' cx='{scale.x(x):.1f}' cy='{scale.y(y):.1f}' r='3.5'>"
            f"<title>{escape(series.label)} {three_digits(y)} at {three_digits(x)}</title></circle>"
            for x, y in series.points
        )
    path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in thin(series.points))
    return f"<polyline class='{css}{' dashed' if series.dashed else ''}' points='{path}'/>"


def _figure(title: str, unit: str, body: str, legend: str) -> str:
    head = f"<figcaption><b>{escape(title)}</b> <i>{escape(unit)}</i><span class='legend'>{legend}</span></figcaption>"
    return f"<figure>{head}{body}</figure>"
