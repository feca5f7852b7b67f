"""A job from start to end over real sockets: files, exit codes, losses, drain and resume."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import summaries

from rljob_core.api.messages import Ack, Committed, RolloutWork, TakeRollout, WorkKind
from rljob_core.api.report import Outcome, TerminationMessage
from rljob_core.errors import EXIT_DRAINED, EXIT_INVALID_INPUT, InvalidInputError
from rljob_core.journal import lineage_prompts, replay
from rljob_core.names import Role
from rljob_workers import checkpoints
from rljob_workers.link import register_message

pytestmark = pytest.mark.processes
MakeStage = Callable[..., Any]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_three_steps_to_success_leave_every_file(stage: MakeStage) -> None:
    job = stage()
    async with job.coordinator() as coordinator:
        assert await job.run_workers(coordinator) == 0
    run = job.path / "run"
    summary = json.loads((run / "summary.json").read_text())
    assert summary.keys() >= summaries.FIGURES - {"peak_pss_bytes"}, "the command adds what its processes took"
    assert (summary["phase"], summary["steps"], summary["policy_version"]) == ("Succeeded", 3, 3)
    assert summary["queue"]["samples"] == 24
    assert summary["experts"]["max_over_mean"] == 1.5
    metrics = lines(run / "metrics.jsonl")
    assert [m["step"] for m in metrics if m["kind"] == "train"] == [1, 2, 3]
    assert [m["step"] for m in metrics if m["kind"] == "evaluation"] == [2, 3]
    assert {"prompt", "response", "reward", "version"} <= set(lines(run / "samples.jsonl")[0])
    assert list((run / "events").glob("events.out.tfevents.*"))
    words = TerminationMessage.model_validate_json((job.path / "coordinator-0.json").read_bytes())
    assert words.report is not None
    assert words.report.outcome is Outcome.STEPS_DONE
    journal = replay((job.path / "checkpoints" / "journal.jsonl").read_bytes())
    assert lineage_prompts(journal) == job.trained == list(range(12))
    assert [k for k in job.pool.values if not k.startswith("job/weights")] == []


@pytest.mark.parametrize("bound", [0, 1, 2])
async def test_lag_stays_within_the_bound(stage: MakeStage, bound: int) -> None:
    job = stage(max_version_lag=bound, steps=6)
    async with job.coordinator() as coordinator:
        assert await job.run_workers(coordinator) == 0
    assert 0 <= max(job.lags) <= bound
    assert min(job.lags) >= 0


async def test_lost_rollout_loses_nothing_and_its_replacement_goes_on_rl19(stage: MakeStage) -> None:
    """The group breaks off with samples in hand; the next one of its index pulls before it works."""
    job = stage(steps=5)

    def doomed_then_replaced() -> None:
        job.rollout(0, incarnation=0, die_after=1)
        job.rollout(0, incarnation=1)

    async with job.coordinator() as coordinator:
        workers = [job.trainer, job.reward, doomed_then_replaced, lambda: job.rollout(1)]
        await asyncio.gather(*(asyncio.to_thread(w) for w in workers))
        assert await coordinator == 0
    assert job.trained == list(range(20))
    assert max(job.lags) <= 1


async def test_late_completion_of_a_replaced_worker_is_refused_rl33(stage: MakeStage) -> None:
    job = stage()

    def late() -> list[bool]:
        old, new = job.link(Role.ROLLOUT, 0, 0), job.link(Role.ROLLOUT, 0, 1)
        old.start(register_message(job.context(Role.ROLLOUT, 0, 0)))
        version, held = -1, None
        while held is None:
            work = old.call(TakeRollout(version=version, free_sequences=8, in_flight=0), RolloutWork)
            if work.kind is WorkKind.PULL:
                version = work.version
            elif work.kind is WorkKind.PREFILL:
                old.call(job.prefilled(work, [f"kv/{version}/{p}" for p in work.prompts]), Ack)
            elif work.kind is WorkKind.DECODE:
                held = work
        new.start(register_message(job.context(Role.ROLLOUT, 0, 1)))
        accepted = new.call(job.decoded(held), Committed).accepted
        old.close()
        new.goodbye()
        new.close()
        job.rollout(0, incarnation=2)
        return accepted

    async with job.coordinator() as coordinator:
        workers = [asyncio.to_thread(w) for w in (job.trainer, job.reward)]
        accepted, *_ = await asyncio.gather(asyncio.to_thread(late), *workers)
        assert await coordinator == 0
    assert accepted
    assert not any(accepted)
    assert job.trained == list(range(12))


async def test_drain_and_resume_train_each_prompt_once(stage: MakeStage) -> None:
    job = stage(steps=12)

    async def drain() -> None:
        report = await job.report()
        while report.step < 3:
            report = await job.report(f"?after={report.sequence}&wait=5")
        assert await job.direct(1, action="Drain") == (200, '{"appliedRevision": 1}')

    async with job.coordinator() as coordinator:
        assert await job.run_workers(coordinator, drain()) == EXIT_DRAINED
    stopped_at = len(job.trained) // 4
    assert 3 <= stopped_at < 12
    async with job.coordinator() as coordinator:
        assert await job.run_workers(coordinator) == 0
    assert job.trained == list(range(48))
    journal = replay((job.path / "checkpoints" / "journal.jsonl").read_bytes())
    assert lineage_prompts(journal) == list(range(48))
    assert journal.highest_version == 13, "versions go on after a resume: 12 steps and two starts"


async def test_sigterm_drains_with_a_checkpoint(stage: MakeStage) -> None:
    job = stage(steps=200)

    async def terminate() -> None:
        report = await job.report()
        while report.step < 1:
            report = await job.report(f"?after={report.sequence}&wait=5")
        os.kill(os.getpid(), signal.SIGTERM)

    async with job.coordinator() as coordinator:
        assert await job.run_workers(coordinator, terminate()) == EXIT_DRAINED
    newest = checkpoints.newest(job.path / "checkpoints")
    assert newest is not None
    assert newest.meta.step == len(job.trained) // 4


async def test_invalid_input_of_a_worker_ends_everything_with_64(stage: MakeStage) -> None:
    job = stage(steps=100)

    def fails() -> None:
        with job.link(Role.REWARD) as link:
            link.start(register_message(job.context(Role.REWARD)))
            raise InvalidInputError("spec.reward.function", "m:f", "does not exist", "name a function")

    async with job.coordinator() as coordinator:
        workers = [asyncio.to_thread(w) for w in (job.trainer, lambda: job.rollout(0), fails)]
        results = await asyncio.gather(*workers, return_exceptions=True)
        assert await coordinator == EXIT_INVALID_INPUT
    assert results[0] is results[1] is None, "the others are told to stop"
    words = TerminationMessage.model_validate_json((job.path / "coordinator-0.json").read_bytes())
    assert words.invalid_input
    assert "m:f" in words.message


async def test_lost_trainer_fails_the_attempt(stage: MakeStage) -> None:
    job = stage(steps=100)

    def broken() -> None:
        with job.link(Role.TRAINER) as link:
            link.start(register_message(job.context(Role.TRAINER)))
            raise RuntimeError("loss is nan")

    async with job.coordinator() as coordinator:
        workers = [asyncio.to_thread(w) for w in (lambda: job.rollout(0), broken)]
        await asyncio.gather(*workers, return_exceptions=True)
        assert await coordinator == 1
    words = TerminationMessage.model_validate_json((job.path / "coordinator-0.json").read_bytes())
    assert "loss is nan" in words.message
