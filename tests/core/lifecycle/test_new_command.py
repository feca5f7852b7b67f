"""A new `rljob run` on what an earlier one left: unfinished is taken over, Failed is tried again, names go on."""

from __future__ import annotations

import pytest

from rljob_core.api.status import Phase
from rljob_core.lifecycle.model import Memory
from rljob_core.lifecycle.new_command import take_over, try_again


def fail_for_good(world):
    """Lose the coordinator as often as it takes; returns how often."""
    losses = 0
    while world.status.phase is not Phase.FAILED:
        (coordinator,) = (name for name, pod in world.pods.items() if pod.role == "coordinator" and pod.live)
        world.fail(coordinator)
        losses += 1
        for _ in range(3):
            world.step(300)
        world.ready()
        world.step()
    return losses


def again(world):
    """The command is run again: the processes of the old one are gone with it."""
    world.pods.clear()
    world.report = None
    world.memory, world.status = try_again(world.memory, world.status, world.now)


@pytest.fixture
def failed(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"backoffLimit": 1}))
    world.run()
    assert fail_for_good(world) == 2
    return world


def test_a_failed_run_goes_on_under_new_names_with_its_whole_budget(failed):
    assert (failed.status.reason, failed.status.attempt) == ("BackoffLimitExceeded", 1)
    again(failed)
    assert failed.status.phase is Phase.PENDING
    failed.run()
    assert (failed.status.phase, failed.status.attempt) == (Phase.RUNNING, 2)
    assert (failed.status.restarts.counted, failed.status.restarts.uncounted) == (0, 2), "none is forgotten"
    assert failed.status.first_cause is None
    assert failed.status.completion_time is None
    assert failed.condition("Failed").status == "False"
    assert fail_for_good(failed) == 2
    assert failed.status.attempt == 3


def test_versions_issued_before_are_remembered(failed):
    failed.memory = failed.memory.model_copy(update={"furthest_step": 7})
    assert try_again(failed.memory, failed.status, failed.now)[0].furthest_step == 7


def test_cut_off_between_memory_and_status_it_is_still_failed_and_can_be_tried_again(failed):
    failed.pods.clear()
    failed.memory, _ = try_again(failed.memory, failed.status, failed.now)
    assert failed.step().create == ()
    assert failed.status.phase is Phase.FAILED
    again(failed)
    failed.run()
    assert (failed.status.phase, failed.status.attempt) == (Phase.RUNNING, 3)


def test_the_status_alone_is_enough(failed):
    memory, status = try_again(Memory(), failed.status, failed.now)
    assert (memory.attempt, status.attempt) == (2, 2)


def test_the_deadline_counts_from_the_new_try(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"activeDeadlineSeconds": 100}))
    world.run()
    world.step(100)
    assert world.status.reason == "DeadlineExceeded"
    world.now += 1000
    again(world)
    world.run()
    world.step(99)
    assert world.status.phase is Phase.RUNNING
    world.step(1)
    assert world.status.message.startswith("not done 100 s after the new try ")


def test_a_goal_that_was_reached_is_final(world, done_report):
    world.run()
    world.report = done_report
    world.succeed(*{pod.role for pod in world.pods.values()})
    world.step()
    assert world.status.phase is Phase.SUCCEEDED
    with pytest.raises(AssertionError, match="final"):
        try_again(world.memory, world.status, world.now)


def test_an_unfinished_run_is_taken_over_uncounted_and_a_blank_one_as_it_is(world):
    blank = Memory()
    assert take_over(blank) is blank
    world.run()
    world.drain = True
    world.step()
    memory = take_over(world.memory)
    assert (memory.attempt, memory.counted_restarts, memory.uncounted_restarts) == (1, 0, 1)
    assert (memory.gang, memory.drain_since, memory.last_directive) == ([], None, None)
