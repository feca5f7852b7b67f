"""A counter-based random generator: a number is a function of its key, so nothing has to be stored or replayed.

The mixing step is SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def bits64(*key: int) -> int:
    """64 random bits, a function of the key alone (any integers, negative ones included)."""
    state = _GOLDEN
    for part in key:
        state = _mix((state + (part & _MASK) * _GOLDEN + _GOLDEN) & _MASK)
    return state


def below(limit: int, *key: int) -> int:
    """An integer in [0, limit), uniform up to limit / 2^64."""
    return bits64(*key) * limit >> 64


def permutation(size: int, *key: int) -> list[int]:
    """A Fisher-Yates shuffle of range(size)."""
    order = list(range(size))
    for i in range(size - 1, 0, -1):
        j = below(i + 1, *key, i)
        order[i], order[j] = order[j], order[i]
    return order
