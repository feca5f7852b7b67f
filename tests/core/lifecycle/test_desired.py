"""Which workloads a job wants."""

from __future__ import annotations

import pytest

from rljob_core.lifecycle.desired import desired
from rljob_core.lifecycle.model import Memory
from rljob_core.names import JOB_NAME_LIMIT, NAME_LIMIT, Role, pod_name
from rljob_core.worker_env import Endpoints, rendezvous_index, rollout_group, worker_env


def test_default_gang(new_job):
    wanted = [w.name for w in desired(new_job(), Memory())]
    assert wanted == [
        "demo-store-master-0",
        "demo-store-0",
        "demo-coordinator-0",
        "demo-trainer-0",
        "demo-trainer-1",
        "demo-rollout-0",
        "demo-rollout-1",
        "demo-reward-0",
    ]


@pytest.mark.parametrize(
    ("spec", "role", "count"),
    [
        ({"kvStore": {"external": {"masterAddress": "m:1"}}}, Role.STORE, 0),
        ({"kvStore": {"external": {"masterAddress": "m:1"}}}, Role.STORE_MASTER, 0),
        ({"kvStore": {"managed": {"segments": 3}}}, Role.STORE, 3),
        ({"rollout": {"groups": 2, "layout": {"dp": 4, "ep": 4}, "devicesPerPod": 2}}, Role.ROLLOUT, 4),
        ({"trainer": {"replicas": 1, "devicesPerPod": 2, "layout": {"dp": 2}}}, Role.TRAINER, 1),
    ],
)
def test_counts(new_job, spec, role, count):
    assert sum(w.role is role for w in desired(new_job(**spec), Memory())) == count


def test_devices_per_pod(new_job):
    job = new_job(trainer={"replicas": 1, "devicesPerPod": 2, "layout": {"dp": 2}})
    assert {w.role: w.devices for w in desired(job, Memory())}[Role.TRAINER] == 2


def test_name_carries_attempt_plus_replacements(new_job):
    memory = Memory(attempt=2, replacements={"rollout/1": 1})
    names = [w.name for w in desired(new_job(), memory)]
    assert "demo-rollout-1-r3" in names
    assert "demo-rollout-0-r2" in names


def test_longest_name_fits_b46():
    assert len(pod_name("j" * JOB_NAME_LIMIT, Role.STORE_MASTER, 9999, 9999)) <= NAME_LIMIT


def test_a_rollout_group_meets_at_its_own_first_pod(new_job):
    job = new_job(rollout={"groups": 2, "layout": {"dp": 4, "ep": 4}, "devicesPerPod": 2})
    assert [rollout_group(job, i) for i in range(4)] == [0, 0, 1, 1]
    assert [rendezvous_index(job, Role.ROLLOUT, i) for i in range(4)] == [0, 0, 2, 2]
    assert rendezvous_index(job, Role.TRAINER, 3) == 0


def test_worker_env_leaves_out_what_the_substrate_fills_in(new_job):
    job = new_job()
    endpoints = Endpoints(
        coordinator="c:1", rendezvous="r:2", store_master="m:3", job_file="/j", token_file="/t", started_at=1.5
    )
    env = worker_env(job, desired(job, Memory())[3], endpoints)
    assert env["RLJOB_ROLE"] == "trainer"
    assert env["RLJOB_STORE_MASTER"] == "m:3"
    assert env["RLJOB_STARTED_AT"] == "1.500"
    assert "RLJOB_POD_IP" not in env


def test_worker_env_names_an_external_store(new_job):
    job = new_job(kvStore={"external": {"masterAddress": "far:1"}})
    endpoints = Endpoints(
        coordinator="c:1", rendezvous="r:2", store_master="m:3", job_file="/j", token_file="/t", started_at=1.5
    )
    assert worker_env(job, desired(job, Memory())[0], endpoints)["RLJOB_STORE_MASTER"] == "far:1"
