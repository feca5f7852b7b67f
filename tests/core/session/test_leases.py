"""A worker that lives keeps its rows, however long they take; what it hands back others take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rljob_core.api.messages import CompleteReward, Heartbeat, WorkKind
from rljob_core.session import HEARTBEAT_S

MakeJob = Callable[..., Any]
LONG_S = 3600.0


def sampled(job: Any) -> Any:
    """The first samples to decode, weights pulled and prompts prefilled; held by group 0."""
    while True:
        job.train(0)
        work = job.take(0)
        if work.kind is WorkKind.DECODE:
            return work
        if work.kind is WorkKind.PREFILL:
            job.complete(0, job.rollouts[0].work.pop())


def work_for(job: Any, seconds: float, silent: Any = None) -> None:
    """Time passes; everybody but one heartbeats."""
    until = job.now + seconds
    while job.now < until:
        job.now += HEARTBEAT_S
        for worker in list(job.session.registry):
            if worker is not silent:
                job.session.heartbeat(worker, Heartbeat(), job.now)
        job.session.tick(job.now)
        job.settle()


def test_a_decode_longer_than_its_lease_is_accepted(job: MakeJob) -> None:
    running = job(evaluation=None)
    work = sampled(running)
    work_for(running, LONG_S)
    assert all(running.complete(0, work))


def test_a_prefill_longer_than_its_lease_is_not_given_out_twice(job: MakeJob) -> None:
    running = job(evaluation=None)
    while running.take(0).kind is not WorkKind.PREFILL:
        running.train(0)
    work_for(running, LONG_S)
    running.take(1)
    assert set(running.take(1).rows).isdisjoint(running.rollouts[0].work[0].rows)


def test_a_reward_longer_than_its_lease_is_accepted(job: MakeJob) -> None:
    running = job(evaluation=None)
    running.complete(0, sampled(running))
    running.take_reward()
    [work] = running.reward_work
    work_for(running, LONG_S)
    assert running.complete_reward(work) == [True] * len(work.rows)


def test_a_worker_that_falls_silent_loses_its_rows(job: MakeJob) -> None:
    running = job(evaluation=None)
    work = sampled(running)
    work_for(running, 4 * HEARTBEAT_S, silent=running.rollouts[0].worker)
    assert not any(running.complete(0, work))


def test_rows_that_a_reward_worker_hands_back_are_taken_by_another(job: MakeJob) -> None:
    running = job(evaluation=None, reward_workers=2)
    running.complete(0, sampled(running))
    running.take_reward()
    [work] = running.reward_work
    running.session.complete_reward(
        CompleteReward(
            rows=work.rows[:1], attempts=work.attempts[:1], rewards=[1.0], exact=[True], responses=["a"],
            returned_rows=work.rows[1:], returned_attempts=work.attempts[1:],
        ),
        running.now,
    )  # fmt: skip
    other = running.session.take_reward(running.join("reward", 1), len(work.rows), running.now)
    assert work.rows[0] not in other.rows
    assert set(work.rows[1:]) & set(other.rows)
