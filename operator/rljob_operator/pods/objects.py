"""What the pods of a job lean on, as plain objects: headless Services, the job document, the token. Pure."""

from __future__ import annotations

import json
from typing import Any

from rljob_core import names
from rljob_core.api.inputs import ConfigMapFile, DataSource, VolumeFile
from rljob_core.api.spec import ObjectMeta, RLJob
from rljob_core.names import Role

JOB_FILE = "job.json"
TOKEN_FILE = "token"


def owner(job: RLJob) -> dict[str, Any]:
    """Children go with the RLJob by garbage collection; deletion of the RLJob never waits for them (B11)."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def owner_uid(body: dict[str, Any]) -> str:
    """uid of the object's controller, empty without one."""
    owners = body["metadata"].get("ownerReferences") or []
    return next((str(entry["uid"]) for entry in owners if entry.get("controller")), "")


def metadata(job: RLJob, name: str) -> dict[str, Any]:
    """Metadata of a child that is not a pod. Labels and annotations of the RLJob (GitOps tracking) are not copied."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": names.labels(job.metadata.name, job.metadata.uid),
        "ownerReferences": [owner(job)],
    }


def services(job: RLJob, store: bool) -> list[dict[str, Any]]:
    """Names by which pods find each other: all pods, the coordinator, and the store master of a managed store."""
    name = job.metadata.name
    out = [
        _headless(job, names.service_name(name), None, {"rendezvous": names.PORT_RENDEZVOUS}),
        _headless(
            job,
            names.coordinator_service_name(name),
            Role.COORDINATOR,
            {"http": names.PORT_COORDINATOR},
        ),
    ]
    if store:
        ports = {"master": names.PORT_STORE_MASTER, "metrics": names.PORT_STORE_METRICS}
        out.append(_headless(job, names.store_service_name(name), Role.STORE_MASTER, ports))
    return out


def _headless(job: RLJob, name: str, role: Role | None, ports: dict[str, int]) -> dict[str, Any]:
    """Addresses are published before readiness: a peer that looks early waits for the port, not for a DNS cache."""
    selector = {names.LABEL_JOB_UID: job.metadata.uid} | ({names.LABEL_ROLE: str(role)} if role else {})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector,
            "ports": [
                {"name": port_name, "port": port, "targetPort": port, "protocol": "TCP"}
                for port_name, port in ports.items()
            ],
        },
    }


def job_config(job: RLJob) -> dict[str, Any]:
    """ConfigMap with the RLJob as workers read it."""
    document = json.dumps(worker_document(job).to_wire(), sort_keys=True)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, names.job_config_name(job.metadata.name)),
        "data": {JOB_FILE: document},
    }


def token_secret(job: RLJob, token: str) -> dict[str, Any]:
    """Secret with the job's token; its name carries the uid, so that a 409 on create can only mean it is ours."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": metadata(job, names.token_secret_name(job.metadata.name, job.metadata.uid)),
        "stringData": {TOKEN_FILE: token},
    }


def worker_document(job: RLJob) -> RLJob:
    """The RLJob with defaults applied: the spec as the user wrote it, so that workers name the user's own fields."""
    identity = job.metadata
    kept = ObjectMeta(
        name=identity.name, namespace=identity.namespace, uid=identity.uid, generation=identity.generation
    )
    return job.model_copy(update={"metadata": kept})


def data_volumes(job: RLJob) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(volume, volumeMount) of each mounted data source, read-only."""
    sources: list[tuple[str, str, DataSource | None]] = [
        ("data-training", names.MOUNT_DATA, job.spec.data),
        ("data-evaluation", names.MOUNT_EVALUATION, job.spec.evaluation),
    ]
    out = []
    for name, path, source in sources:
        file = (source.config_map or source.persistent_volume_claim) if source else None
        if file is not None:
            mount = {"name": name, "mountPath": path, "readOnly": True}
            out.append(({"name": name, **_volume_source(file)}, mount))
    return out


def _volume_source(file: ConfigMapFile | VolumeFile) -> dict[str, Any]:
    if isinstance(file, ConfigMapFile):
        return {"configMap": {"name": file.name}}
    return {"persistentVolumeClaim": {"claimName": file.name, "readOnly": True}}
