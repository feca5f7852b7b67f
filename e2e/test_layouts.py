"""Trainer ranks as devices of one pod and as pods of their own, expert and data parallel."""

import pytest
import timeouts
from live import Body, Namespace
from sample_jobs import short_job
from volumes import CheckpointVolume

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_expert_parallel_ranks_as_two_devices_of_one_pod(namespace: Namespace) -> None:
    trainer = {"replicas": 1, "devicesPerPod": 2, "layout": {"dp": 2, "ep": 2}}
    _succeeds(namespace, short_job("ep-devices", trainer=trainer), trainers=1)
    condition = namespace.condition("ep-devices", "Resumable")
    assert (condition["status"], condition["reason"]) == ("False", "EmptyDir"), "resume is not promised, and it says so"


def test_data_parallel_ranks_as_two_pods(namespace: Namespace, checkpoints: CheckpointVolume) -> None:
    trainer = {"replicas": 2, "devicesPerPod": 1, "layout": {"dp": 2, "ep": 1}}
    _succeeds(namespace, short_job("dp-pods", trainer=trainer, checkpoint=checkpoints.spec), trainers=2)


def test_data_parallel_ranks_as_two_devices_of_one_pod(namespace: Namespace) -> None:
    trainer = {"replicas": 1, "devicesPerPod": 2, "layout": {"dp": 2, "ep": 1}}
    _succeeds(namespace, short_job("dp-devices", trainer=trainer), trainers=1)


def _succeeds(namespace: Namespace, body: Body, trainers: int) -> None:
    name = body["metadata"]["name"]
    namespace.apply(body)
    status = namespace.wait_running(name)
    assert status["roles"]["trainer"]["wanted"] == trainers
    status = namespace.wait_phase(name, "Succeeded", timeouts.SHORT_JOB_S)
    assert status["step"] == 10
    assert status["restarts"] == {"counted": 0, "uncounted": 0}
