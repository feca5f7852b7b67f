"""What every benchmark ends with: one JSON object as its last line, and an exit code that says whether all holds."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Something that must hold: `measured` is at most `limit`, in the unit that `claim` names."""

    claim: str
    limit: float
    measured: float

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit


def finish(bench: str, must: Sequence[Claim], metrics: Mapping[str, Any], peers: Mapping[str, Any]) -> int:
    """Print the result; 0 when every claim holds, else 1.

    metrics: ours, peers: those of what it is compared with, measured in the same run.
    """
    result = {
        "bench": bench,
        "must": [asdict(claim) | {"measured": number(claim.measured), "holds": claim.holds} for claim in must],
        "metrics": metrics,
        "peers": peers,
        "machine": machine(),
    }
    print(json.dumps(result), flush=True)
    return 0 if all(claim.holds for claim in must) else 1


def number(value: float) -> float | None:
    """Four digits after the point; None for what never happened (JSON has no infinity)."""
    return round(value, 4) if math.isfinite(value) else None


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    memory_kib = int(_field(Path("/proc/meminfo"), "MemTotal").split()[0])
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": _version("torch"),
    }


def _field(path: Path, name: str) -> str:
    """Value of the first `name: value` line."""
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
