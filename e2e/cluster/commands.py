"""Running other programs: one place that says what failed and shows its output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


class CommandError(RuntimeError):
    """A program ended with an error, or is not there."""


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    show: bool = False,
) -> str:
    """Run to the end and return stdout. `env` is added to ours; `show` lets the output through to the terminal."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            env=None if env is None else {**os.environ, **env},
            cwd=cwd,
            input=stdin,
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.PIPE,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(f"{words[0]} is not installed") from error
    if done.returncode:
        raise CommandError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout or ''}{done.stderr or ''}".strip())
    return done.stdout or ""


def say(message: str) -> None:
    """Progress for the person who waits; stdout stays free for results."""
    print(message, file=sys.stderr, flush=True)


def docker_answers() -> bool:
    """Whether a Docker engine is there."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
