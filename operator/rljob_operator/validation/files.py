"""The files an RLJob points at, as far as this machine can see them."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from rljob_core import names
from rljob_core.api import RLJob
from rljob_core.api.inputs import DataSource, Model

Source = TypeVar("Source", bound=DataSource)


class FileReader:
    """Reads paths of a spec. A relative path is relative to the RLJob's own file; `unseen` collects what is elsewhere.

    folder: the folder of that file, None when there is none. here: the job runs on this machine, so that an absolute
    path that does not exist is missing, not elsewhere. python_path: PYTHONPATH of the command.
    """

    def __init__(self, folder: Path | None, *, here: bool = False, python_path: str = "") -> None:
        self.folder, self.here, self.python_path = folder, here, python_path
        self.unseen: list[str] = []

    def __call__(self, path: str) -> str | None:
        """Text of a file; None where only a pod can see it. Raises OSError where it ought to be seen here."""
        where = self._locate(Path(path))
        if where is None:
            if path not in self.unseen:
                self.unseen.append(path)
            return None
        return where.read_text(encoding="utf-8")

    def peek(self, path: str, count: int) -> tuple[bytes, int]:
        """The first bytes of a file that lies where this machine sees it, and its size. Raises OSError."""
        where = self._locate(Path(path))
        if where is None:
            raise FileNotFoundError(path)
        with where.open("rb") as file:
            return file.read(count), where.stat().st_size

    def sees(self, path: str) -> bool:
        """Whether the path is to be found on this machine, if anywhere."""
        return self._locate(Path(path)) is not None

    def _locate(self, path: Path) -> Path | None:
        if not path.is_absolute():
            return self.folder / path if self.folder else None
        return path if not _in_a_pod(path) and (self.here or path.exists()) else None


def _in_a_pod(path: Path) -> bool:
    """Whether the path lies in a ConfigMap or claim that is mounted into pods only."""
    return any(path.is_relative_to(mount) for mount in (names.MOUNT_DATA, names.MOUNT_EVALUATION))


def with_absolute_paths(job: RLJob, folder: Path) -> RLJob:
    """The job with relative paths of model, tokenizer and data made absolute, for processes started elsewhere."""
    spec = job.spec
    evaluation = spec.evaluation and _absolute_source(spec.evaluation, folder)
    update = {
        "model": _absolute_model(spec.model, folder),
        "data": _absolute_source(spec.data, folder),
        "evaluation": evaluation,
    }
    return job.model_copy(update={"spec": spec.model_copy(update=update)})


def _absolute_model(model: Model, folder: Path) -> Model:
    update: dict[str, object] = {}
    if model.path is not None:
        update["path"] = _absolute(model.path, folder)
    if model.tokenizer is not None and model.tokenizer.path is not None:
        update["tokenizer"] = model.tokenizer.model_copy(update={"path": _absolute(model.tokenizer.path, folder)})
    return model.model_copy(update=update)


def _absolute_source(source: Source, folder: Path) -> Source:
    if source.json_lines is None:
        return source
    lines = source.json_lines.model_copy(update={"path": _absolute(source.json_lines.path, folder)})
    return source.model_copy(update={"json_lines": lines})


def _absolute(path: str, folder: Path) -> str:
    return str((folder / path).resolve()) if not Path(path).is_absolute() else path
