"""How large the files of a run may grow: what their writer keeps to, and what their volume has room for.

Samples and the timeline are cut: a full file takes the place of `<name>.1.jsonl`, and a new one begins. Metrics and
TensorBoard events are kept whole; they grow with the steps.
"""

from __future__ import annotations

CUT_AT_BYTES = {"samples.jsonl": 64 << 20, "timeline.jsonl": 16 << 20}
"""File -> bytes at which it is cut; as many lie in the one before."""
STEP_BYTES = 4 << 10
"""Of metrics and events a training step and its evaluation, at most."""
_REST_BYTES = 64 << 20


def earlier(name: str) -> str:
    """`timeline.1.jsonl` of `timeline.jsonl`: what was written before the newest cut."""
    stem, dot, ending = name.rpartition(".")
    return f"{stem}.1{dot}{ending}"


def most_bytes(steps: int) -> int:
    """Of all files of a run of so many steps."""
    return 2 * sum(CUT_AT_BYTES.values()) + steps * STEP_BYTES + _REST_BYTES
