"""Any order of work, loss, late answers, expiry, drain and crash: nothing lost, nothing twice, lag within the bound."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rljob_core.api.messages import TrainCommand
from rljob_core.api.report import Outcome
from rljob_core.journal import lineage_prompts, replay
from rljob_core.layouts import Layout


def chaos(job: Any, rng: random.Random, actions: int) -> None:
    """Random actions; answers of lost workers come late."""
    late: list[tuple[int, Any]] = []
    for _ in range(actions):
        if job.session.stopping:
            return
        job.now += rng.random()
        group = rng.randrange(len(job.rollouts))
        rollout = job.rollouts[group]
        match rng.randrange(16):
            case 0 | 1 | 2 | 3:
                job.take(group)
            case 4 | 5 | 6 if rollout.work:
                job.complete(group, rollout.work.pop(rng.randrange(len(rollout.work))))
            case 7 | 8:
                job.take_reward()
            case 9 | 10 if job.reward_work:
                job.complete_reward(job.reward_work.pop(rng.randrange(len(job.reward_work))))
            case 11 | 12:
                job.train(rng.randrange(len(job.trainers)))
            case 13 if rng.random() < 0.3:
                late += [(group, work) for work in job.lose_rollout(group)]
            case 14 if late:
                where, work = late.pop(rng.randrange(len(late)))
                accepted = job.complete(where, work)
                assert not any(accepted), "a lost worker's samples are refused"
            case 15 if rng.random() < 0.1:
                job.now += 100  # every lease runs out
                job.beat()
                job.session.tick(job.now)
                job.settle()
        job.beat()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32), lag=st.integers(0, 3), ranks=st.sampled_from([1, 2]), evaluated=st.booleans(),
    deterministic=st.booleans(),
)  # fmt: skip
def test_any_interleaving(job: Any, seed: int, lag: int, ranks: int, evaluated: bool, deterministic: bool) -> None:
    rng = random.Random(seed)
    base = job().settings
    running = job(
        steps=6,
        max_version_lag=0 if deterministic else lag,
        deterministic=deterministic,
        trainer_layout=Layout(dp=ranks),
        evaluation=dataclasses.replace(base.evaluation, every_steps=rng.choice([1, 2])) if evaluated else None,
        max_sequences=rng.choice([1, 3, 8]),
    )
    for _ in range(rng.randrange(3)):
        chaos(running, rng, rng.randrange(400))
        check(running, lag)
        if rng.random() < 0.5:
            running = running.drain()
            finish(running)
        running = running.resume()
    chaos(running, rng, 200)
    done = finish(running)
    check(done, lag)
    assert done.session.finishing is Outcome.STEPS_DONE
    assert lineage_prompts(replay(done.journal)) == list(range(24))


def finish(job: Any) -> Any:
    """Calm from here on; leases of what was left lying run out first."""
    if not job.session.stopping:
        job.now += 100
        job.beat()
        job.session.tick(job.now)
        job.settle()
        for rollout in job.rollouts:
            rollout.work.clear()
        job.reward_work.clear()
        job.run()
    return job


def check(job: Any, lag: int) -> None:
    assert max(job.lags, default=0) <= lag
    assert len(set(job.published)) == len(job.published)
    commands = [
        [(w.command, w.step, w.version) for w in c if w.command is not TrainCommand.STOP] for c in job.commands.values()
    ]
    shortest = min(map(len, commands), default=0)
    assert all(c[:shortest] == commands[0][:shortest] for c in commands)
