"""Deterministic mode, as its sample uses it: one seed, one result, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rljob_operator.yaml_loader import load_file

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

SAMPLE = Path(__file__).resolve().parents[2] / "manifests/samples/deterministic.yaml"
MEASURED = {"time", "seconds", "train_seconds", "tokens_per_second"}
"""Figures of metrics.jsonl that a clock has to do with."""


def job(seed: int) -> dict[str, Any]:
    """The sample, shortened, with an evaluation that is sampled too. seed: of sampling alone."""
    (document,) = load_file(SAMPLE)
    spec = document.body["spec"]
    spec["algorithm"] |= {"steps": 4, "promptsPerStep": 8, "groupSize": 4, "seed": seed}
    spec["evaluation"] = {"generator": {"task": "reverse-digits", "seed": 2}, "prompts": 8, "everySteps": 2}
    spec["evaluation"]["decoding"] = "Sampled"
    return document.body


def result(command: Any) -> dict[str, Any]:
    """What a run left, without what a clock has to do with."""
    lines = [json.loads(line) for line in (command.run / "metrics.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in line.items() if name not in MEASURED} for line in lines]
    checkpoint = command.run / "checkpoints" / "step-4"
    files = [path for folder in ("model", "trainer") for path in sorted((checkpoint / folder).iterdir())]
    return {
        "metrics": sorted(kept, key=lambda line: (line["kind"], line["step"])),
        "samples": (command.run / "samples.jsonl").read_text(),
        "checkpoint": {str(path.relative_to(checkpoint)): path.read_bytes() for path in files},
    }


def test_one_seed_gives_the_same_tokens_losses_and_weights_and_another_does_not(rljob_run) -> None:
    """All three at once: neither run has the machine to itself, so their processes interleave differently."""
    commands = [rljob_run(job(seed), folder) for seed, folder in ((1, "first"), (1, "second"), (2, "other"))]
    processes = [command.start() for command in commands]
    for command, process in zip(commands, processes, strict=True):
        command.finish(process, 0)
    first, second, other = (result(command) for command in commands)
    assert [line["step"] for line in first["metrics"]] == [2, 4, 1, 2, 3, 4]
    for what in first:
        assert first[what] == second[what], what
        assert first[what] != other[what], what
    weights = [run["checkpoint"]["model/model.safetensors"] for run in (first, other)]
    assert weights[0] != weights[1]
    losses = [[line["loss"] for line in run["metrics"] if line["kind"] == "train"] for run in (first, other)]
    assert not set(losses[0]) & set(losses[1])
