"""A real worker that hangs before anybody knows of it: nothing tells it from a slow one but the time it takes."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]


def test_a_worker_that_hangs_before_it_registers_is_replaced(rljob_run, tiny):
    command = rljob_run(tiny(4, lifecycle={"startupDeadlineSeconds": 30}))
    process = command.start()
    deadline = time.monotonic() + 60
    while not (stopped := command.left("reward")):
        assert time.monotonic() < deadline, "no reward worker"
        time.sleep(0.01)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    command.finish(process, 0)
    status = json.loads((command.run / "status.json").read_text())
    assert (status["phase"], status["attempt"], status["restarts"]["counted"]) == ("Succeeded", 0, 1)
    cause = status["firstCause"]
    assert (cause["pod"], cause["reason"]) == ("tiny-reward-0", "NotRegistered")
    assert "did not register with the coordinator within 30 s" in cause["message"]
    registered = (command.run / "logs" / "tiny-coordinator-0.log").read_text()
    assert "reward rank 0 is here (tiny-reward-0)" not in registered
    assert "reward rank 0 is here (tiny-reward-0-r1)" in registered
    assert command.left() == []
