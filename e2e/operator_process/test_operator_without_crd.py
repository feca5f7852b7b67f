"""The operator is started before its CRD is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from operator_fixtures import Cluster, Start
from operator_jobs import Job, until

from rljob_operator.cluster.api import RLJOBS, KubeApi
from rljob_operator.cluster.process import CRD_POLL_S

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture
def without_crd(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster of all tests, its CRD taken away; there again at the end."""
    cluster.kubectl("delete", "-k", "crds")
    yield cluster
    apply_crd(cluster)


def apply_crd(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-k", "crds")
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{RLJOBS}", "--timeout=30s")


async def test_a_crd_that_is_applied_later_is_served(
    without_crd: Cluster, api: KubeApi, namespace: str, start: Start
) -> None:
    assert not await api.served(RLJOBS)
    operator = await start(namespaces=namespace, ready=False)
    await until(lambda: operator.probe("healthz"), "live without the CRD")
    await asyncio.sleep(2 * CRD_POLL_S)
    assert await operator.answer("readyz") == (503, "starting")
    assert await operator.probe("healthz")
    apply_crd(without_crd)
    await operator.ready()
    job = Job(api, namespace)
    await job.create()
    await job.all_created()
