"""The run directory of one job, `runs/<job>`: who owns it, what job it holds, where everything lies."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from rljob_core.api import RLJob
from rljob_core.errors import InvalidInputError
from rljob_core.lifecycle.text import rfc3339
from rljob_core.names import checkpoint_folder
from rljob_operator.substrates.processes import Places


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The job a run directory holds. created_at: unix seconds."""

    job: RLJob
    created_at: float


class RunDirectory:
    """Paths below `runs/<job>`; one supervisor at a time holds its lock."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.job_file = self.path / "job.json"
        self.memory_file = self.path / "memory.json"
        self.status_file = self.path / "status.json"
        self.events_file = self.path / "lifecycle.jsonl"
        self.summary_file = self.path / "summary.json"
        self.report_file = self.path / "report.html"

    def places(self, job: RLJob, folder: Path) -> Places:
        """Where a run keeps things. folder: of the RLJob file."""
        volume = job.spec.checkpoint.volume
        host_path = volume.host_path if volume else None
        own = checkpoint_folder(job.metadata.namespace, job.metadata.name)
        return Places(
            run=self.path,
            checkpoints=(folder / host_path.path).resolve() / own if host_path else self.path / "checkpoints",
            logs=self.path / "logs",
            words=self.path / "words",
            job_file=self.job_file,
            token_file=self.path / "token",
            code=folder.resolve(),
        )

    def newest_checkpoint(self, job: RLJob, folder: Path) -> int | None:
        """Step from which a run of this job would go on; None without any. folder: of the RLJob file."""
        names = (path.name for path in self.places(job, folder).checkpoints.glob("step-*"))
        return max((int(name[5:]) for name in names if name[5:].isdecimal()), default=None)

    def make_checkpoint_directory(self, job: RLJob, folder: Path) -> None:
        """InvalidInputError where nothing can be written. folder: of the RLJob file."""
        path = self.places(job, folder).checkpoints
        field = "spec.checkpoint.volume.hostPath.path" if job.spec.checkpoint.volume else "--runs"
        try:
            path.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path):
                pass
        except OSError as error:
            problem = f"cannot be written ({error.strerror})"
            raise InvalidInputError(field, str(path), problem, "name a directory you may write to") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory; the kernel lets go of it however this process ends. InvalidInputError: another has it,
        or nothing can be written there."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            opened = (self.path / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            problem = f"cannot be written ({error.strerror})"
            raise InvalidInputError("--runs", str(self.path), problem, "choose another --runs") from error
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                owner = lock.read().strip() or "unknown"
                remedy = f"wait for it to end, stop it (kill {owner}), or choose another --runs"
                raise InvalidInputError("--runs", str(self.path), f"is in use by process {owner}", remedy) from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    def identity(self) -> Identity | None:
        """The job begun here; None in a new directory."""
        if not self.job_file.exists():
            return None
        with self.reading(self.job_file) as text:
            body = json.loads(text)
            return Identity(job=RLJob.from_object(body), created_at=float(body["metadata"]["createdAt"]))

    @contextmanager
    def reading(self, file: Path) -> Iterator[str]:
        """Text of a file an earlier command wrote; InvalidInputError when what follows cannot make sense of it."""
        try:
            yield file.read_text(encoding="utf-8")
        except (OSError, ValueError, KeyError, TypeError) as error:
            problem = f"cannot be read ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
            raise InvalidInputError(
                "--runs", str(file), problem, "restore it, or run with --fresh (keeps the old run under another name)"
            ) from error

    def begin(self, identity: Identity) -> None:
        """Write the document workers read; it is also what a later command compares its spec with."""
        body = identity.job.to_wire()
        body["metadata"] |= {"creationTimestamp": rfc3339(identity.created_at), "createdAt": identity.created_at}
        write_atomically(self.job_file, json.dumps(body, indent=1))

    def write_token(self, path: Path, token: str) -> None:
        """Readable by this user only."""
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(token)

    def move_aside(self) -> Path | None:
        """Rename to `<name>.1`, `.2`, …; None when there is nothing to keep."""
        if not self.job_file.exists():
            return None
        number = 1
        while (target := self.path.with_name(f"{self.path.name}.{number}")).exists():
            number += 1
        self.path.rename(target)
        return target


def write_atomically(path: Path, text: str) -> None:
    """Old content or new content, never a part, also after a crash."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
