"""The journal on disk: appended in order, fsynced in a thread, awaited before an answer may leave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rljob_core.journal import FILE_NAME, Replay, encode, replay
from rljob_workers.checkpoints import writing


def read(directory: Path) -> Replay:
    """What the journal of a directory says; an empty one where there is none. Raises JournalError."""
    path = directory / FILE_NAME
    return replay(path.read_bytes() if path.exists() else b"")


class JournalFile:
    """append() never blocks; synced() returns once everything appended so far is on disk. clock: unix seconds.

    Once the disk has refused a write nothing more is written, so that nothing follows a torn line: append() and
    synced() raise that OSError from then on.
    """

    def __init__(self, directory: Path, whole_bytes: int, clock: Callable[[], float]) -> None:
        """whole_bytes: length of the readable part; a torn line after it is cut off. InvalidInputError: the volume may
        not be written."""
        self._clock, self._path = clock, directory / FILE_NAME
        self._file = _open(directory)
        os.ftruncate(self._file, whole_bytes)
        os.lseek(self._file, 0, os.SEEK_END)
        self._pending: list[bytes] = []
        self._appended = self._written = 0
        self._writer: asyncio.Task[None] | None = None
        self._refused: OSError | None = None

    def append(self, record: dict[str, Any]) -> None:
        self._check()
        self._pending.append(encode(record | {"time": round(self._clock(), 3)}))
        self._appended += 1

    async def synced(self) -> None:
        """Raises OSError when the disk refuses: nothing may be used then."""
        wanted = self._appended
        while self._written < wanted:
            self._check()
            if self._writer is None:
                self._writer = asyncio.create_task(self._flush())
            await asyncio.shield(self._writer)  # whoever waits may be cancelled, the write goes on
        self._check()

    def _check(self) -> None:
        if self._refused is not None:
            raise self._refused

    async def _flush(self) -> None:
        """Write what is pending: one at a time."""
        lines, self._pending = self._pending, []
        try:
            await asyncio.to_thread(self._write, b"".join(lines))
        except OSError as error:
            text = f"the journal {self._path} cannot be written ({error.strerror}): see to spec.checkpoint.volume"
            self._refused = OSError(error.errno, text)
        else:
            self._written += len(lines)
        finally:
            self._writer = None

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _open(directory: Path) -> int:
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        return os.open(directory / FILE_NAME, os.O_RDWR | os.O_CREAT, 0o644)
