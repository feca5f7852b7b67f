"""A workload as a pod. Pure: same arguments, same pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rljob_core import names
from rljob_core.api.placement import DevicePreset
from rljob_core.api.spec import RLJob
from rljob_core.lifecycle.model import Workload
from rljob_core.names import Role
from rljob_core.run_files import most_bytes
from rljob_core.worker_env import Endpoints, rendezvous_index, worker_env
from rljob_operator.pods import objects
from rljob_operator.pods.claims import share_claims
from rljob_operator.pods.template import check_reserved, merge, role_template

USER_ID = 10001
"""Group of mounted volumes; the user of our worker image."""
GRACE_S = 60
"""Seconds a pod has to drain after SIGTERM."""
STORE_OVERHEAD = 1.1
"""Memory of a store pod over its segment's bytes (Mooncake's own bookkeeping), and a fixed part below."""
STORE_FIXED_BYTES = 256 << 20
RESOURCE_NAMES = {DevicePreset.NPU: "huawei.com/Ascend910", DevicePreset.CUDA: "nvidia.com/gpu"}
NPU_ENV = {"HCCL_CONNECT_TIMEOUT": "1800", "HCCL_EXEC_TIMEOUT": "3600", "HCCL_BUFFSIZE": "256"}
"""What MindSpeed-RL sets: ranks of a large gang may come up minutes apart."""
_DURABLE_ROLES = (Role.COORDINATOR, Role.TRAINER)


@dataclass(frozen=True, kw_only=True)
class _Mounted:
    """A volume and where it is mounted."""

    volume: dict[str, Any]
    path: str
    read_only: bool = False

    @property
    def mount(self) -> dict[str, Any]:
        return {"name": self.volume["name"], "mountPath": self.path} | ({"readOnly": True} if self.read_only else {})


def build_pod(job: RLJob, workload: Workload, *, image: str) -> dict[str, Any]:
    """The pod of a workload with the role's template merged over it.

    image: used where neither `scheduling.image` nor the template names one. Raises InvalidInputError where the
    template sets what the operator owns.
    """
    role = workload.role
    template = role_template(job, role)
    check_reserved(role, template)
    volumes = _volumes(job, role)
    device = job.spec.scheduling.device
    on_device = workload.devices > 0 and device is not DevicePreset.CPU
    container: dict[str, Any] = {
        "name": names.WORKER_CONTAINER,
        "image": job.spec.scheduling.image or image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "rljob_workers"],
        "env": _env(job, workload, on_device),
        "volumeMounts": [v.mount for v in volumes] + ([mount for _, mount in _data(job, role)]),
        "resources": _resources(job, workload, on_device),
        "terminationMessagePath": names.TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if ports := _ports(role):
        container["ports"] = ports
    if probe := _readiness(role):
        container["readinessProbe"] = probe
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": names.hostname(role, workload.index),
        "subdomain": names.service_name(job.metadata.name),
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
        "volumes": [v.volume for v in volumes] + [volume for volume, _ in _data(job, role)],
    }
    if job.spec.scheduling.priority_class_name:
        spec["priorityClassName"] = job.spec.scheduling.priority_class_name
    if on_device:
        _add_device_volumes(spec, container, device)
    else:
        _restrict(spec, container)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(job, workload), "spec": spec}
    return share_claims(merge(pod, template))


def durable(job: RLJob) -> bool:
    """Whether checkpoints outlive the pods."""
    return job.spec.checkpoint.volume is not None


def _metadata(job: RLJob, workload: Workload) -> dict[str, Any]:
    meta = job.metadata
    return {
        "name": workload.name,
        "namespace": meta.namespace,
        "labels": names.labels(meta.name, meta.uid, workload.role, workload.index, workload.attempt),
        "ownerReferences": [objects.owner(job)],
    }


def _env(job: RLJob, workload: Workload, on_device: bool) -> list[dict[str, Any]]:
    """`RLJOB_*` from the shared function; uid and address by the downward API."""
    values = worker_env(job, workload, _endpoints(job, workload))
    if on_device and job.spec.scheduling.device is DevicePreset.NPU:
        values |= NPU_ENV
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    for name, field in ((names.ENV_POD_UID, "metadata.uid"), (names.ENV_POD_IP, "status.podIP")):
        env.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}})
    return env


def _endpoints(job: RLJob, workload: Workload) -> Endpoints:
    name, role = job.metadata.name, workload.role
    domain = f"{job.metadata.namespace}.svc"
    first = names.hostname(role, rendezvous_index(job, role, workload.index))
    listen = {Role.COORDINATOR: names.PORT_COORDINATOR, Role.STORE_MASTER: names.PORT_STORE_MASTER}.get(role)
    return Endpoints(
        coordinator=f"{names.coordinator_service_name(name)}.{domain}:{names.PORT_COORDINATOR}",
        rendezvous=f"{first}.{names.service_name(name)}.{domain}:{names.PORT_RENDEZVOUS}",
        store_master=f"{names.store_service_name(name)}.{domain}:{names.PORT_STORE_MASTER}",
        listen=f"0.0.0.0:{listen}" if listen else "",
        job_file=f"{names.MOUNT_JOB}/{objects.JOB_FILE}",
        token_file=f"{names.MOUNT_TOKEN}/{objects.TOKEN_FILE}",
        run_dir=names.MOUNT_RUN if role is Role.COORDINATOR else None,
        checkpoint_dir=_checkpoint_directory(job) if role in _DURABLE_ROLES else None,
        checkpoint_durable=durable(job),
        started_at=workload.job_started_at,
    )


def _volumes(job: RLJob, role: Role) -> list[_Mounted]:
    secret = names.token_secret_name(job.metadata.name, job.metadata.uid)
    out = [
        _Mounted(
            volume={"name": "job", "configMap": {"name": names.job_config_name(job.metadata.name)}},
            path=names.MOUNT_JOB,
            read_only=True,
        ),
        _Mounted(
            volume={"name": "token", "secret": {"secretName": secret, "defaultMode": 0o440}},
            path=names.MOUNT_TOKEN,
            read_only=True,
        ),
    ]
    if role in _DURABLE_ROLES:
        out.append(_Mounted(volume={"name": "checkpoint"} | _checkpoint_source(job), path=names.MOUNT_CHECKPOINT))
    if role is Role.COORDINATOR:
        out.append(
            _Mounted(
                volume={"name": "run", "emptyDir": {"sizeLimit": str(most_bytes(job.spec.algorithm.steps))}},
                path=names.MOUNT_RUN,
            )
        )
    return out


def _checkpoint_source(job: RLJob) -> dict[str, Any]:
    volume = job.spec.checkpoint.volume
    if volume and volume.persistent_volume_claim:
        return {"persistentVolumeClaim": {"claimName": volume.persistent_volume_claim.name}}
    if volume and volume.host_path:
        return {"hostPath": {"path": volume.host_path.path, "type": "Directory"}}
    return {"emptyDir": {}}


def _checkpoint_directory(job: RLJob) -> str:
    """Made by the workers: a subPath would be made by the kubelet, as root, where they cannot write."""
    return f"{names.MOUNT_CHECKPOINT}/{names.checkpoint_folder(job.metadata.namespace, job.metadata.name)}"


def _data(job: RLJob, role: Role) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Only the coordinator reads prompts."""
    return objects.data_volumes(job) if role is Role.COORDINATOR else []


