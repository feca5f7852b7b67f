"""Environment of a worker entry point: one function for both substrates, so that pods and processes cannot differ."""

from __future__ import annotations

from dataclasses import dataclass

from rljob_core import names
from rljob_core.api.spec import RLJob
from rljob_core.lifecycle.model import Workload
from rljob_core.names import Role


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """What only the substrate knows of a workload: addresses, paths, identity.

    Addresses are `host:port`. None leaves the variable out (the Kubernetes substrate fills pod uid and IP by the
    downward API).
    """

    coordinator: str
    rendezvous: str
    """Rank 0 of the torch.distributed world of this workload's role (of its rollout group)."""
    store_master: str
    listen: str = ""
    """Coordinator and store master: what they bind."""
    store_metrics_port: int = names.PORT_STORE_METRICS
    pod_ip: str | None = None
    pod_uid: str | None = None
    job_file: str
    token_file: str
    termination_log: str = names.TERMINATION_LOG
    run_dir: str | None = None
    checkpoint_dir: str | None = None
    checkpoint_durable: bool = False
    started_at: float
    """Of the job, unix seconds: the same for all its attempts."""


def rollout_group(job: RLJob, pod_index: int) -> int:
    """Rollout group of a rollout pod."""
    rollout = job.spec.rollout
    return pod_index * rollout.devices_per_pod // (rollout.layout.dp * rollout.layout.tp)


def rendezvous_index(job: RLJob, role: Role, pod_index: int) -> int:
    """Index of the pod that hosts rank 0 of the world this pod belongs to."""
    if role is not Role.ROLLOUT:
        return 0
    rollout = job.spec.rollout
    return rollout_group(job, pod_index) * rollout.layout.dp * rollout.layout.tp // rollout.devices_per_pod


def worker_env(job: RLJob, workload: Workload, endpoints: Endpoints, threads: int = 1) -> dict[str, str]:
    """Every `RLJOB_*` variable of a workload. threads: compute threads of each process."""
    external = job.spec.kv_store.external
    env = {
        names.ENV_ROLE: str(workload.role),
        names.ENV_JOB_NAME: job.metadata.name,
        names.ENV_JOB_UID: job.metadata.uid,
        names.ENV_JOB_FILE: endpoints.job_file,
        names.ENV_POD_NAME: workload.name,
        names.ENV_POD_INDEX: str(workload.index),
        names.ENV_ATTEMPT: str(workload.attempt),
        names.ENV_DEVICES_PER_POD: str(max(1, workload.devices)),
        names.ENV_DEVICE: str(job.spec.scheduling.device),
        names.ENV_THREADS: str(threads),
        names.ENV_TOKEN_FILE: endpoints.token_file,
        names.ENV_COORDINATOR: endpoints.coordinator,
        names.ENV_RENDEZVOUS: endpoints.rendezvous,
        names.ENV_STORE_MASTER: external.master_address if external else endpoints.store_master,
        names.ENV_STORE_METRICS_PORT: str(endpoints.store_metrics_port),
        names.ENV_TERMINATION_LOG: endpoints.termination_log,
        names.ENV_CHECKPOINT_DURABLE: "true" if endpoints.checkpoint_durable else "false",
        names.ENV_STARTED_AT: f"{endpoints.started_at:.3f}",
    }
    optional = {
        names.ENV_LISTEN: endpoints.listen or None,
        names.ENV_POD_IP: endpoints.pod_ip,
        names.ENV_POD_UID: endpoints.pod_uid,
        names.ENV_RUN_DIR: endpoints.run_dir,
        names.ENV_CHECKPOINT_DIR: endpoints.checkpoint_dir,
    }
    return env | {name: value for name, value in optional.items() if value is not None}
