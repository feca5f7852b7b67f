"""`rljob run` once more, for real: on a run that Failed, and on one that was killed after its last step."""

from __future__ import annotations

import json

import pytest

from rljob_core.journal import replay

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

PROMPTS, SAMPLES = 8, 4

REWARD = f"""
import pathlib

calls = 0


def score(prompt, response, answer, fields):
    global calls
    calls += 1
    if calls > 7 * {PROMPTS * SAMPLES} and not (pathlib.Path(__file__).parent / "mended").exists():
        raise RuntimeError("the scorer broke")
    return float(response[:1] == answer[:1])
"""


def records(command, kind):
    lines = (command.run / "checkpoints" / "journal.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_a_failed_run_goes_on_from_its_checkpoint_once_the_cause_is_mended(rljob_run, tiny):
    command = rljob_run(tiny(12, reward={"function": {"entryPoint": "mine:score"}}, evaluation=None))
    (command.folder / "mine.py").write_text(REWARD)
    out = command.finish(command.start(), 64)
    assert "raised RuntimeError: the scorer broke" in out
    assert "run the same command again to try once more from the checkpoint of step 5, or with --fresh anew" in out
    startup = json.loads((command.run / "summary.json").read_text())["startup_seconds"]

    (command.folder / "mended").touch()
    out = command.finish(command.start(), 0)
    assert "tiny ended Failed (InvalidInput): trying again from the checkpoint of step 5, with 3 restarts" in out
    assert "pods" not in out
    status = json.loads((command.run / "status.json").read_text())
    assert (status["phase"], status["attempt"], status["resumedStep"]) == ("Succeeded", 1, 5)
    assert status["restarts"] == {"counted": 0, "uncounted": 1}
    assert "firstCause" not in status
    assert command.trained() == list(range(12 * PROMPTS)), "each prompt once along the lineage"
    issued = [record["version"] for record in records(command, "version")]
    assert issued == sorted(set(issued)), "no version twice"
    assert len(records(command, "first_token")) == 1
    assert json.loads((command.run / "summary.json").read_text())["startup_seconds"] == pytest.approx(startup, abs=0.01)


def test_a_run_killed_after_its_last_step_ends_with_figures(rljob_run, tiny):
    """As SIGKILL leaves it between the last checkpoint and the end: nothing is left to train."""
    command = rljob_run(tiny(5))
    command.finish(command.start(), 0)
    before = json.loads((command.run / "summary.json").read_text())
    for name in ("memory.json", "status.json", "summary.json", "report.html"):
        (command.run / name).unlink()
    out = command.finish(command.start(), 0)
    assert "Succeeded after" in out
    assert "held-out exact match" in out
    after = json.loads((command.run / "summary.json").read_text())
    same = ("steps", "reward_mean", "max_version_lag", "startup_seconds", "eval_step", "last_checkpoint_step")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert after["experts"]["max_over_mean"] >= 1
    assert after["tokens_generated"] > 0
    assert after["tokens_per_second"] > 0
    assert replay((command.run / "checkpoints" / "journal.jsonl").read_bytes()).last_step == 5
    assert (command.run / "report.html").exists()
