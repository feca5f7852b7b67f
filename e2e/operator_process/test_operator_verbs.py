"""RBAC of the manifests: every verb granted is used, every verb used is granted."""

from __future__ import annotations

import json

import pytest
from operator_fixtures import Cluster, Start
from operator_jobs import FakeCoordinator, Job

from rljob_operator.cluster.api import PODS, KubeApi, Object

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
