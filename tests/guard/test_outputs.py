"""docs/outputs.md documents what the code writes, no more and no less: keys come from the functions that write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outputs_page import documented, flat

from rljob_core.api import RLJob
from rljob_core.api.messages import Span, TrainCommand
from rljob_core.api.report import Outcome, Report
from rljob_core.api.status import RLJobStatus
from rljob_core.lifecycle.model import Event
from rljob_core.names import Role
from rljob_core.session import Worker
from rljob_core.session.evaluation import EvaluationResult
from rljob_core.session.figures import Figures
from rljob_core.session.records import Batch, Sample
from rljob_core.session.totals import Totals
from rljob_core.session.training import Command
from rljob_operator.cli_exit_codes import RUN, VALIDATE
from rljob_operator.embedded.rundir import RunDirectory
from rljob_operator.embedded.stores import FileEvents
from rljob_operator.embedded.summary import merged
from rljob_workers.coordinator import summary as coordinator
from rljob_workers.coordinator.run_files import EVENTS, RunFiles

REPORT = Report(
    sequence=1,
    outcome=Outcome.STEPS_DONE,
    first_token_at=2.0,
    eval_exact_match=1.0,
    eval_mean_reward=1.0,
    eval_step=1,
    last_checkpoint_step=1,
)
JOB = RLJob.from_object({"metadata": {"name": "a"}, "spec": {"model": {}, "data": {}, "reward": {}, "algorithm": {}}})
EVALUATION = EvaluationResult(step=1, version=1, exact_match=1.0, mean_reward=1.0).metrics()
SAMPLE = Sample(
    row=0, prompt_id=0, index=0, first_version=0, last_version=0, prompt_tokens=1, response_tokens=1,
    finish_reason="eos", pack_key="k", slot=0, reward=1.0,
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory into which each writer of the coordinator has written."""
    files = RunFiles(tmp_path, 1.0)
    files.metrics(trained(), "train", now=2.0)
    files.metrics(EVALUATION, "evaluation", now=2.0)
    worker = Worker(worker_id=1, role=Role.TRAINER, pod="t", pod_uid="u", rank=0, group=0, last_seen=0)
    files.spans(worker, [Span(stage="train", start=1.0, end=2.0, step=3)])
    files.close()
    return tmp_path


def trained() -> dict[str, float]:
    """Figures of one step, without those that only a trainer can count."""
    batch = Batch(index=0, prompts=[], unscored=0, samples={0: SAMPLE})
    return Figures(Totals(), 1, {}).trained(Command(kind=TrainCommand.TRAIN, step=1, version=1), batch, 0, 1.0)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("command", "codes"), [("run", RUN), ("validate", VALIDATE)])
def test_exit_codes_are_those_of_help(command: str, codes: dict[int, str]) -> None:
    assert documented(f"Exit codes of rljob {command}") == {str(code): meaning for code, meaning in codes.items()}


def test_summary() -> None:
    written = coordinator.summary(REPORT, started_at=1.0, now=3.0, attempt=0, tokens_here=1, sampling_since=2.0)
    command = merged(written, REPORT, RLJobStatus(), created_at=1.0, started_at=1.0, ended_at=3.0, peak_pss_bytes=1)
    assert flat(written) | flat(command) == documented("summary.json").keys()


def test_metrics(run: Path) -> None:
    train, evaluation = lines(run / "metrics.jsonl")
    assert train.keys() <= documented("metrics.jsonl, training").keys()
    assert evaluation.keys() == documented("metrics.jsonl, evaluations").keys()


def test_tensorboard_has_every_key_but_those_named(run: Path) -> None:
    from tensorboard.backend.event_processing import event_file_loader as loader

    (path,) = (run / EVENTS).iterdir()
    tags = {value.tag for event in loader.EventFileLoader(str(path)).Load() for value in event.summary.value}
    left_out = {"kind", "time", "step", "version"}
    train, evaluation = (line.keys() - left_out for line in lines(run / "metrics.jsonl"))
    assert tags == {f"train/{key}" for key in train} | {f"evaluation/{key}" for key in evaluation}


def test_timeline(run: Path) -> None:
    assert lines(run / "timeline.jsonl")[0].keys() == documented("timeline.jsonl").keys()


async def test_lifecycle(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    await FileEvents(directory, lambda: 0.0, lambda event: None).post(
        JOB, Event(type="Normal", reason="r", message="m")
    )
    assert lines(directory.events_file)[0].keys() == documented("lifecycle.jsonl").keys()
