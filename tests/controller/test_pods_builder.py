"""Generated pods and what they lean on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rljob_core import names
from rljob_core.api.spec import RLJob
from rljob_core.lifecycle.desired import desired
from rljob_core.lifecycle.model import Memory, Workload
from rljob_core.names import Role
from rljob_core.run_files import most_bytes
from rljob_operator.pods import objects
from rljob_operator.pods.builder import build_pod
from rljob_operator.yaml_loader import load_file

ROOT = Path(__file__).resolve().parents[2]
UID = "11111111-2222-3333-4444-555555555555"


def make_job(**spec: Any) -> RLJob:
    base = {
        "model": {"init": {"config": {"model_type": "qwen3_moe"}}, "tokenizer": {"characters": "0123456789="}},
        "data": {"generator": {"task": "reverse-digits"}},
        "reward": {"perPosition": {}},
        "algorithm": {},
    }
    meta = {"name": "rl", "namespace": "ns", "uid": UID, "generation": 3, "labels": {"argocd.argoproj.io/x": "y"}}
    return RLJob.from_object({"metadata": meta, "spec": base | spec})


def pod_of(job: RLJob, role: Role, index: int = 0) -> dict[str, Any]:
    workload = next(w for w in desired(job, Memory()) if w.role is role and w.index == index)
    return build_pod(job, workload, image="operator-default")


def worker(pod: dict[str, Any]) -> dict[str, Any]:
    return next(c for c in pod["spec"]["containers"] if c["name"] == "worker")


def env(pod: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in worker(pod)["env"]}


def mounts(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    return {m["mountPath"]: volumes[m["name"]] for m in worker(pod)["volumeMounts"]}


def test_identity_is_in_labels_and_owner() -> None:
    pod = pod_of(make_job(), Role.TRAINER)
    assert pod["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "rljob-operator",
        "rljob.dev/job": "rl",
        "rljob.dev/job-uid": UID,
        "rljob.dev/role": "trainer",
        "rljob.dev/index": "0",
        "rljob.dev/attempt": "0",
    }
    assert objects.owner_uid(pod) == UID


@pytest.mark.parametrize("role", list(Role))
def test_every_pod_ends_for_good_and_has_no_api_token(role: Role) -> None:
    pod = pod_of(make_job(), role)
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert (spec["hostname"], spec["subdomain"]) == (f"{role}-0", "rl")
    assert worker(pod)["command"] == ["python", "-m", "rljob_workers"]
    assert worker(pod)["terminationMessagePath"] == names.TERMINATION_LOG


@pytest.mark.parametrize("role", list(Role))
def test_restricted_pod_security_where_no_device_is_asked(role: Role) -> None:
    pod = pod_of(make_job(), role)
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert worker(pod)["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_addresses() -> None:
    values = env(pod_of(make_job(rollout={"groups": 2, "layout": {"dp": 2, "ep": 2}}), Role.ROLLOUT, 3))
    assert values["RLJOB_COORDINATOR"] == "rl-coordinator.ns.svc:8400"
    assert values["RLJOB_RENDEZVOUS"] == "rollout-2.rl.ns.svc:8500"
    assert values["RLJOB_STORE_MASTER"] == "rl-store-master.ns.svc:50051"
    assert values["RLJOB_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert values["RLJOB_POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "RLJOB_LISTEN" not in values
    assert env(pod_of(make_job(), Role.COORDINATOR))["RLJOB_LISTEN"] == "0.0.0.0:8400"


def test_readiness() -> None:
    job = make_job()
    assert worker(pod_of(job, Role.COORDINATOR))["readinessProbe"]["httpGet"]["path"] == "/healthz"
    assert worker(pod_of(job, Role.STORE_MASTER))["readinessProbe"]["tcpSocket"]["port"] == 50051
    assert "readinessProbe" not in worker(pod_of(job, Role.TRAINER))


@pytest.mark.parametrize(
    ("volume", "source", "durable"),
    [
        (None, {"emptyDir": {}}, "false"),
        ({"persistentVolumeClaim": {"name": "c"}}, {"persistentVolumeClaim": {"claimName": "c"}}, "true"),
        ({"hostPath": {"path": "/ck"}}, {"hostPath": {"path": "/ck", "type": "Directory"}}, "true"),
    ],
)
def test_checkpoint_volume(volume: dict[str, Any] | None, source: dict[str, Any], durable: str) -> None:
    job = make_job(checkpoint={"volume": volume} if volume else {})
    for role in (Role.COORDINATOR, Role.TRAINER):
        pod = pod_of(job, role)
        assert mounts(pod)[names.MOUNT_CHECKPOINT] == {"name": "checkpoint", **source}
        assert env(pod)["RLJOB_CHECKPOINT_DURABLE"] == durable
        assert env(pod)["RLJOB_CHECKPOINT_DIR"] == f"{names.MOUNT_CHECKPOINT}/ns.rl", "a volume may be shared by jobs"
    assert names.MOUNT_CHECKPOINT not in mounts(pod_of(job, Role.ROLLOUT))


def test_files_of_a_run_have_a_bound_on_their_node() -> None:
    few, many = (pod_of(make_job(algorithm={"steps": steps}), Role.COORDINATOR) for steps in (10, 1_000_000))
    sizes = [int(mounts(pod)[names.MOUNT_RUN]["emptyDir"]["sizeLimit"]) for pod in (few, many)]
    assert sizes == [most_bytes(10), most_bytes(1_000_000)]
    assert 160 << 20 < sizes[0] < 1 << 30


@pytest.mark.parametrize(("device", "resource"), [("npu", "huawei.com/Ascend910"), ("cuda", "nvidia.com/gpu")])
def test_device_pods(device: str, resource: str) -> None:
    job = make_job(scheduling={"device": device}, trainer={"devicesPerPod": 16, "layout": {"dp": 16}})
    pod = pod_of(job, Role.TRAINER)
    resources = worker(pod)["resources"]
    assert resources["limits"][resource] == resources["requests"][resource] == "16"
    assert "/dev/shm" in mounts(pod)
    assert ("/etc/hccn.conf" in mounts(pod)) == (device == "npu")
    assert ("HCCL_CONNECT_TIMEOUT" in env(pod)) == (device == "npu")
    assert "securityContext" not in pod["spec"]
    assert resource not in worker(pod_of(job, Role.COORDINATOR))["resources"].get("limits", {})


def test_resource_name_of_the_site() -> None:
    job = make_job(scheduling={"device": "npu", "resourceName": "huawei.com/npu"})
    assert worker(pod_of(job, Role.ROLLOUT))["resources"]["limits"] == {"huawei.com/npu": "1"}


def test_store_memory_exceeds_its_segment_by_a_tenth() -> None:
    pod = pod_of(make_job(kvStore={"managed": {"segmentBytes": 1 << 30}}), Role.STORE)
    resources = worker(pod)["resources"]
    assert int(resources["limits"]["memory"]) >= 1.1 * (1 << 30)
    assert resources["requests"]["memory"] == resources["limits"]["memory"]


def test_image_of_template_before_job_before_operator() -> None:
    assert worker(pod_of(make_job(), Role.REWARD))["image"] == "operator-default"
    assert worker(pod_of(make_job(scheduling={"image": "job"}), Role.REWARD))["image"] == "job"
    template = {"spec": {"containers": [{"name": "worker", "image": "template"}]}}
    job = make_job(scheduling={"image": "job"}, reward={"perPosition": {}, "template": template})
    assert worker(pod_of(job, Role.REWARD))["image"] == "template"
    assert worker(pod_of(job, Role.TRAINER))["image"] == "job"


def test_same_arguments_same_pod() -> None:
    workload = Workload(name="rl-store-0", role=Role.STORE, index=0, attempt=2)
    pods = [build_pod(make_job(), workload, image="x") for _ in range(2)]
    assert json.dumps(pods[0]) == json.dumps(pods[1])


def test_mounted_data_is_where_workers_look_for_it_under_the_fields_of_the_user() -> None:
    job = make_job(
        data={"persistentVolumeClaim": {"name": "c", "path": "/sets/a.jsonl", "promptField": "q"}},
        evaluation={"configMap": {"name": "m", "key": "b.jsonl"}},
    )
    document = json.loads(objects.job_config(job)["data"]["job.json"])
    spec = RLJob.from_object(document).spec
    assert (spec.data, spec.evaluation) == (job.spec.data, job.spec.evaluation)
    mounted = mounts(pod_of(job, Role.COORDINATOR))
    assert mounted[names.MOUNT_DATA]["persistentVolumeClaim"] == {"claimName": "c", "readOnly": True}
    assert mounted[names.MOUNT_EVALUATION]["configMap"] == {"name": "m"}
    assert names.MOUNT_DATA not in mounts(pod_of(job, Role.TRAINER))


def test_one_claim_is_one_volume_whatever_lies_on_it() -> None:
    """The kubelet never starts a pod that names a claim twice; what a mount may write stays as it was."""
    own = {"name": "own", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    mount = {"name": "own", "mountPath": "/own"}
    template = {
        "spec": {
            "containers": [{"name": "worker", "volumeMounts": [mount]}],
            "initContainers": [{"name": "fetch", "volumeMounts": [mount]}, {"name": "idle"}],
            "volumes": [own],
        }
    }
    job = make_job(
        data={"persistentVolumeClaim": {"name": "c", "path": "a.jsonl"}},
        evaluation={"persistentVolumeClaim": {"name": "c", "path": "b.jsonl"}},
        checkpoint={"volume": {"persistentVolumeClaim": {"name": "c"}}},
        coordinator={"template": template},
    )
    pod = pod_of(job, Role.COORDINATOR)
    assert [v["name"] for v in pod["spec"]["volumes"]] == ["job", "token", "run", "own"]
    mounted = {m["mountPath"]: m for m in worker(pod)["volumeMounts"]}
    for path in (names.MOUNT_DATA, names.MOUNT_EVALUATION, "/own"):
        assert mounted[path] == {"name": "own", "mountPath": path, "readOnly": True}
    assert mounted[names.MOUNT_CHECKPOINT] == {"name": "own", "mountPath": names.MOUNT_CHECKPOINT}
    assert mounts(pod)["/own"]["persistentVolumeClaim"] == {"claimName": "c", "readOnly": False}
    assert pod["spec"]["initContainers"][0]["volumeMounts"] == [mount | {"readOnly": True}]
    assert mounts(pod_of(job, Role.TRAINER))[names.MOUNT_CHECKPOINT]["name"] == "checkpoint"


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("sample", sorted((ROOT / "manifests/samples").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_sample_names_a_claim_twice_in_a_pod(sample: Path, role: Role) -> None:
    (document,) = load_file(sample)
    meta = document.body["metadata"] | {"namespace": "ns", "uid": UID}
    pod = pod_of(RLJob.from_object(document.body | {"metadata": meta}), role)
    claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]
    assert len(claims) == len(set(claims))


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": 5},
        {"volumes": [5, {"name": {}, "persistentVolumeClaim": {"claimName": "c"}}]},
        {
            "containers": [{"name": "worker", "volumeMounts": 5}],
            "volumes": [{"name": "own", "persistentVolumeClaim": 5}],
        },
        {"containers": [5, {"name": "worker", "volumeMounts": [5, {"name": [], "mountPath": "/a"}]}]},
    ],
)
def test_volumes_of_wrong_types_travel_on_to_the_server_that_names_them(spec: dict[str, Any]) -> None:
    claim = {"persistentVolumeClaim": {"name": "c", "path": "a.jsonl"}}
    pod = pod_of(make_job(data=claim, evaluation=claim, coordinator={"template": {"spec": spec}}), Role.COORDINATOR)
    for key in spec:
        assert "5" in json.dumps(pod["spec"][key])


def test_job_document_has_defaults_and_no_tracking_labels() -> None:
    document = json.loads(objects.job_config(make_job())["data"]["job.json"])
    assert document["spec"]["algorithm"]["groupSize"] == 8
    assert document["metadata"]["labels"] == {}
    assert RLJob.from_object(document).metadata.uid == UID


def test_services_publish_addresses_before_readiness() -> None:
    every = objects.services(make_job(), store=True)
    assert [s["metadata"]["name"] for s in every] == ["rl", "rl-coordinator", "rl-store-master"]
    assert all(s["spec"]["clusterIP"] == "None" and s["spec"]["publishNotReadyAddresses"] for s in every)
    assert len(objects.services(make_job(), store=False)) == 2


def test_token_secret_carries_the_uid() -> None:
    secret = objects.token_secret(make_job(), "t")
    assert secret["metadata"]["name"] == "rl-token-11111111"
    assert secret["immutable"] is True
