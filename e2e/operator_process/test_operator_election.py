"""Who acts: the Lease, probes of a standby, the install key of a fresh cluster."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest
from faulty_proxy import FaultyProxy
from operator_fixtures import Cluster, Start
from operator_jobs import JOB_PODS, Job, until

from rljob_operator.cluster.api import LEASES, SECRETS, ApiError, KubeApi
from rljob_operator.cluster.lease import RENEW_DEADLINE_S

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


async def test_one_of_two_acts_and_a_paused_leader_ends_b41(api: KubeApi, namespace: str, start: Start) -> None:
    first = await start("operator-a")
    second = await start("operator-b")
    assert await second.probe("healthz")
    assert await second.probe("readyz")
    assert await _holder(api) == "operator-a"
    first.process.send_signal(signal.SIGSTOP)

    async def follows() -> bool:
        return await _holder(api) == "operator-b"

    await until(follows, "the second leads", 40.0)
    job = Job(api, namespace)
    await job.create()
    await job.all_created()
    first.process.send_signal(signal.SIGCONT)
    assert await asyncio.to_thread(first.process.wait, 20) == 1
    assert len(await job.pods()) == JOB_PODS
    assert second.stop() == 0
    assert await _holder(api) == ""


async def test_connections_whose_other_end_is_gone_do_not_cost_the_lease(
    api: KubeApi, namespace: str, start: Start, proxy: FaultyProxy
) -> None:
    operator = await start("operator-a", environ={"KUBECONFIG": str(proxy.config)})
    await Job(api, namespace).create()
    await Job(api, namespace).all_created()
    assert proxy.strand() > 1
    stranded, renewed = time.monotonic(), await _renewed(api)

    async def renews() -> bool:
        return await _renewed(api) != renewed

    await until(renews, "a renewal", RENEW_DEADLINE_S + 2)
    left = RENEW_DEADLINE_S - (time.monotonic() - stranded)
    await asyncio.sleep(max(0.0, left) + 2)
    assert operator.process.poll() is None, operator.log.read_text()
    assert await _holder(api) == "operator-a"
    assert "no answer" in operator.log.read_text()


async def test_a_fresh_cluster_gets_its_install_key(cluster: Cluster, api: KubeApi, start: Start) -> None:
    with pytest.raises(ApiError) as caught:
        await api.get(SECRETS, "rljob-system", "rljob-install-key")
    assert caught.value.not_found
    key = cluster.folder / "install-key"
    operator = await start(ready=False)
    key.unlink()
    await operator.ready()
    made = await api.get(SECRETS, "rljob-system", "rljob-install-key")
    assert set(made["data"]) == {"key"}


async def _renewed(api: KubeApi) -> str:
    return str((await api.get(LEASES, "rljob-system", "rljob-operator"))["spec"]["renewTime"])


async def _holder(api: KubeApi) -> str:
    return str((await api.get(LEASES, "rljob-system", "rljob-operator"))["spec"]["holderIdentity"])
