"""A connection to the API server that is open and silent: liveness fails, and everything goes on once it flows."""

from __future__ import annotations

import asyncio

import pytest
from faulty_proxy import EVERYTHING, FaultyProxy
from operator_fixtures import Operator, Start
from operator_jobs import Job, until

from rljob_operator.cluster.api import KubeApi
from rljob_operator.cluster.health import Patience
from rljob_operator.cluster.lease import DURATION_S

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PATIENCE = Patience(stream_s=4)
CALL_S = 20.0
"""Longest call under way when it flows again, and the next one."""


async def begin(start: Start, namespace: str, proxy: FaultyProxy) -> Operator:
    environ = {"KUBECONFIG": str(proxy.config), "RLJOB_WATCH_SECONDS": str(PATIENCE.stream_s)}
    return await start(namespaces=namespace, environ=environ)


async def falls_silent(operator: Operator, watch: str) -> None:
    """Liveness fails, naming the watch; the process itself goes on and holds its Lease."""

    async def silent() -> bool:
        return await operator.answer("healthz") == (500, f"silent: {watch}")

    await until(silent, f"not live: silent: {watch}", PATIENCE.limit_s + CALL_S)


async def lives(operator: Operator) -> None:
    await until(lambda: operator.probe("healthz"), "live again", CALL_S)


async def test_a_silent_watch_of_rljobs_fails_liveness_and_recovers_b40(
    api: KubeApi, namespace: str, start: Start, proxy: FaultyProxy
) -> None:
    operator = await begin(start, namespace, proxy)
    before, meanwhile = Job(api, namespace, "rl-0"), Job(api, namespace, "rl-1")
    await before.create()
    await before.all_created()
    assert await operator.probe("healthz")
    proxy.silence("rljobs")
    await meanwhile.create()
    await falls_silent(operator, "rljobs")
    assert await meanwhile.pods() == {}
    proxy.flow()
    await lives(operator)
    await meanwhile.all_created()


async def test_a_silent_watch_of_pods_fails_liveness_and_recovers_b40(
    api: KubeApi, namespace: str, start: Start, proxy: FaultyProxy
) -> None:
    operator = await begin(start, namespace, proxy)
    job = Job(api, namespace)
    await job.create()
    pods = await job.all_created()
    assert await operator.probe("healthz")
    proxy.silence("pods")
    for name in pods:
        await job.set_running(name, "127.0.0.61")
    await job.set_ended(f"{job.name}-trainer-0", 137, "boom")
    await falls_silent(operator, f"pods {namespace}")
    assert (await job.status())["phase"] == "Provisioning"
    proxy.flow()
    await lives(operator)
    await job.phase("Restarting")


async def test_when_nothing_is_answered_the_process_ends_and_the_next_one_goes_on_b41(
    api: KubeApi, namespace: str, start: Start, proxy: FaultyProxy
) -> None:
    """The Lease cannot be renewed: it ends before another may lead."""
    operator = await begin(start, namespace, proxy)
    proxy.silence(EVERYTHING)
    assert await asyncio.to_thread(operator.process.wait, DURATION_S + 5) == 1
    job = Job(api, namespace)
    await job.create()
    proxy.flow()
    await begin(start, namespace, proxy)
    await job.all_created()
