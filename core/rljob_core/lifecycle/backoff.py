"""Growing delays between tries."""

from __future__ import annotations

FIRST_DELAY_S = 2.0
LONGEST_DELAY_S = 300.0


def delay(tries: int) -> float:
    """Seconds to wait after the n-th try in a row (1, 2, …): 2, 4, 8, … up to 300."""
    return min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(tries - 1, 16))
