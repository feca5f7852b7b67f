"""Checkpoint directories: atomic, verified, pruned. No torch here: the coordinator reads them too.

    <directory>/latest -> step-40
    <directory>/step-40/
        model/                        Hugging Face directory
        trainer/rank-00000.safetensors  optimizer state and RNG of one rank, its own experts only
        coordinator.json              the coordinator's state
        meta.json                     written last: step, version, world, size and CRC-32 of every other file

A checkpoint is built in `step-40.tmp` and renamed; whatever ends in `.tmp` is a leftover. A directory without
meta.json, or whose files do not match it, is skipped with a warning and the next older one is used.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from rljob_core.api.base import Document
from rljob_core.api.roles import TrainerLayout
from rljob_core.errors import InvalidInputError, ProtocolVersionError

log = logging.getLogger(__name__)

FORMAT_MAJOR = 1
META = "meta.json"
LATEST = "latest"
COORDINATOR = "coordinator.json"
MODEL = "model"
_STEP = re.compile(r"step-(\d+)")
_REPLACED = ".replaced"
_CHUNK_BYTES = 1 << 20
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
"""No retry helps; any other error of the disk may pass."""


class FileSum(Document):
    """Size and CRC-32 of one file."""

    bytes: int
    crc32: int


class CheckpointMeta(Document):
    """meta.json."""

    model_config = Document.model_config | {"extra": "ignore"}
    format_major: int = FORMAT_MAJOR
    step: int
    """Training steps done."""
    version: int
    """Policy version of the weights (never issued again after a resume)."""
    world: int
    layout: TrainerLayout
    seed: int
    files: dict[str, FileSum] = Field(default_factory=dict)
    """Every other file, by path below the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One complete checkpoint on disk."""

    path: Path
    meta: CheckpointMeta

    @property
    def model(self) -> Path:
        return self.path / MODEL

    def trainer_part(self, rank: int) -> Path:
        return part_path(self.path, rank)

    def coordinator_state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.path / COORDINATOR).read_bytes())
        return state


def part_path(checkpoint: Path, rank: int) -> Path:
    """Where a trainer rank's own state lies."""
    return checkpoint / "trainer" / f"rank-{rank:05d}.safetensors"


def newest(directory: Path) -> Checkpoint | None:
    """The newest complete, undamaged checkpoint; None when there is none. Reads every byte of it.

    Raises ProtocolVersionError when a newer format lies there: resuming from an older one would lose work silently.
    """
    for path in sorted(_step_directories(directory), key=_step_of, reverse=True):
        meta = read_meta(path)
        problem = "it has no readable meta.json" if meta is None else _damage(path, meta)
        if meta is not None and not problem:
            return Checkpoint(path=path, meta=meta)
        log.warning("checkpoint %s is skipped: %s", path, problem)
    return None


def read_meta(path: Path) -> CheckpointMeta | None:
    """meta.json of a checkpoint directory; None when absent or not readable as such."""
    try:
        body = json.loads((path / META).read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(body, dict):
        return None
    if body.get("formatMajor") != FORMAT_MAJOR:
        raise ProtocolVersionError(
            f"{path / META}: formatMajor {body.get('formatMajor')!r} is not supported; this version reads"
            f" {FORMAT_MAJOR}: use the version that wrote it, or another checkpoint directory"
        )
    try:
        return CheckpointMeta.model_validate(body)
    except ValidationError:
        return None


def begin(directory: Path, step: int) -> Path:
    """An empty `step-<n>.tmp`, with the folder for the ranks' parts."""
    building = directory / f"step-{step}.tmp"
    shutil.rmtree(building, ignore_errors=True)
    (building / "trainer").mkdir(parents=True)
    return building


def write_file(path: Path, data: bytes) -> None:
    """Write and fsync."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def finish(building: Path, meta: CheckpointMeta) -> Path:
    """Sum up and fsync all files, write meta.json last, rename `step-<n>.tmp` to `step-<n>`. Returns the new path."""
    files = {str(file.relative_to(building)): _sum(file) for file in _files(building)}
    for folder, _, names in os.walk(building):
        for name in names:
            _fsync(Path(folder, name))
        _fsync(Path(folder))
    write_file(building / META, meta.model_copy(update={"files": files}).model_dump_json(by_alias=True).encode())
    _fsync(building)
    final = building.with_suffix("")
    replaced = final.with_suffix(_REPLACED)
    if final.exists():
        os.rename(final, replaced)
    os.rename(building, final)
    _point_latest(final)
    _fsync(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)
    return final


def _point_latest(final: Path) -> None:
    """`latest` beside it: a relative link for people and later jobs (`model.path: …/latest/model`)."""
    link = final.with_name(f"{LATEST}.tmp")
    link.unlink(missing_ok=True)
    link.symlink_to(final.name)
    link.replace(final.with_name(LATEST))


def prune(directory: Path, step: int, keep: int) -> None:
    """Remove all but the newest `keep` complete checkpoints up to `step`, which was just written.

    What lies above it was not resumed from (it is damaged), and belongs to steps that are done again now: it would
    take the place of a good one.
    """
    found = list(_step_directories(directory))
    abandoned = [path for path in found if _step_of(path) > step]
    complete = [path for path in found if _step_of(path) <= step and read_meta(path) is not None]
    for path in [*abandoned, *sorted(complete, key=_step_of)[:-keep]]:
        leftover = path.with_suffix(".tmp")
        os.rename(path, leftover)
        shutil.rmtree(leftover)


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """InvalidInputError where the volume may not be written: whoever is first to write says so."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        raise InvalidInputError(
            "spec.checkpoint.volume",
            str(directory),
            f"cannot be written ({error.strerror})",
            "give the coordinator's and trainers' user write access, or name another volume",
        ) from error


def clean(directory: Path) -> None:
    """Remove what an interrupted write or removal left; put back what an interrupted replacement moved away."""
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    for replaced in directory.glob(f"step-*{_REPLACED}"):
        if replaced.with_suffix("").exists():
            shutil.rmtree(replaced)
        else:
            os.rename(replaced, replaced.with_suffix(""))
    for leftover in directory.glob("step-*.tmp"):
        shutil.rmtree(leftover)


def _step_directories(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from (p for p in directory.iterdir() if p.is_dir() and _STEP.fullmatch(p.name))


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file() and p != path / META)


def _damage(path: Path, meta: CheckpointMeta) -> str:
    """What differs from meta.json, or an empty string."""
    for name, wanted in sorted(meta.files.items()):
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        found = _sum(file)
        if found != wanted:
            return (
                f"{name} has {found.bytes} bytes and CRC-32 {found.crc32:08x},"
                f" meta.json says {wanted.bytes} and {wanted.crc32:08x}"
            )
    return ""


def _sum(path: Path) -> FileSum:
    crc = size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    return FileSum(bytes=size, crc32=crc)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
