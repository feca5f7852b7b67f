"""Packs that the store has lost before they were scored: the attempt ends and says so, late news changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rljob_core.api.messages import CompleteReward, RewardWork, TableName, WorkKind
from rljob_core.api.report import Outcome
from rljob_core.session.reporting import report

MakeJob = Callable[..., Any]


def to_score(job: Any, table: TableName) -> RewardWork:
    """The first finished samples of a table, leased by the reward worker."""
    while True:
        job.now += 0.1
        for group, rollout in enumerate(job.rollouts):
            job.take(group)
            while rollout.work:
                job.complete(group, rollout.work.pop(0))
        job.take_reward()
        while job.reward_work:
            work: RewardWork = job.reward_work.pop(0)
            if f"/{table}/" in work.pack_keys[0]:
                return work
            job.complete_reward(work)
        job.train(0)
        job.beat()


def lose(job: Any, work: RewardWork) -> None:
    lost = CompleteReward(
        rows=[], attempts=[], rewards=[], exact=[], responses=[], lost_rows=work.rows, lost_attempts=work.attempts
    )
    assert job.session.complete_reward(lost, job.now) == []
    job.settle()


def test_lost_samples_of_a_step_fail_the_attempt_and_the_next_one_trains_them(job: MakeJob) -> None:
    running = job(evaluation=None)
    running.run(until=lambda: running.checkpoint is not None)
    lose(running, to_score(running, TableName.ROLLOUT))
    told = report(running.session, 1)
    assert told.outcome is Outcome.FAILED
    assert told.outcome_message.startswith("samples of step 3 are lost: 1 packs are gone from the store, first queue/")
    assert running.session.take_rollout(running.rollouts[0].worker, 1, 0, 0, running.now).kind is WorkKind.STOP
    assert running.resume().run().session.finishing is Outcome.STEPS_DONE


def test_lost_samples_of_an_evaluation_fail_the_attempt(job: MakeJob) -> None:
    running = job()
    lose(running, to_score(running, TableName.EVALUATION))
    assert running.session.message.startswith("samples of the evaluation after step 2 are lost")


def test_a_worker_that_comes_too_late_misses_packs_that_nobody_needs(job: MakeJob) -> None:
    running = job(evaluation=None)
    work = to_score(running, TableName.ROLLOUT)
    assert all(running.complete_reward(work))
    lose(running, work)
    assert running.run().session.finishing is Outcome.STEPS_DONE
