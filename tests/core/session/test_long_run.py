"""What must stay true over hundreds of steps: nothing grows, nothing is thrown away."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rljob_core.api.messages import WorkKind

MakeJob = Callable[..., Any]


@pytest.mark.parametrize("lag", [0, 2])
def test_a_session_of_200_steps_is_no_larger_than_one_of_20_rl44(job: MakeJob, lag: int) -> None:
    """Everything it holds, as bytes, at the same point of each step; numbers grow by a byte here and there."""
    running, sizes = job(steps=200, max_version_lag=lag, lease_s=1.0), {}
    while not running.session.stopping:
        step = running.session.step
        running.round()
        if running.session.step > step:
            sizes[running.session.step] = len(pickle.dumps(running.session))
    early = max(size for step, size in sizes.items() if 10 <= step < 30)
    late = max(size for step, size in sizes.items() if 180 <= step < 200)
    assert late <= 1.02 * early
    assert len(running.store) == 0


def test_slow_samples_are_trained_like_fast_ones_rl28(job: MakeJob) -> None:
    """Lengths of two kinds, the long ones done many rounds later: what is generated is what is trained, nothing is
    thrown away for being late, and lag stays within the bound."""
    rng = random.Random(1)
    running = job(steps=30, evaluation=None, max_version_lag=2)
    generated: Counter[int] = Counter()
    late: list[tuple[float, int, Any]] = []
    running.length = lambda row: 40 if row % 7 == 0 else 3

    def round_of_all() -> None:
        running.now += 0.1
        for group, rollout in enumerate(running.rollouts):
            work = running.take(group)
            if work.kind is WorkKind.DECODE:
                generated.update(running.length(row) for row in work.rows)
                rollout.work.remove(work)
                slow = any(running.length(row) == 40 for row in work.rows)
                late.append((running.now + rng.uniform(1.0, 4.0) * slow, group, work))
            while rollout.work:
                running.complete(group, rollout.work.pop(0))
        for entry in [entry for entry in late if entry[0] <= running.now]:
            late.remove(entry)
            assert all(running.complete(entry[1], entry[2]))
        running.take_reward()
        while running.reward_work:
            running.complete_reward(running.reward_work.pop(0))
        running.train(0)
        running.beat()

    while not running.session.stopping:
        round_of_all()
    trained = Counter(running.length(row) for work in running.commands[0] for row in work.rows)
    assert trained == generated
    assert sum(trained.values()) == 30 * 8
    assert max(running.lags) <= 2
