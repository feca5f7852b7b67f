"""Memory, status and events of an embedded run: files in its run directory."""

from __future__ import annotations

import json
from collections.abc import Callable

from rljob_core.api import RLJob
from rljob_core.api.status import RLJobStatus
from rljob_core.lifecycle.model import Event, Memory
from rljob_core.lifecycle.text import rfc3339
from rljob_operator.embedded.rundir import RunDirectory, write_atomically


class FileMemory:
    """Implements reconcile.MemoryStore."""

    def __init__(self, run: RunDirectory) -> None:
        self._run, self._file = run, run.memory_file

    async def load(self, job: RLJob) -> Memory:
        """See MemoryStore."""
        if not self._file.exists():
            return Memory()
        with self._run.reading(self._file) as text:
            return Memory.model_validate_json(text)

    async def save(self, job: RLJob, memory: Memory) -> None:
        """See MemoryStore."""
        write_atomically(self._file, memory.model_dump_json(by_alias=True, exclude_none=True))


class FileStatus:
    """Implements reconcile.StatusWriter; `current` is what was written last."""

    def __init__(self, run: RunDirectory) -> None:
        self._file = run.status_file
        self.current = RLJobStatus()
        if self._file.exists():
            with run.reading(self._file) as text:
                self.current = RLJobStatus.model_validate_json(text)

    async def write(self, job: RLJob, status: RLJobStatus) -> None:
        """See StatusWriter."""
        write_atomically(self._file, json.dumps(status.to_wire(), indent=1))
        self.current = status


class FileEvents:
    """Implements reconcile.EventPoster: one JSON object a line, and a listener (the console).

    clock: unix seconds.
    """

    def __init__(self, run: RunDirectory, clock: Callable[[], float], listener: Callable[[Event], None]) -> None:
        self._file, self._clock, self._listener = run.events_file, clock, listener

    async def post(self, job: RLJob, event: Event) -> None:
        """See EventPoster."""
        line = {"time": rfc3339(self._clock()), "type": event.type, "reason": event.reason, "message": event.message}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._listener(event)
