"""How figures and times are written in status, events and on the console."""

from __future__ import annotations

import math
from datetime import UTC, datetime


def rfc3339(unix_seconds: float) -> str:
    """`2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_seconds(time: str | None) -> float | None:
    """The way back; None for no time."""
    return None if time is None else datetime.fromisoformat(time).timestamp()


def three_digits(value: float) -> str:
    """Three significant digits without exponent: `0.953`, `12300`, `0.00123`."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    decimals = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    text = f"{rounded:.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters, the end kept: that is where an error says what it is."""
    return text if len(text) <= limit else "…" + text[len(text) - limit + 1 :]
