"""A coordinator that is stopped (SIGSTOP): its kernel goes on taking connections, and nobody answers."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from embedded_jobs import PROMPTS, Command, tiny

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

STEPS = 20
MOST_SECONDS = 150
"""43 s until the trainers give up, then a restart from the last checkpoint."""


def test_a_stopped_coordinator_costs_one_restart_and_no_prompt(tmp_path: Path) -> None:
    command = Command(tmp_path, tiny(STEPS))
    process = command.start()
    try:
        command.wait_for_step(process, 7)
        (stopped,) = command.left("coordinator")
        os.kill(stopped, signal.SIGSTOP)
        start = time.monotonic()
        command.finish(process, 0)
        assert time.monotonic() - start < MOST_SECONDS
    finally:
        process.kill()
    status = json.loads((command.run / "status.json").read_text())
    assert (status["phase"], status["attempt"], status["restarts"]["counted"]) == ("Succeeded", 1, 1)
    assert status["firstCause"]["role"] == "trainer"
    assert "does not answer: nothing came within 10 s" in status["firstCause"]["message"]
    assert command.trained() == list(range(STEPS * PROMPTS))
    assert command.left() == []
