"""The samples without a cluster: `make demo` within its bounds, then the one that goes on from its checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import summaries
import torch
from live import ROOT
from transformers import AutoModelForCausalLM

from rljob_workers.model import Placement, build_policy, read_directory

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

MOST_SECONDS, MOST_STARTUP_SECONDS, MOST_PSS_BYTES = 240, 25, 6 << 30
LEAST_EXACT_MATCH = 0.95
SECOND_STEPS = 240
"""Of the second sample: where its mean reward is well above what it begins with (0.3)."""


def test_the_demo_learns_within_its_bounds(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "manifests/samples", tmp_path / "manifests/samples")  # they refer to runs/ beside them
    samples, runs = tmp_path / "manifests/samples", tmp_path / "runs"
    demo = ["make", "--silent", "demo", f"SAMPLE={samples}/reverse-digits.yaml", f"ARGUMENTS=--runs {runs}"]
    most = finished(demo, tmp_path / "demo.log")
    run = runs / "reverse-digits"
    summary = json.loads((run / "summary.json").read_text())
    print(json.dumps(summary | {"most_pss_bytes": most}))
    assert summaries.violated(summary) == []
    assert summary["eval_exact_match"] >= LEAST_EXACT_MATCH
    assert summary["max_version_lag"] <= 1
    assert summary["seconds"] <= MOST_SECONDS
    assert summary["startup_seconds"] <= MOST_STARTUP_SECONDS
    assert 0 < most <= MOST_PSS_BYTES
    for left in ("metrics.jsonl", "samples.jsonl", "report.html"):
        assert (run / left).stat().st_size, left
    assert list(run.rglob("events.out.tfevents.*"))
    assert_transformers_agrees(run / "checkpoints/latest/model")

    second = samples / "jsonl-checkpoint.yaml"
    text = second.read_text().replace("/tmp/rljob", str(tmp_path))  # its volume outlives runs
    assert "steps: 400" in text
    second.write_text(text.replace("steps: 400", f"steps: {SECOND_STEPS}"))
    rljob = str(Path(sys.executable).with_name("rljob"))
    finished([rljob, "validate", str(second)], tmp_path / "validate.log")
    finished([rljob, "run", str(second), "--runs", str(runs)], tmp_path / "run.log")
    summary = json.loads((runs / "jsonl-checkpoint/summary.json").read_text())
    print(json.dumps(summary))
    assert summaries.violated(summary) == []
    assert summary["eval_mean_reward"] > 0.5, "learns to sort, from what it learned of reversing"


def assert_transformers_agrees(directory: Path) -> None:
    """A checkpoint of a job loads in `transformers`, and gives the logits our own model gives."""
    theirs = AutoModelForCausalLM.from_pretrained(directory)
    config, tensors = read_directory(directory)
    ours = build_policy(config, Placement())
    ours.load_tensors(tensors)
    ids = torch.randint(0, config["vocab_size"], (16, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = theirs(ids).logits
        assert (ours(ids) - logits).abs().max() <= 1e-5
    assert logits.std() > 0.1, "a trained model, not an empty one"


def finished(command: list[str], log: Path) -> int:
    """Run a command that must end with 0; the largest memory of it and its descendants, in bytes."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    most = 0
    while process.poll() is None:
        most = max(most, pss_bytes(process.pid))
        time.sleep(1.0)
    assert process.returncode == 0, log.read_text()
    return most


def pss_bytes(root: int) -> int:
    """Proportional set size of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        total += _pss(pid)
    return total


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
