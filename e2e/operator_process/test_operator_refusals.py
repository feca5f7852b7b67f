"""What the API server refuses, and how the RLJob says so."""

from __future__ import annotations

import asyncio
import copy

import pytest
from operator_fixtures import Start
from operator_jobs import Job, until

from rljob_core.names import Role, labels
from rljob_operator.cluster.api import CONFIG_MAPS, PODS, SERVICES, KubeApi, Object, Resource

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

RESOURCE_QUOTAS = Resource(group="", version="v1", plural="resourcequotas")
ROLES = Resource(group="rbac.authorization.k8s.io", version="v1", plural="clusterroles")


async def test_unknown_template_key_ends_in_a_condition_with_its_path(
    api: KubeApi, namespace: str, start: Start
) -> None:
    job = Job(api, namespace)
    await start(namespaces=namespace)

    def misspell(spec: Object) -> None:
        spec["rollout"]["template"] = {"spec": {"nodeSelectr": {"zone": "a"}}}

    await job.create(misspell)
    await job.phase("Failed")
    condition = await job.condition("Failed")
    assert condition["reason"] == "InvalidTemplate"
    assert "spec.rollout.template.spec.nodeSelectr" in condition["message"]
    assert await job.pods() == {}


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"metadata": {"labels": {"rljob.dev/role": "x"}}}, "spec.trainer.template.metadata.labels[rljob.dev/role]"),
        (
            {"spec": {"containers": [{"name": "worker", "resources": {"limits": {"cpu": "many"}}}]}},
            "spec.trainer.template",
        ),
        ({"spec": {"dnsPolicy": "Sometimes"}}, "spec.trainer.template.spec.dnsPolicy"),
    ],
)
async def test_bad_templates_name_their_field(
    api: KubeApi, namespace: str, start: Start, template: Object, field: str
) -> None:
    job = Job(api, namespace)
    await start(namespaces=namespace)
    await job.create(lambda spec: spec["trainer"].update(template=template))
    await job.phase("Failed")
    condition = await job.condition("Failed")
    assert condition["reason"] == "InvalidTemplate"
    assert field in condition["message"]


async def test_quota_is_said_and_waited_for_b3(api: KubeApi, namespace: str, start: Start) -> None:
    job = Job(api, namespace)

    async def allow(pods: int) -> None:
        patch = {"spec": {"hard": {"pods": str(pods)}}}
        await api.merge_patch(RESOURCE_QUOTAS, namespace, "q", patch)
        status = {"status": {"hard": {"pods": str(pods)}, "used": {"pods": str(len(await job.pods()))}}}
        await api.merge_patch(RESOURCE_QUOTAS, namespace, "q", status, "status")

    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}}
    await api.create(RESOURCE_QUOTAS, namespace, quota)
    await allow(3)
    await asyncio.sleep(1.0)
    await start(namespaces=namespace)
    await job.create()

    await job.becomes("PodsCreated", "QuotaExceeded")
    assert "exceeded quota" in (await job.condition("PodsCreated"))["message"]
    assert (await job.status())["phase"] in ("Pending", "Provisioning")
    assert len(await job.pods()) <= 3
    await allow(20)
    await job.all_created()

    await job.becomes("PodsCreated", "PodsCreated")


async def test_someone_elses_object_is_reported_never_forced_over(api: KubeApi, namespace: str, start: Start) -> None:
    job = Job(api, namespace)
    foreign: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{job.name}-coordinator", "namespace": namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}},
    }
    made = await api.create(SERVICES, namespace, foreign)
    await start(namespaces=namespace)
    await job.create()

    await job.becomes("PodsCreated", "NameTaken")
    assert "made by someone else" in (await job.condition("PodsCreated"))["message"]
    there = await api.get(SERVICES, namespace, f"{job.name}-coordinator")
    assert there["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert await job.pods() == {}
    await api.delete(SERVICES, namespace, f"{job.name}-coordinator", uid=made["metadata"]["uid"], grace_s=0)
    await job.all_created()


async def test_pods_of_an_earlier_job_of_the_name_are_waited_for(api: KubeApi, namespace: str, start: Start) -> None:
    """They may still write a checkpoint where the new one is about to resume."""
    job = Job(api, namespace)
    owner = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "name": job.name, "uid": "old", "controller": True}
    old: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job.name}-trainer-0-r1",
            "namespace": namespace,
            "labels": labels(job.name, "old", Role.TRAINER, 0, 1),
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "worker", "image": "x"}]},
    }
    made = await api.create(PODS, namespace, old)
    await start(namespaces=namespace)
    await job.create()

    condition = await job.becomes("PodsCreated", "NameTaken")
    assert "of an earlier RLJob" in condition["message"]
    assert "-trainer-0-r1" in condition["message"]
    assert set(await job.pods()) == {made["metadata"]["name"]}
    await api.delete(PODS, namespace, made["metadata"]["name"], uid=made["metadata"]["uid"], grace_s=0)
    await job.all_created()


async def test_a_foreign_memory_is_not_believed(api: KubeApi, namespace: str, start: Start) -> None:
    job = Job(api, namespace)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{job.name}-memory"}, "data": {"x": "y"}}
    await api.create(CONFIG_MAPS, namespace, body)
    await start(namespaces=namespace)
    await job.create()

    await job.becomes("PodsCreated", "NameTaken")
    assert await job.pods() == {}


async def test_a_missing_verb_is_named_b60(api: KubeApi, namespace: str, start: Start) -> None:
    job = Job(api, namespace)
    role = await api.get(ROLES, None, "rljob-operator")
    less = copy.deepcopy(role)
    less["rules"] = [rule for rule in role["rules"] if "services" not in rule["resources"]]
    less["rules"].append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]})
    await api.replace(ROLES, "", less)
    try:
        await start(namespaces=namespace)
        await job.create()

        async def named() -> bool:
            return "may not get services" in (await job.condition("PodsCreated")).get("message", "")

        await until(named, "the verb and the resource in a condition")
    finally:
        less["rules"] = role["rules"]
        now = await api.get(ROLES, None, "rljob-operator")
        await api.replace(ROLES, "", now | {"rules": role["rules"]})
    await job.all_created()
