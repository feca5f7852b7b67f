"""The operator is stopped before each of its writes in turn; the next one always brings the job to the same state."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest
from kubernetes.aio.client.api_client import ApiClient
from operator_fixtures import Cluster
from operator_jobs import JOB_PODS, Job, until

from rljob_operator.cluster.api import EVENTS, RLJOBS, KubeApi
from rljob_operator.cluster.children import Children
from rljob_operator.cluster.config import OperatorConfig
from rljob_operator.cluster.controller import Jobs
from rljob_operator.cluster.health import Patience
from rljob_operator.cluster.process import make_parts
from rljob_operator.links import JobLinks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

WRITES = 24
"""Writes of a job's first minute: memory, dry runs, services, document, token, pods, status, event."""


class Budget:
    """Lets so many writes pass and then no more, as a process that is killed."""

    def __init__(self, writes: int) -> None:
        self.left = writes
        self.spent = asyncio.Event()

    def may_write(self) -> bool:
        self.left -= 1
        if self.left < 0:
            self.spent.set()
        return self.left >= 0


async def live(client: ApiClient, job: Job, budget: Budget) -> None:
    """One operator in this process, until its budget is spent or the job rests."""
    api = KubeApi(client, budget.may_write)
    jobs = Jobs(4, time.time)
    children: dict[str | None, Children] = {
        job.namespace: Children(api, job.namespace, jobs.wake, lambda: None, Patience()),
    }
    config = OperatorConfig(
        worker_image="x",
        namespaces=(job.namespace,),
        install_key_file=Path("unused"),
        pod_name="p",
        pod_namespace="rljob-system",
    )
    async with aiohttp.ClientSession() as session:
        links = JobLinks(session, b"key", jobs.wake)
        jobs.parts = make_parts(config, api, children, jobs, links, b"key")
        watching = asyncio.create_task(children[job.namespace].run())
        await children[job.namespace].synced.wait()
        jobs.seen(await api.get(RLJOBS, job.namespace, job.name))

        async def rests() -> bool:
            condition = await job.condition("PodsCreated")
            return budget.spent.is_set() or condition.get("status") == "True"

        await until(rests, "the job rests or the budget is spent")
        await jobs.close()
        await links.close()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize("writes", range(WRITES))
async def test_cut_before_any_write_converges_b38(
    cluster: Cluster, client: ApiClient, api: KubeApi, namespace: str, writes: int
) -> None:
    job = Job(api, namespace)
    await job.create()
    await live(client, job, Budget(writes))
    await live(client, job, Budget(1000))
    assert len(await job.pods()) == JOB_PODS
    status = await job.status()
    assert (status["phase"], status["attempt"], status["restarts"]) == (
        "Provisioning",
        0,
        {"counted": 0, "uncounted": 0},
    )
    made = [
        entry
        for entry in cluster.audit()
        if entry["verb"] == "create"
        and (entry.get("objectRef") or {}).get("resource") == "pods"
        and entry["objectRef"]["namespace"] == namespace
        and "dryRun" not in entry["requestURI"]
        and entry["responseStatus"]["code"] == 201
    ]
    assert len(made) <= JOB_PODS, "pods ever created; one whose answer was cut off is not in the audit log as such"
    assert len((await api.list_page(EVENTS, namespace, ""))["items"]) <= 1
