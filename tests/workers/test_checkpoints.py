"""Checkpoint directories: atomic, verified, pruned, and what is left after a crash at any point."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from rljob_core.api.roles import TrainerLayout
from rljob_core.errors import InvalidInputError, ProtocolVersionError
from rljob_workers import checkpoints


def write(directory: Path, step: int, payload: bytes = b"weights") -> Path:
    building = checkpoints.begin(directory, step)
    checkpoints.write_file(checkpoints.part_path(building, 0), payload)
    checkpoints.write_file(building / checkpoints.COORDINATOR, json.dumps({"step": step}).encode())
    meta = checkpoints.CheckpointMeta(step=step, version=step + 1, world=1, layout=TrainerLayout(), seed=7)
    return checkpoints.finish(building, meta)


def test_round_trip(tmp_path: Path) -> None:
    write(tmp_path, 4)
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert (found.meta.step, found.meta.version, found.meta.seed) == (4, 5, 7)
    assert found.coordinator_state() == {"step": 4}
    assert found.trainer_part(0).read_bytes() == b"weights"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-4"]


def test_latest_follows_the_newest(tmp_path: Path) -> None:
    for step in (4, 8):
        write(tmp_path, step)
        assert (tmp_path / "latest").resolve() == tmp_path / f"step-{step}"
    checkpoints.prune(tmp_path, 8, keep=1)
    assert (tmp_path / "latest" / checkpoints.META).is_file()


def test_newest_is_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write(tmp_path, step)
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.meta.step == 100


@pytest.mark.parametrize("directory", ["absent", "."])
def test_nothing_to_resume_from(tmp_path: Path, directory: str) -> None:
    assert checkpoints.newest(tmp_path / directory) is None


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing", "no meta", "half a meta", "meta of another kind"])
def test_a_damaged_newest_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    write(tmp_path, 1)
    path = write(tmp_path, 2)
    part, meta = checkpoints.part_path(path, 0), path / checkpoints.META
    match damage:
        case "cut":
            part.write_bytes(b"weight")
        case "flipped":
            part.write_bytes(b"weighTs")
        case "missing":
            part.unlink()
        case "no meta":
            meta.unlink()
        case "half a meta":
            meta.write_bytes(meta.read_bytes()[:20])
        case _:
            meta.write_text('{"formatMajor": 1, "step": "two"}')
    with caplog.at_level(logging.WARNING):
        found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.meta.step == 1
    assert "step-2 is skipped" in caplog.text


def test_an_unknown_format_is_refused_not_skipped(tmp_path: Path) -> None:
    write(tmp_path, 1)
    path = write(tmp_path, 2)
    (path / checkpoints.META).write_text('{"formatMajor": 2}')
    with pytest.raises(ProtocolVersionError, match="formatMajor 2"):
        checkpoints.newest(tmp_path)


def test_an_interrupted_write_is_not_seen_and_cleaned(tmp_path: Path) -> None:
    write(tmp_path, 1)
    checkpoints.write_file(checkpoints.part_path(checkpoints.begin(tmp_path, 2), 0), b"half")
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.meta.step == 1
    checkpoints.clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-1"]


def test_the_same_step_again_replaces(tmp_path: Path) -> None:
    write(tmp_path, 3, b"old")
    write(tmp_path, 3, b"new")
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.trainer_part(0).read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-3"]


def test_an_interrupted_replacement_is_put_back(tmp_path: Path) -> None:
    path = write(tmp_path, 3, b"old")
    path.rename(path.with_suffix(".replaced"))
    checkpoints.clean(tmp_path)
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.trainer_part(0).read_bytes() == b"old"


def test_prune_keeps_the_newest_complete_ones(tmp_path: Path) -> None:
    for step in (2, 4, 10, 12):
        write(tmp_path, step)
    (tmp_path / "step-10" / checkpoints.META).unlink()
    checkpoints.prune(tmp_path, 12, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-10", "step-12", "step-4"]


@pytest.mark.parametrize("damaged", [checkpoints.META, "trainer/rank-00000.safetensors"])
def test_prune_keeps_what_was_just_written_where_a_damaged_one_lies_above_it(tmp_path: Path, damaged: str) -> None:
    for step in (20, 40):
        write(tmp_path, step)
    (tmp_path / "step-40" / damaged).write_bytes(b"")
    write(tmp_path, 30)
    checkpoints.prune(tmp_path, 30, keep=1)
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.meta.step == 30
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-30"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "volume").write_text("")
    with pytest.raises(InvalidInputError, match="cannot be written") as caught:
        checkpoints.clean(tmp_path / "volume" / "ns.job")
    assert caught.value.field == "spec.checkpoint.volume"
