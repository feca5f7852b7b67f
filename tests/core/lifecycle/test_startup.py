"""A worker that never registers is lost once it was missed, and has run, for long enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rljob_core.api.report import Absent, Report
from rljob_core.lifecycle import startup
from rljob_core.lifecycle.desired import desired
from rljob_core.lifecycle.model import Memory, ObservedWorkload, WorkloadPhase
from rljob_core.names import Role

NOW, LIMIT = 10_000.0, 600


@pytest.mark.parametrize(
    ("missed", "pod", "left"),
    [
        (("rollout", 3), {}, 500.0),
        (("rollout", 2), {}, 500.0),
        (("rollout", 3), {"started_at": NOW - 700}, -100.0),
        (("rollout", 1), {}, None),
        (("trainer", 3), {}, None),
        (None, {}, None),
        (("rollout", 3), {"started_at": None}, None),
        (("rollout", 3), {"phase": WorkloadPhase.PENDING}, None),
        (("rollout", 3), {"phase": WorkloadPhase.FAILED}, None),
    ],
    ids=[
        "one rank of its", "the other", "overdue", "a rank of another pod", "another role", "nobody is missed",
        "start unknown", "not running yet", "ended",
    ],
)  # fmt: skip
def test_seconds_left(new_job, missed, pod, left):
    """The second pod of two devices holds ranks 2 and 3."""
    rollout = {"groups": 1, "devicesPerPod": 2, "layout": {"dp": 4}}
    job = new_job(rollout=rollout, lifecycle={"startupDeadlineSeconds": LIMIT})
    workload = next(w for w in desired(job, Memory()) if w.role is Role.ROLLOUT and w.index == 1)
    seen = ObservedWorkload(
        name=workload.name, role=Role.ROLLOUT, index=1, attempt=0, uid="u", phase=WorkloadPhase.RUNNING,
        started_at=NOW - 100,
    )  # fmt: skip
    report = Report(sequence=1, absent=[Absent(role=missed[0], rank=missed[1])] if missed else [])
    assert startup.seconds_left(job, workload, replace(seen, **pod), report, NOW) == left


def test_without_a_report_nothing_is_known(new_job):
    job = new_job()
    workload = desired(job, Memory())[0]
    pod = ObservedWorkload(
        name=workload.name, role=workload.role, index=0, attempt=0, uid="u", phase=WorkloadPhase.RUNNING, started_at=0.0
    )
    assert startup.seconds_left(job, workload, pod, None, NOW) is None


def missed(world, role):
    """The coordinator misses rank 0 of a role, all pods run."""
    world.step()
    world.ready()
    for name in world.pods:
        world.change(name, started_at=world.now)
    world.report = Report(sequence=1, absent=[Absent(role=role, rank=0)])


def test_a_rollout_that_never_registers_is_replaced_alone(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"startupDeadlineSeconds": 60}))
    missed(world, "rollout")
    assert world.step(59).delete == ()
    assert world.step(0.5).requeue_after == 0.5
    assert world.step(1).delete == ("demo-rollout-0",)
    assert world.status.first_cause.reason == "NotRegistered"
    assert "lifecycle.startupDeadlineSeconds" in world.status.message
    assert (world.status.restarts.counted, world.status.attempt) == (1, 0)
    assert [w.name for w in world.step(2.5).create] == ["demo-rollout-0-r1"]
    world.ready()
    world.change("demo-rollout-0-r1", started_at=world.now)
    assert world.step(30).delete == (), "the new one has its own time, though the rank is still missed"
    assert world.step(31).delete == ("demo-rollout-0-r1",)


def test_a_trainer_that_never_registers_restarts_the_gang(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"startupDeadlineSeconds": 60}))
    missed(world, "trainer")
    assert len(world.step(61).delete) == 8
    assert (world.status.first_cause.pod, world.status.attempt) == ("demo-trainer-0", 1)
