"""`rljob run` as a user starts it, in a folder of its own, on a job that takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rljob_core.journal import lineage_prompts, replay

PROMPTS = 8
"""A step of the tiny job."""
TINY: dict[str, Any] = {
    "model": {
        "init": {
            "config": {
                "model_type": "qwen3_moe",
                "vocab_size": 13,
                "hidden_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "head_dim": 8,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 16,
                "max_position_embeddings": 64,
            }
        },
        "tokenizer": {"characters": "0123456789="},
    },
    "data": {"generator": {"task": "reverse-digits", "digits": 2}, "maxPromptTokens": 8},
    "reward": {"perPosition": {}},
    "evaluation": {"generator": {"task": "reverse-digits", "digits": 2}, "prompts": 8, "everySteps": 1000},
    "algorithm": {"promptsPerStep": PROMPTS, "groupSize": 4},
    "rollout": {"sampling": {"maxResponseTokens": 4}},
    "kvStore": {"managed": {"segmentBytes": 64 << 20}},
    "checkpoint": {"everySteps": 5},
}


class Command:
    """`rljob run job.yaml`, as often as a test starts it."""

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.run = folder, folder / "runs" / job["metadata"]["name"]
        (folder / "job.yaml").write_text(json.dumps(job))
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rljob_operator.cli", "run", "job.yaml"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

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
        return self._having(f"RLJOB_ROLE={role}")

    def rank(self, role: str, local_rank: int) -> int:
        """The process of one device of a role that has one pod."""
        (pid,) = self._having(f"RLJOB_ROLE={role}", f"RLJOB_LOCAL_RANK={local_rank}\0")
        return pid

    def _having(self, *marks: str) -> list[int]:
        every = [f"RLJOB_JOB_FILE={self.run}/job.json", *marks]
        return [pid for pid in _pids() if all(mark.encode() in _environ(pid) for mark in every)]

    def logs(self) -> str:
        return "\n".join(f"== {p.name}\n{p.read_text()[-1000:]}" for p in sorted((self.run / "logs").glob("*.log")))

    def trained(self) -> list[int]:
        """Prompt ids along the lineage that leads to the end, in order."""
        return lineage_prompts(replay((self.run / "checkpoints" / "journal.jsonl").read_bytes()))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def tiny(steps: int, **spec: Any) -> dict[str, Any]:
    """Two-digit numbers in a model of a few thousand parameters; groups of the spec may be given anew."""
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "tiny"}}
    algorithm = TINY["algorithm"] | {"steps": steps} | spec.pop("algorithm", {})
    return job | {"spec": TINY | {"algorithm": algorithm} | spec}
