"""`rljob run` on tiny jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import embedded_jobs
import pytest
from embedded_jobs import Command


@pytest.fixture
def rljob_run(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Makes commands of jobs, in folders of their own where a test has several; none is left when the test ends."""
    commands: list[Command] = []

    def make(job: dict[str, Any], folder: str = ".") -> Command:
        commands.append(Command(tmp_path / folder, job))
        return commands[-1]

    yield make
    for command in commands:
        if command.process is not None:
            command.process.kill()
            command.process.communicate()


@pytest.fixture
def tiny() -> Callable[..., dict[str, Any]]:
    return embedded_jobs.tiny
