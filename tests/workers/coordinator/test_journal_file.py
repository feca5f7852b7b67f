"""The journal on disk: what no retry can mend is the user's to mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_core.errors import InvalidInputError
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
