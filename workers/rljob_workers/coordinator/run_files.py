"""What a run leaves for people: metrics.jsonl, samples.jsonl, timeline.jsonl, TensorBoard events, summary.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rljob_core.api.messages import Span
from rljob_core.run_files import CUT_AT_BYTES, earlier
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
        self._metrics = LineFile(directory / "metrics.jsonl")
        self._samples = LineFile(directory / "samples.jsonl")
        self._timeline = LineFile(directory / "timeline.jsonl")
        self._events = EventFile(directory / EVENTS, now)

    def metrics(self, values: Mapping[str, float], group: str, now: float) -> None:
        """One line, and one point a metric; group: `train` or `evaluation`."""
        self._metrics.write({"kind": group, "time": round(now, 3), **values})
        points = {f"{group}/{name}": value for name, value in values.items() if name not in NOT_PLOTTED}
        self._events.scalars(points, int(values["step"]), now)

    def samples(self, samples: Sequence[Mapping[str, Any]]) -> None:
        for sample in samples:
            self._samples.write(sample)

    def spans(self, worker: Worker, spans: Sequence[Span]) -> None:
        """Finished stages of one process: start and end in unix seconds."""
        process = {"process": f"{worker.role}-{worker.rank}", "role": str(worker.role), "pod": worker.pod}
        for span in spans:
            self._timeline.write(process | span.model_dump())

    def summary(self, values: Mapping[str, Any]) -> None:
        """Whole or not at all, whenever this process is killed."""
        temporary = self._summary.with_suffix(".json.tmp")
        write_file(temporary, (json.dumps(values, indent=2) + "\n").encode())
        temporary.replace(self._summary)

    def close(self) -> None:
        self._events.close()
        for file in (self._metrics, self._samples, self._timeline):
            file.close()


class LineFile:
    """JSON lines, each handed to the kernel as it is written; cut where `rljob_core.run_files` says so."""

    def __init__(self, path: Path) -> None:
        self._path, self._limit = path, CUT_AT_BYTES.get(path.name)
        self._open()

    def write(self, values: Mapping[str, Any]) -> None:
        line = (json.dumps(values, ensure_ascii=False) + "\n").encode()
        if self._limit is not None and self._bytes and self._bytes + len(line) > self._limit:
            self.close()
            self._path.replace(self._path.with_name(earlier(self._path.name)))
            self._open()
        self._file.write(line)
        self._bytes += len(line)

    def close(self) -> None:
        self._file.close()

    def _open(self) -> None:
        self._file = self._path.open("ab", buffering=0)
        self._bytes = self._path.stat().st_size