def _resources(job: RLJob, workload: Workload, on_device: bool) -> dict[str, Any]:
    """Device count as limit and request alike; a store pod's memory follows its segment."""
    requests: dict[str, Any] = {"cpu": "100m", "memory": "256Mi"}
    limits: dict[str, Any] = {}
    if on_device:
        scheduling = job.spec.scheduling
        name = scheduling.resource_name or RESOURCE_NAMES[scheduling.device]
        limits[name] = requests[name] = str(workload.devices)
    if workload.role is Role.STORE:
        managed = job.spec.kv_store.managed_store
        assert managed is not None, "an external store has no store pods"
        memory = round(managed.segment_bytes * STORE_OVERHEAD) + STORE_FIXED_BYTES
        limits["memory"] = requests["memory"] = str(memory)
    return {"requests": requests} | ({"limits": limits} if limits else {})


def _ports(role: Role) -> list[dict[str, Any]]:
    ports = {
        Role.COORDINATOR: {"http": names.PORT_COORDINATOR},
        Role.STORE_MASTER: {"master": names.PORT_STORE_MASTER, "metrics": names.PORT_STORE_METRICS},
    }.get(role, {})
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()]


def _readiness(role: Role) -> dict[str, Any] | None:
    """Servers are ready when they answer; the other roles register with the coordinator and say so there."""
    timing = {"periodSeconds": 2, "timeoutSeconds": 2}
    if role is Role.COORDINATOR:
        return {"httpGet": {"path": "/healthz", "port": names.PORT_COORDINATOR, "scheme": "HTTP"}} | timing
    if role is Role.STORE_MASTER:
        return {"tcpSocket": {"port": names.PORT_STORE_MASTER}} | timing
    return None


def _add_device_volumes(spec: dict[str, Any], container: dict[str, Any], device: DevicePreset) -> None:
    """Shared memory for collectives; on Ascend also hccn.conf, which the runtime does not mount and HIXL reads."""
    added = [_Mounted(volume={"name": "shm", "emptyDir": {"medium": "Memory"}}, path="/dev/shm")]
    if device is DevicePreset.NPU:
        source = {"path": "/etc/hccn.conf", "type": "File"}
        added.append(_Mounted(volume={"name": "hccn", "hostPath": source}, path="/etc/hccn.conf", read_only=True))
    spec["volumes"] += [m.volume for m in added]
    container["volumeMounts"] += [m.mount for m in added]


def _restrict(spec: dict[str, Any], container: dict[str, Any]) -> None:
    """The restricted Pod Security profile. The user is the image's own, which must be a number other than 0."""
    spec["securityContext"] = {
        "runAsNonRoot": True,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
