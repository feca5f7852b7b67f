"""`rljob run` for real: every role as a process, a small model, a few steps."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
import summaries
from outputs_page import documented, flat

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

PROMPTS = 8


def test_a_short_job_succeeds_and_leaves_files_but_no_process(rljob_run, tiny):
    command = rljob_run(tiny(4))
    process = command.start()
    try:
        out = command.finish(process, 0)
    finally:
        process.kill()
    assert "Succeeded" in out
    assert command.left() == []
    summary = json.loads((command.run / "summary.json").read_text())
    assert summaries.violated(summary) == []
    assert summary["steps"] == 4
    for name in ("metrics.jsonl", "samples.jsonl", "timeline.jsonl", "report.html", "checkpoints/step-4/model"):
        assert (command.run / name).exists(), name
    assert list((command.run / "events").iterdir())
    assert_documented(command)
    assert command.trained() == list(range(4 * PROMPTS))
    assert "has already ended" in command.finish(command.start(), 0)


def assert_documented(command):
    """Every file and every key that a run leaves is in docs/outputs.md, and none that it does not leave."""
    assert {path.name for path in command.run.iterdir()} == documented("Files").keys()
    metrics = [json.loads(line) for line in (command.run / "metrics.jsonl").read_text().splitlines()]
    for kind, section in (("train", "training"), ("evaluation", "evaluations")):
        keys = {key for line in metrics if line["kind"] == kind for key in line}
        assert keys == documented(f"metrics.jsonl, {section}").keys()
    for name in ("samples.jsonl", "timeline.jsonl", "lifecycle.jsonl"):
        assert json.loads((command.run / name).read_text().splitlines()[0]).keys() == documented(name).keys()
    assert flat(json.loads((command.run / "summary.json").read_text())) == documented("summary.json").keys()


def test_kill_and_ctrl_c_leave_nothing_behind_and_resume_trains_every_prompt_once(rljob_run, tiny):
    steps = 60
    command = rljob_run(tiny(steps))
    process = command.start()
    try:
        command.wait_for_step(process, 7)
        process.kill()
        process.communicate()
        time.sleep(5)
        assert command.left() == [], "a killed command leaves nothing after 5 s"

        process = command.start()
        command.wait_for_step(process, 12)
        process.send_signal(signal.SIGINT)
        out = command.finish(process, 75)
        assert "run the same command again to resume" in out
        assert command.left() == []
        assert (command.run / "report.html").exists()
        status = json.loads((command.run / "status.json").read_text())
        assert (status["phase"], status["reason"]) == ("Pending", "Drained")
        drained_at = len(command.trained()) // PROMPTS
        assert 12 <= drained_at < steps
        assert (command.run / "checkpoints" / f"step-{drained_at}").exists(), "a drain checkpoints what it has trained"

        process = command.start()
        command.finish(process, 0)
    finally:
        process.kill()
    assert command.trained() == list(range(steps * PROMPTS))
    assert command.left() == []


def test_b2_lost_reward_worker_is_replaced_one_of_two_trainer_ranks_restarts_the_gang(rljob_run, tiny):
    steps = 40
    command = rljob_run(tiny(steps, trainer={"devicesPerPod": 2, "layout": {"dp": 2, "ep": 2}}))
    process = command.start()
    try:
        command.wait_for_step(process, 3)
        os.kill(command.left("reward")[0], signal.SIGKILL)
        command.wait_for_step(process, 12)
        os.kill(command.rank("trainer", 1), signal.SIGKILL)
        command.finish(process, 0)
    finally:
        process.kill()
    assert command.trained() == list(range(steps * PROMPTS))
    records = [json.loads(line) for line in (command.run / "checkpoints/journal.jsonl").read_text().splitlines()]
    trained: list[int] = []
    for record in records:  # what no rollback has undone is trained once, in order
        if record["kind"] == "trained":
            assert record["first_prompt"] == len(trained)
            trained += range(record["first_prompt"], record["first_prompt"] + record["prompts"])
        elif record["kind"] == "rolled_back":
            del trained[record["step"] * PROMPTS :]
    assert trained == list(range(steps * PROMPTS))
    issued = [record["version"] for record in records if record["kind"] == "version"]
    assert issued == list(range(len(issued))), "versions go on after a rollback: none is issued twice"
    status = json.loads((command.run / "status.json").read_text())
    assert (status["phase"], status["attempt"], status["restarts"]["counted"]) == ("Succeeded", 1, 2)
    cause = status["firstCause"]
    assert (cause["role"], cause["rank"], cause["exitCode"]) == ("trainer", 1, 137)
    assert cause["message"] == "rank 1: killed by SIGKILL"
