"""A coordinator that cannot have its port, as a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from store_processes import StoreProcesses

from rljob_core import names
from rljob_core.api.report import TerminationMessage
from rljob_core.errors import EXIT_FAILED
from rljob_core.names import Role

pytestmark = pytest.mark.processes


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcesses]:
    (tmp_path / "store").mkdir()
    running = StoreProcesses(tmp_path / "store")
    yield running.up(segments=0)
    running.kill()


def test_a_port_in_use_ends_it_with_the_address_in_its_last_words(
    stage: Callable[..., Any], store: StoreProcesses, tmp_path: Path
) -> None:
    """The attempt fails, and the next one has other ports (embedded) or another pod."""
    job_file, words_file = tmp_path / "job.json", tmp_path / "words.json"
    job_file.write_text(json.dumps(stage().job.to_wire()))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        environment = {
            names.ENV_JOB_FILE: str(job_file),
            names.ENV_ROLE: str(Role.COORDINATOR),
            names.ENV_TERMINATION_LOG: str(words_file),
            names.ENV_LISTEN: address,
            names.ENV_STORE_MASTER: store.address,
            names.ENV_CHECKPOINT_DIR: str(tmp_path / "checkpoints"),
        }
        command = [sys.executable, "-m", "rljob_workers"]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, timeout=30, check=False)
    assert done.returncode == EXIT_FAILED, done.stderr.decode()
    words = TerminationMessage.model_validate_json(words_file.read_bytes())
    assert not words.invalid_input
    assert address.replace(":", "', ") in words.message
    assert "address already in use" in words.message
