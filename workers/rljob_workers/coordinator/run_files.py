"""What a run leaves for people: metrics.jsonl, samples.jsonl, timeline.jsonl, TensorBoard events, summary.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rljob_core.api.messages import Span
from rljob_core.session import Worker
from rljob_workers.checkpoints import write_file
from rljob_workers.coordinator.events import EventFile

EVENTS = "events"
NOT_PLOTTED = {"step", "version", "time"}


class RunFiles:
    """Files of one run directory, appended to over restarts; lines are flushed as they are written.

    summary.json is of one start: that of an earlier one goes at once, or it would be taken for newer than it is.
    """

    def __init__(self, directory: Path, now: float) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._summary = directory / "summary.json"
        self._summary.unlink(missing_ok=True)
        self._metrics = _append(directory / "metrics.jsonl")
        self._samples = _append(directory / "samples.jsonl")
        self._timeline = _append(directory / "timeline.jsonl")
        self._events = EventFile(directory / EVENTS, now)

    def metrics(self, values: Mapping[str, float], group: str, now: float) -> None:
        """One line, and one point a metric; group: `train` or `evaluation`."""
        _line(self._metrics, {"kind": group, "time": round(now, 3), **values})
        points = {f"{group}/{name}": value for name, value in values.items() if name not in NOT_PLOTTED}
        self._events.scalars(points, int(values["step"]), now)

    def samples(self, samples: Sequence[Mapping[str, Any]]) -> None:
        for sample in samples:
            _line(self._samples, sample)

    def spans(self, worker: Worker, spans: Sequence[Span]) -> None:
        """Finished stages of one process: start and end in unix seconds."""
        process = {"process": f"{worker.role}-{worker.rank}", "role": str(worker.role), "pod": worker.pod}
        for span in spans:
            _line(self._timeline, process | span.model_dump())

    def summary(self, values: Mapping[str, Any]) -> None:
        """Whole or not at all, whenever this process is killed."""
        temporary = self._summary.with_suffix(".json.tmp")
        write_file(temporary, (json.dumps(values, indent=2) + "\n").encode())
        temporary.replace(self._summary)

    def close(self) -> None:
        self._events.close()
        for file in (self._metrics, self._samples, self._timeline):
            file.close()


def _append(path: Path) -> TextIO:
    return path.open("a", encoding="utf-8", buffering=1)


def _line(file: TextIO, values: Mapping[str, Any]) -> None:
    file.write(json.dumps(values, ensure_ascii=False) + "\n")
