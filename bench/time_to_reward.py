"""How long until the sample's mean reward is 0.95, beside a plain single-process loop on the same model and prompts.

Both run the same number of steps from the same seeds, in turns, on this machine, alone. The clock starts at the first
sampled token (ours: at the first prefill). What the split into processes, queue, store and weight sync costs shows as
the ratio of both.

    python bench/time_to_reward.py [--seeds 0 1 2 3 4] [--steps 250]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from harness import Claim, finish, number

from rljob_operator.yaml_loader import load_file

HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent / "manifests/samples/reverse-digits.yaml"
REWARD = 0.95
MOST_TIMES, MOST_SYNC_SHARE = 2.5, 0.2
RUN_WITHIN_S = 1200


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run. seconds_to_reward: None when no step's mean reward was `REWARD`."""

    seed: int
    seconds_to_reward: float | None
    steps_to_reward: int
    seconds_per_step: float
    sync_share: float = 0.0
    """Weight publication and pull, of the time of all steps."""


def job(seed: int, steps: int) -> dict[str, Any]:
    """The sample with one seed everywhere, without evaluations and checkpoints, which the peer does not have."""
    body: dict[str, Any] = load_file(SAMPLE)[0].body
    spec = body["spec"]
    body["metadata"] = {"name": "time-to-reward"}
    del spec["evaluation"]
    spec["model"]["init"]["seed"] = spec["data"]["generator"]["seed"] = spec["algorithm"]["seed"] = seed
    spec["algorithm"]["steps"] = steps
    spec["checkpoint"] = {"everySteps": steps}
    return body


def ours(file: Path, runs: Path, seed: int) -> Run:
    """The embedded job."""
    command = [sys.executable, "-m", "rljob_operator.cli", "run", str(file), "--runs", str(runs), "--quiet"]
    subprocess.run(command, check=True, stdout=sys.stderr, timeout=RUN_WITHIN_S)
    run = runs / "time-to-reward"
    first = min(span["start"] for span in lines(run / "timeline.jsonl") if span["stage"] == "prefill")
    steps = [line for line in lines(run / "metrics.jsonl") if line["kind"] == "train"]
    reached = next((step for step in steps if step["reward_mean"] >= REWARD), None)
    seconds = steps[-1]["time"] - first
    return Run(
        seed=seed,
        seconds_to_reward=reached["time"] - first if reached else None,
        steps_to_reward=int(reached["step"]) if reached else 0,
        seconds_per_step=seconds / len(steps),
        sync_share=json.loads((run / "summary.json").read_text())["weights"]["seconds"] / seconds,
    )


def plain(file: Path, seed: int) -> Run:
    """The single-process loop."""
    command = [sys.executable, str(HERE / "plain_loop.py"), str(file), "--seeds", str(seed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=RUN_WITHIN_S)
    outcome = json.loads(done.stdout.splitlines()[-1])
    return Run(
        seed=seed,
        seconds_to_reward=outcome["seconds_to_reward"],
        steps_to_reward=outcome["steps_to_reward"] or 0,
        seconds_per_step=outcome["seconds"] / outcome["steps"],
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def middle(runs: Sequence[Run], field: str) -> float:
    """Median; a run that never got there counts as infinitely slow."""
    values = [getattr(run, field) for run in runs]
    return statistics.median(math.inf if value is None else float(value) for value in values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=250)
    arguments = parser.parse_args()
    mine: list[Run] = []
    theirs: list[Run] = []
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "job.yaml"
            file.write_text(yaml.safe_dump(job(seed, arguments.steps)))
            theirs.append(plain(file, seed))
            print("plain loop:", theirs[-1], flush=True)
            mine.append(ours(file, Path(scratch) / "runs", seed))
            print("embedded job:", mine[-1], flush=True)
    ratio = middle(mine, "seconds_to_reward") / middle(theirs, "seconds_to_reward")
    step_ratio = middle(mine, "seconds_per_step") / middle(theirs, "seconds_per_step")
    must = [
        Claim(claim=f"seconds to mean reward {REWARD}, of the plain loop's", limit=MOST_TIMES, measured=ratio),
        Claim(claim="seconds a step at equal work, of the plain loop's", limit=MOST_TIMES, measured=step_ratio),
        Claim(claim="weight sync, share of a step", limit=MOST_SYNC_SHARE, measured=middle(mine, "sync_share")),
    ]
    return finish("time-to-reward", must, _figures(mine), {"plain loop": _figures(theirs)})


def _figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Medians, and every run."""
    medians = {name: number(middle(runs, name)) for name in ("seconds_to_reward", "seconds_per_step", "sync_share")}
    return medians | {"runs": [asdict(run) for run in runs]}


if __name__ == "__main__":
    sys.exit(main())
