"""The operator and CRDs: its own applied after its start, and another group's of the same plural."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from operator_fixtures import Cluster, Start
from operator_jobs import Job, until

from rljob_operator.cluster.api import PODS, RLJOBS, KubeApi, Object, Resource
from rljob_operator.cluster.process import CRD_POLL_S

CRDS = Resource(group="apiextensions.k8s.io", version="v1", plural="customresourcedefinitions")
THEIRS = Resource(group="batch.example.com", version="v1", plural=RLJOBS.plural)
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


@pytest.fixture
async def namesake(cluster: Cluster, api: KubeApi) -> AsyncIterator[Resource]:
    """A CRD of another group with our plural, kind and short name."""
    free_form = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    body: Object = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(THEIRS)},
        "spec": {
            "group": THEIRS.group,
            "names": {"plural": THEIRS.plural, "kind": "RLJob", "shortNames": ["rlj"]},
            "scope": "Namespaced",
            "versions": [{"name": THEIRS.version, "served": True, "storage": True, "schema": free_form}],
        },
    }
    await api.create(CRDS, None, body)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{THEIRS}", "--timeout=30s")
    yield THEIRS
    cluster.kubectl("delete", f"crd/{THEIRS}")


async def test_another_groups_rljobs_are_not_ours_b45(
    namesake: Resource, api: KubeApi, namespace: str, start: Start
) -> None:
    theirs: Object = {"apiVersion": f"{namesake.group}/{namesake.version}", "kind": "RLJob"}
    await api.create(namesake, namespace, theirs | {"metadata": {"name": "theirs"}, "spec": {"algorithm": {}}})
    await start(namespaces=namespace)
    job = Job(api, namespace)
    await job.create()
    pods = await job.all_created()
    page = await api.list_page(PODS, namespace, "")
    assert {pod["metadata"]["name"] for pod in page["items"]} == set(pods)
    assert "status" not in await api.get(namesake, namespace, "theirs")
