"""Memory of this command and all its descendants: summed PSS, so that shared pages count once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

PROC = Path("/proc")
SAMPLE_EVERY_S = 3.0


class PeakPss:
    """Samples now and then; keeps the peak in bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    async def sample_forever(self) -> None:
        while True:
            self.bytes = max(self.bytes, await asyncio.to_thread(summed_pss, os.getpid()))
            await asyncio.sleep(SAMPLE_EVERY_S)


def summed_pss(root: int) -> int:
    """Bytes of PSS of a process and its descendants; processes that end meanwhile count nothing."""
    return sum(_pss(pid) for pid in descendants(root))


def descendants(root: int) -> list[int]:
    """The process and everything below it."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            parent = _parent(int(entry.name))
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    out, queue = [], [root]
    while queue:
        pid = queue.pop()
        out.append(pid)
        queue += children.get(pid, [])
    return out


def command_started_at(now: float) -> float:
    """Unix seconds at which this process began, interpreter start included. now: unix seconds."""
    started_ticks = int(_stat(os.getpid())[19])
    uptime_s = float((PROC / "uptime").read_text().split()[0])
    return now - (uptime_s - started_ticks / os.sysconf("SC_CLK_TCK"))


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the third (state) on: the second may hold blanks."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> int | None:
    try:
        return int(_stat(pid)[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _pss(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)
