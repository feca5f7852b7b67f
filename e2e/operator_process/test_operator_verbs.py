"""What the operator asks of the API server: RBAC of the manifests, verb by verb, and pods by selector, in pages."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from operator_fixtures import Cluster, Start
from operator_jobs import FakeCoordinator, Job

from rljob_operator.cluster.api import PAGE_LIMIT, PODS, KubeApi, Object
from rljob_operator.cluster.children import SELECTOR

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

OPERATOR_USER = "system:serviceaccount:rljob-system:rljob-operator"
Call = tuple[str, str, str]
"""(API group, resource, verb)."""


async def test_every_verb_granted_is_used_and_every_verb_used_is_granted(
    cluster: Cluster, api: KubeApi, namespace: str, start: Start
) -> None:
    """One job that meets a foreign pod under one of its names, then runs to its end."""
    job = Job(api, namespace)
    container = {"name": "c", "image": "x"}
    foreign: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{job.name}-reward-0", "namespace": namespace},
        "spec": {"containers": [container]},
    }
    made = await api.create(PODS, namespace, foreign)
    operator = await start(namespaces=namespace)
    await job.create()

    await job.becomes("PodsCreated", "NameTaken")
    await api.delete(PODS, namespace, made["metadata"]["name"], uid=made["metadata"]["uid"], grace_s=0)
    pods = await job.all_created()
    async with FakeCoordinator("127.0.0.51"):
        await job.run(pods, "127.0.0.51")
        await job.phase("Running")
        await job.succeed()
    await job.phase("Succeeded")
    await job.only_left("coordinator-0", "trainer-0")
    operator.stop()
    granted = _granted(cluster)
    used = _used(cluster)
    assert used - granted == set()
    assert granted - used == set()
    assert not any(resource == "rljobs" and verb == "patch" for _, resource, verb in used), "kopf wrote"


async def test_pods_are_selected_by_the_server_and_listed_in_pages_b42(
    cluster: Cluster, api: KubeApi, namespace: str, start: Start
) -> None:
    """Other people's pods cost the operator nothing: they never reach it."""
    for number in range(3):
        foreign: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"theirs-{number}"}}
        await api.create(PODS, namespace, foreign | {"spec": {"containers": [{"name": "c", "image": "x"}]}})
    operator = await start(namespaces=namespace)
    job = Job(api, namespace)
    await job.create()
    await job.all_created()
    operator.stop()
    asked = [parse_qs(urlsplit(entry["requestURI"]).query) for entry in _reads_of_pods(cluster, namespace)]
    assert asked
    assert all(query["labelSelector"] == [SELECTOR] for query in asked)
    assert all("watch" in query or query["limit"] == [str(PAGE_LIMIT)] for query in asked)


def _reads_of_pods(cluster: Cluster, namespace: str) -> list[Object]:
    """Lists and watches by the operator."""
    return [
        entry
        for entry in cluster.audit()
        if entry["user"]["username"] == OPERATOR_USER
        and entry["verb"] in ("list", "watch")
        and (ref := entry.get("objectRef", {})).get("resource") == "pods"
        and ref.get("namespace") == namespace
    ]


def _granted(cluster: Cluster) -> set[Call]:
    out = set()
    for kind in ("clusterrole/rljob-operator", "role/rljob-operator-lease"):
        for rule in json.loads(cluster.kubectl("get", kind, "-n", "rljob-system", "-o", "json"))["rules"]:
            out |= {(group, r, v) for group in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    return out


def _used(cluster: Cluster) -> set[Call]:
    """Calls of the operator, refused ones too. An apply that creates (201) needs the verb create as well."""
    out = set()
    for entry in cluster.audit():
        if entry["user"]["username"] != OPERATOR_USER or "objectRef" not in entry:
            continue
        ref = entry["objectRef"]
        resource = ref["resource"] + (f"/{ref['subresource']}" if "subresource" in ref else "")
        out.add((ref.get("apiGroup", ""), resource, entry["verb"]))
        if entry["verb"] == "patch" and entry["responseStatus"]["code"] == 201:
            out.add((ref.get("apiGroup", ""), resource, "create"))
    return out
