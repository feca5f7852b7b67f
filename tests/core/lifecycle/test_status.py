"""What is written, and when."""

from __future__ import annotations

import pytest

from rljob_core.api.report import Report
from rljob_core.lifecycle.model import ApplyError
from rljob_core.lifecycle.text import rfc3339, shorten, three_digits


def test_no_change_gives_the_same_object(world):
    world.run()
    status = world.status
    assert world.step(100).status is status


def test_progress_at_most_every_ten_seconds(world):
    world.run()
    world.report = Report(sequence=2, step=1, reward_mean=0.51239, tokens_per_second=12345.0)
    world.step(5)
    assert world.status.step == 0
    plan = world.step(6)
    assert (world.status.step, world.status.reward, world.status.tokens_per_second) == (1, "0.512", "12300")
    assert plan.status.progress == "1/10"
    world.report = Report(sequence=3, step=2, reward_mean=0.51239)
    plan = world.step(1)
    assert plan.status.step == 1
    assert plan.requeue_after == pytest.approx(9)


def test_an_edited_spec_does_not_change_what_the_running_job_is_said_to_do_b57(world, new_job):
    world.run()
    world.report = Report(sequence=2, step=4, total_steps=10)
    world.step(11)
    world.job = new_job(algorithm={"steps": 500})
    world.step(11)
    assert (world.status.total_steps, world.status.progress) == (10, "4/10")
    world.report = None
    world.step(11)
    assert (world.status.total_steps, world.status.progress) == (10, "4/10"), "the operator was restarted"
    world.report = Report(sequence=1, step=4, total_steps=500)
    world.step(11)
    assert (world.status.total_steps, world.status.progress) == (500, "4/500"), "a new attempt read the new spec"


def test_before_any_pod_an_edited_spec_counts_b57(world, new_job):
    world.errors = (ApplyError(action="create", name="demo-trainer-0", reason="QuotaExceeded", message="no"),)
    world.step()
    world.pods.clear()
    world.job = new_job(algorithm={"steps": 500})
    world.step()
    assert (world.status.total_steps, world.status.progress) == (500, "0/500")


def test_figures_that_round_to_the_same_are_no_change(world):
    world.run()
    world.report = Report(sequence=2, step=1, reward_mean=0.51239)
    world.step(11)
    status = world.status
    world.report = Report(sequence=3, step=1, reward_mean=0.51241)
    assert world.step(11).status is status


def test_while_running_the_reason_is_the_rl_phase(world):
    world.run()
    world.report = Report(sequence=2, stage="decode")
    world.step(11)
    assert world.status.reason == "Decode"


def test_transition_time_moves_only_with_the_status(world):
    world.run()
    since = world.condition("Ready").last_transition_time
    world.fail("demo-reward-0", 1)
    world.step(50)
    assert world.condition("Ready").last_transition_time == rfc3339(world.now)
    assert world.condition("Ready").last_transition_time != since
    assert world.condition("Resumable").last_transition_time == rfc3339(world.now - 50)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1.0, "1"), (0.95, "0.95"), (0.95349, "0.953"), (0.99996, "1"), (12345.6, "12300"),
        (-0.12345, "-0.123"), (0.0012345, "0.00123"), (100.0, "100"), (float("nan"), "nan"),
    ],
)  # fmt: skip
def test_three_digits(value, text):
    assert three_digits(value) == text


def test_shorten_keeps_the_end():
    assert shorten("abcdef", 4) == "…def"
    assert shorten("abc", 4) == "abc"
