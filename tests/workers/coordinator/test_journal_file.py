"""The journal on disk: what no retry can mend is the user's to mend."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from rljob_core.errors import InvalidInputError
from rljob_core.journal import FILE_NAME, replay
from rljob_workers.coordinator.journal_file import JournalFile


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_a_volume_that_cannot_be_written_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError) as caught:
        JournalFile(tmp_path / below, 0, lambda: 0.0)
    assert "file" in str(caught.value)


def test_a_read_only_volume_ends_the_job_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refused)
    with pytest.raises(InvalidInputError, match=r"cannot be written \(Permission denied\); give") as caught:
        JournalFile(tmp_path, 0, lambda: 0.0)
    assert (caught.value.field, caught.value.value) == ("spec.checkpoint.volume", str(tmp_path))


def version(number: int) -> dict[str, object]:
    return {"kind": "version", "version": number, "step": 0}


async def test_after_a_full_disk_nothing_follows_the_torn_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later use of the journal says why, at once; a new one goes on from what was whole."""
    journal, write = JournalFile(tmp_path, 0, lambda: 0.0), os.write
    journal.append(version(1))
    await journal.synced()

    def full(file: int, data: memoryview) -> int:
        monkeypatch.setattr(os, "write", fails)
        return write(file, data[:10])

    def fails(file: int, data: memoryview) -> int:
        monkeypatch.setattr(os, "write", write)  # room again: too late
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    journal.append(version(2))
    async with asyncio.timeout(5):
        for _ in range(2):
            with pytest.raises(OSError, match=r"journal\.jsonl cannot be written \(No space left") as caught:
                await journal.synced()
            assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        journal.append(version(3))
    journal.close()
    told = replay((tmp_path / FILE_NAME).read_bytes())
    assert told.highest_version == 1
    again = JournalFile(tmp_path, told.whole_bytes, lambda: 0.0)
    again.append(version(4))
    await again.synced()
    again.close()
    assert replay((tmp_path / FILE_NAME).read_bytes()).highest_version == 4


async def test_a_cancelled_wait_neither_loses_nor_stops_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's request is cancelled when its connection is given up, maybe while its record is being written."""
    journal, fsync = JournalFile(tmp_path, 0, lambda: 0.0), os.fsync
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(file: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(5)
        fsync(file)

    monkeypatch.setattr(os, "fsync", slow)
    journal.append(version(1))
    cancelled = asyncio.create_task(journal.synced())
    await begun.wait()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    journal.append(version(2))
    go_on.set()
    async with asyncio.timeout(5):
        await journal.synced()
    journal.close()
    assert replay((tmp_path / FILE_NAME).read_bytes()).highest_version == 2
