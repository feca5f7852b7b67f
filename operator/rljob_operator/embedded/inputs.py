"""From an RLJob file to a job this machine can run: validated, alone in its file, nothing that needs a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rljob_core.api import RLJob, RLJobSpec
from rljob_core.api.inputs import DataSource
from rljob_core.errors import InvalidInputError
from rljob_operator.validation import check_file, with_absolute_paths


class RefusedFileError(Exception):
    """The file has problems; one line each."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


def load_job(path: Path, python_path: str = "") -> RLJob:
    """The one RLJob of a file, relative paths resolved against the file's folder. python_path: PYTHONPATH.

    Raises RefusedFileError with what `rljob validate` would say, and InvalidInputError for what only a cluster has.
    """
    verdicts = check_file(path, here=True, python_path=python_path)
    lines = [f"{path}:{verdict.line_of(problem)}: {problem}" for verdict in verdicts for problem in verdict.problems]
    if lines:
        raise RefusedFileError(lines)
    jobs = [verdict.job for verdict in verdicts if verdict.job is not None]
    if len(jobs) != 1:
        raise InvalidInputError(str(path), len(jobs), "RLJobs are in the file", "run a file that holds exactly one")
    job = with_absolute_paths(jobs[0], path.parent)
    refuse_cluster_only(job)
    return job


def refuse_cluster_only(job: RLJob) -> None:
    """Claims and ConfigMaps exist on a cluster only."""
    _refuse_source("spec.data", job.spec.data)
    if job.spec.evaluation is not None:
        _refuse_source("spec.evaluation", job.spec.evaluation)
    volume = job.spec.checkpoint.volume
    if volume is not None and volume.persistent_volume_claim is not None:
        raise InvalidInputError(
            "spec.checkpoint.volume.persistentVolumeClaim",
            volume.persistent_volume_claim.name,
            "cannot be mounted without a cluster",
            "leave spec.checkpoint.volume out (checkpoints then lie in the run directory) or use hostPath",
        )


def _refuse_source(field: str, source: DataSource) -> None:
    claims = {"configMap": source.config_map, "persistentVolumeClaim": source.persistent_volume_claim}
    for name, claim in claims.items():
        if claim is not None:
            raise InvalidInputError(
                f"{field}.{name}", claim.name, "cannot be read without a cluster", f"use {field}.jsonLines with a file"
            )


def changed_fields(old: RLJobSpec, new: RLJobSpec) -> list[str]:
    """Paths at which two specs differ, `spec.algorithm.steps: 10 -> 20`."""
    return list(_differences("spec", old.to_wire(), new.to_wire()))


def _differences(path: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _differences(f"{path}.{key}", old.get(key), new.get(key))
    elif old != new:
        yield f"{path}: {old!r} -> {new!r}"
