"""Where a cluster comes from: kind, a local one without Docker, or one that is already there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from commands import CommandError, docker_answers, run
from local.binaries import cache_dir
from local.provider import Local

CLUSTER = "rljob-e2e"


class Provider(Protocol):
    """A cluster that tests can use."""

    def up(self) -> None:
        """Make it, or find it up already."""
        ...

    def down(self) -> None:
        """Remove what `up` made."""
        ...

    def kubeconfig(self) -> Path:
        """Path of an administrator's kubeconfig."""
        ...

    def load_image(self, archive: Path) -> None:
        """Make the image in a Docker archive usable by pods."""
        ...


class Kind:
    """kind, where a Docker engine is."""

    def up(self) -> None:
        if CLUSTER not in run(["kind", "get", "clusters"]).split():
            run(["kind", "create", "cluster", "--name", CLUSTER, "--kubeconfig", self.kubeconfig(), "--wait", "180s"])
        run(["kind", "export", "kubeconfig", "--name", CLUSTER, "--kubeconfig", self.kubeconfig()])

    def down(self) -> None:
        run(["kind", "delete", "cluster", "--name", CLUSTER])

    def kubeconfig(self) -> Path:
        path = cache_dir() / "kind.kubeconfig"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def load_image(self, archive: Path) -> None:
        run(["kind", "load", "image-archive", archive, "--name", CLUSTER])


class Existing:
    """A cluster that someone else runs, reached by KUBECONFIG; nothing of it is removed."""

    def up(self) -> None:
        run(["kubectl", "--kubeconfig", self.kubeconfig(), "get", "--raw", "/readyz"])

    def down(self) -> None:
        """Not ours to remove."""

    def kubeconfig(self) -> Path:
        path = Path(os.environ.get("KUBECONFIG", ""))
        if not path.is_file():
            raise CommandError(f"KUBECONFIG ({str(path)!r}) is not a file")
        return path

    def load_image(self, archive: Path) -> None:
        """Images reach such a cluster by the command in RLJOB_LOAD_COMMAND, called with the archive's path."""
        command = os.environ.get("RLJOB_LOAD_COMMAND")
        if not command:
            raise CommandError("set RLJOB_LOAD_COMMAND to a command that loads an image archive into the cluster")
        run([*command.split(), archive])


PROVIDERS: dict[str, Callable[[], Provider]] = {"kind": Kind, "local": Local, "existing": Existing}


def choose(name: str | None) -> str:
    """The one named (or RLJOB_CLUSTER); else kind where `docker info` succeeds and kind is there, else local."""
    name = name or os.environ.get("RLJOB_CLUSTER") or ("kind" if shutil.which("kind") and docker_answers() else "local")
    if name not in PROVIDERS:
        raise CommandError(f"no provider {name!r}: choose one of {', '.join(PROVIDERS)}")
    return name
