"""`rljob run` for real: every role as a process, a small model, a few steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rljob_core.journal import replay

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

PROMPTS = 8
JOB = """
apiVersion: rljob.dev/v1alpha1
kind: RLJob
metadata: {{name: tiny}}
spec:
  model:
    init:
      config: {{model_type: qwen3_moe, vocab_size: 13, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
               num_key_value_heads: 1, head_dim: 8, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16,
               max_position_embeddings: 64}}
    tokenizer: {{characters: "0123456789="}}
  data: {{generator: {{task: reverse-digits, digits: 2}}, maxPromptTokens: 8}}
  reward: {{perPosition: {{}}}}
  evaluation: {{generator: {{task: reverse-digits, digits: 2}}, prompts: 8, everySteps: 1000}}
  algorithm: {{steps: {steps}, promptsPerStep: {prompts}, groupSize: 4}}
  rollout: {{sampling: {{maxResponseTokens: 4}}}}
  kvStore: {{managed: {{segmentBytes: 67108864}}}}
  checkpoint: {{everySteps: 5}}
"""

SUMMARY = (
    "phase", "steps", "seconds", "startup_seconds", "tokens_generated", "tokens_per_second", "eval_exact_match",
    "eval_mean_reward", "policy_version", "max_version_lag", "logprob_gap", "kv", "queue", "weights", "experts",
    "restarts", "phase_seconds", "peak_pss_bytes",
)  # fmt: skip


class Command:
    """`rljob run` in a folder of its own."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.run = folder, folder / "runs" / "tiny"
        (folder / "job.yaml").write_text(JOB.format(steps=steps, prompts=PROMPTS))

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rljob_operator.cli", "run", "job.yaml"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str], code: int) -> str:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == code, out
        return out

    def wait_for_step(self, process: subprocess.Popen[str], step: int) -> None:
        metrics = self.run / "metrics.jsonl"
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            if metrics.exists() and any(f'"step": {step},' in line for line in metrics.read_text().splitlines()):
                return
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        raise AssertionError(f"step {step} was not reached; {self.logs()}")

    def left(self, role: str = "") -> list[int]:
        """Processes of this run (of a role), by their environment."""
        marks = [f"RLJOB_JOB_FILE={self.run}/job.json".encode(), f"RLJOB_ROLE={role}".encode()]
        return [pid for pid in _pids() if all(mark in _environ(pid) for mark in marks)]

    def logs(self) -> str:
        return "\n".join(f"== {p.name}\n{p.read_text()[-1000:]}" for p in sorted((self.run / "logs").glob("*.log")))

    def trained(self) -> list[int]:
        """Prompt ids along the lineage that leads to the end, in order."""
        journal = replay((self.run / "checkpoints" / "journal.jsonl").read_bytes())
        return [prompt for step in sorted(journal.trained) for prompt in journal.trained[step]]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def test_a_short_job_succeeds_and_leaves_files_but_no_process(tmp_path):
    command = Command(tmp_path, steps=4)
    process = command.start()
    try:
        out = command.finish(process, 0)
    finally:
        process.kill()
    assert "Succeeded" in out
    assert command.left() == []
    summary = json.loads((command.run / "summary.json").read_text())
    assert [key for key in SUMMARY if key not in summary] == []
    assert (summary["phase"], summary["steps"], summary["restarts"]) == ("Succeeded", 4, 0)
    assert summary["logprob_gap"] < 1e-4
    for name in ("metrics.jsonl", "samples.jsonl", "timeline.jsonl", "report.html", "checkpoints/step-4/model"):
        assert (command.run / name).exists(), name
    assert list((command.run / "events").iterdir())
    assert command.trained() == list(range(4 * PROMPTS))
    assert "has already ended" in command.finish(command.start(), 0)


def test_kill_and_ctrl_c_leave_nothing_behind_and_resume_trains_every_prompt_once(tmp_path):
    steps = 60
    command = Command(tmp_path, steps=steps)
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


def test_b2_lost_reward_worker_is_replaced_lost_trainer_restarts_the_gang(tmp_path):
    steps = 40
    command = Command(tmp_path, steps=steps)
    process = command.start()
    try:
        command.wait_for_step(process, 3)
        os.kill(command.left("reward")[0], signal.SIGKILL)
        command.wait_for_step(process, 12)
        os.kill(command.left("trainer")[0], signal.SIGKILL)
        command.finish(process, 0)
    finally:
        process.kill()
    assert command.trained() == list(range(steps * PROMPTS))
    status = json.loads((command.run / "status.json").read_text())
    assert (status["phase"], status["attempt"], status["restarts"]["counted"]) == ("Succeeded", 1, 2)
    assert status["firstCause"]["role"] == "trainer"
    assert status["firstCause"]["reason"] == "SIGKILL"
