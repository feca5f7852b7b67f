"""The operator's life with a job: children once, success, a lost trainer, deletion, restarts."""

from __future__ import annotations

import asyncio
import json

import pytest
from faulty_proxy import FaultyProxy
from operator_fixtures import INSTALL_KEY, Cluster, Start
from operator_jobs import JOB_PODS, FakeCoordinator, Job, until

from rljob_core.tokens import job_token
from rljob_operator.cluster.api import EVENTS, PODS, RLJOBS, KubeApi

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


async def test_children_are_made_once_whatever_happens_to_the_operator_b38(
    api: KubeApi, namespace: str, start: Start
) -> None:
    job = Job(api, namespace)
    operator = await start(namespaces=namespace)
    await job.create()
    await job.all_created()
    await job.phase("Provisioning")
    await job.becomes("PodsCreated", "PodsCreated")
    await asyncio.sleep(1.0)
    before = await job.everything()
    operator.kill()
    await start(namespaces=namespace)
    await asyncio.sleep(3.0)
    assert await job.everything() == before
    rljob = await api.get(RLJOBS, namespace, job.name)
    assert "finalizers" not in rljob["metadata"]
    assert "annotations" not in rljob["metadata"]
    assert "kopf" not in rljob["status"]
    events = (await api.list_page(EVENTS, namespace, ""))["items"]
    notes = [(e["reason"], e["note"]) for e in events]
    assert len(notes) == len(set(notes))


async def test_a_job_runs_and_succeeds(api: KubeApi, namespace: str, start: Start) -> None:
    job = Job(api, namespace)
    operator = await start(namespaces=namespace)
    created = await job.create()
    pods = await job.all_created()
    async with FakeCoordinator("127.0.0.21") as fake:
        await job.run(pods, fake.ip)
        status = await job.phase("Running")
        assert (status["step"], status["reward"], status["podsReady"]) == (3, "0.25", f"{JOB_PODS}/{JOB_PODS}")
        assert fake.tokens == {job_token(INSTALL_KEY.encode(), created["metadata"]["uid"])}
        await asyncio.wait_for(fake.directed.wait(), 10)
        await job.succeed()
    status = await job.phase("Succeeded")
    assert status["step"] == 200
    await job.only_left("coordinator-0", "trainer-0")
    await asyncio.sleep(1.0)
    before = await job.everything()
    operator.kill()
    await start(namespaces=namespace)
    await asyncio.sleep(3.0)
    assert await job.everything() == before, "a finished job is not written to (B17)"


async def test_a_lost_trainer_restarts_the_gang_once_b20(api: KubeApi, namespace: str, start: Start) -> None:
    job = Job(api, namespace)
    await start(namespaces=namespace)
    await job.create()
    for name in await job.all_created():
        await job.set_running(name, "127.0.0.31")
    await job.set_ended(f"{job.name}-trainer-0", 137, "boom")
    status = await job.phase("Restarting")
    assert status["firstCause"]["pod"] == f"{job.name}-trainer-0"
    assert status["firstCause"]["exitCode"] == 137

    async def second_gang() -> bool:
        return set(await job.pods()) == {
            f"{job.name}-{part}-r1"
            for part in (
                "coordinator-0",
                "trainer-0",
                "rollout-0",
                "rollout-1",
                "reward-0",
                "store-0",
                "store-master-0",
            )
        }

    await until(second_gang, "a second gang, the first one gone")
    assert (await job.status())["restarts"] == {"counted": 1, "uncounted": 0}


async def test_a_deleted_job_gets_nothing_any_more(api: KubeApi, namespace: str, start: Start) -> None:
    job = Job(api, namespace)
    await start(namespaces=namespace)
    created = await job.create()
    pods = await job.all_created()
    await api.delete(RLJOBS, namespace, job.name, uid=created["metadata"]["uid"], grace_s=0)
    await asyncio.sleep(0.5)
    for name, pod in pods.items():
        await api.delete(PODS, namespace, name, uid=pod["metadata"]["uid"], grace_s=0)
    await asyncio.sleep(2.0)
    assert await job.pods() == {}


async def test_deletions_refused_at_the_deadline_are_asked_for_again_b7(
    api: KubeApi, namespace: str, start: Start, proxy: FaultyProxy
) -> None:
    """Failed with devices still held would be a lie that lasts: deletion goes on until the pods are gone."""
    job = Job(api, namespace)
    await start(namespaces=namespace, environ={"KUBECONFIG": str(proxy.config)})
    await job.create(lambda spec: spec.update(lifecycle={"activeDeadlineSeconds": 12}))
    await job.all_created()
    proxy.refuse_deletions("pods", times=JOB_PODS + 2)
    status = await job.phase("Failed")
    assert status["reason"] == "DeadlineExceeded"
    await job.only_left()
    assert proxy.refusals_left == 0


async def test_a_large_job_is_written_no_more_than_a_small_one_b43(
    cluster: Cluster, api: KubeApi, namespace: str, start: Start
) -> None:
    """200 KiB of spec: nothing of it is copied into annotations or status, and a job at rest is not written to."""
    job = Job(api, namespace)
    await start(namespaces=namespace)
    variables = [{"name": f"SETTING_{number}", "value": "x" * 200} for number in range(900)]
    template = {"spec": {"containers": [{"name": "worker", "env": variables}]}}
    created = await job.create(lambda spec: spec["trainer"].update(template=template))
    assert len(json.dumps(created["spec"])) > 200 << 10
    await job.all_created()
    await job.becomes("PodsCreated", "PodsCreated")
    await asyncio.sleep(1.0)
    before, patches = await job.everything(), status_patches(cluster, namespace)
    await asyncio.sleep(5.0)
    assert await job.everything() == before
    assert status_patches(cluster, namespace) == patches
    rljob = await api.get(RLJOBS, namespace, job.name)
    assert "annotations" not in rljob["metadata"]
    assert len(json.dumps(rljob["status"])) < 4 << 10


def status_patches(cluster: Cluster, namespace: str) -> int:
    """Writes of the status that the API server has seen, whether they changed anything or not."""
    refs = [entry.get("objectRef", {}) for entry in cluster.audit()]
    return sum(ref.get("namespace") == namespace and ref.get("subresource") == "status" for ref in refs)
