"""Every label, annotation, environment variable, port and derived object name, in one place."""

from __future__ import annotations

from enum import StrEnum

GROUP = "rljob.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "RLJob"
PLURAL = "rljobs"
SHORT_NAME = "rlj"
FIELD_MANAGER = "rljob-operator"


class Role(StrEnum):
    """What a pod (or local process) of a job does."""

    COORDINATOR = "coordinator"
    TRAINER = "trainer"
    ROLLOUT = "rollout"
    REWARD = "reward"
    STORE_MASTER = "store-master"
    STORE = "store"


# Labels on every child. Identity is read from labels, never parsed from names (kubernetes.md B8).
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "rljob-operator"
LABEL_JOB = f"{GROUP}/job"
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_ATTEMPT = f"{GROUP}/attempt"

# Environment of a worker entry point; the same on both substrates. Lists and maps travel in files.
ENV_ROLE = "RLJOB_ROLE"
ENV_JOB_NAME = "RLJOB_JOB_NAME"
ENV_JOB_UID = "RLJOB_JOB_UID"
ENV_JOB_FILE = "RLJOB_JOB_FILE"  # JSON: the whole RLJob object, defaults applied
ENV_POD_NAME = "RLJOB_POD_NAME"
ENV_POD_INDEX = "RLJOB_POD_INDEX"
ENV_POD_UID = "RLJOB_POD_UID"  # unique per process incarnation
ENV_ATTEMPT = "RLJOB_ATTEMPT"
ENV_DEVICES_PER_POD = "RLJOB_DEVICES_PER_POD"
ENV_LOCAL_RANK = "RLJOB_LOCAL_RANK"  # set by the entry point for each device process
ENV_DEVICE = "RLJOB_DEVICE"  # cpu | npu | cuda
ENV_THREADS = "RLJOB_THREADS"  # compute threads a process
ENV_TOKEN_FILE = "RLJOB_TOKEN_FILE"
ENV_COORDINATOR = "RLJOB_COORDINATOR"  # host:port
ENV_LISTEN = "RLJOB_LISTEN"  # host:port the coordinator (or the store master) binds
ENV_POD_IP = "RLJOB_POD_IP"  # address other pods reach this one at
ENV_RENDEZVOUS = "RLJOB_RENDEZVOUS"  # host:port of torch.distributed rank 0 of this role's (group's) world
ENV_STORE_MASTER = "RLJOB_STORE_MASTER"  # host:port
ENV_STORE_METRICS_PORT = "RLJOB_STORE_METRICS_PORT"
ENV_RUN_DIR = "RLJOB_RUN_DIR"  # coordinator: metrics.jsonl, samples.jsonl, events, summary.json
ENV_CHECKPOINT_DIR = "RLJOB_CHECKPOINT_DIR"  # shared by coordinator and trainers when durable
ENV_CHECKPOINT_DURABLE = "RLJOB_CHECKPOINT_DURABLE"  # "true": volume survives the pods; resume is promised
ENV_TERMINATION_LOG = "RLJOB_TERMINATION_LOG"
ENV_STARTED_AT = "RLJOB_STARTED_AT"  # unix seconds at which the job's workloads were first wanted
ENV_PARENT_PID = "RLJOB_PARENT_PID"  # supervisor or launcher: a process whose parent is another one ends at once

# Ports inside a pod (embedded runs take free loopback ports instead).
PORT_COORDINATOR = 8400
PORT_RENDEZVOUS = 8500
PORT_STORE_MASTER = 50051
PORT_STORE_METRICS = 9003

TERMINATION_LOG = "/dev/termination-log"
MOUNT_JOB = "/var/run/rljob/job"
MOUNT_TOKEN = "/var/run/rljob/token"
MOUNT_CHECKPOINT = "/var/lib/rljob/checkpoint"
MOUNT_RUN = "/var/lib/rljob/run"
MOUNT_DATA = "/var/lib/rljob/data"  # spec.data.configMap or persistentVolumeClaim, coordinator pod
MOUNT_EVALUATION = "/var/lib/rljob/evaluation"  # the same for spec.evaluation
WORKER_CONTAINER = "worker"

NAME_LIMIT = 63
LONGEST_SUFFIX = "-store-master-9999-r9999"
JOB_NAME_LIMIT = NAME_LIMIT - len(LONGEST_SUFFIX)
"""Longest RLJob name whose longest derived name is still a DNS label (kubernetes.md B46)."""


def pod_name(job: str, role: Role, index: int, attempt: int) -> str:
    """Deterministic: `<job>-<role>-<index>`, and `-r<attempt>` from the first replacement on.

    attempt: gang restarts plus single replacements of this slot; never repeats for one role and index.
    """
    return f"{job}-{role}-{index}" + (f"-r{attempt}" if attempt else "")


def hostname(role: Role, index: int) -> str:
    """The pod's hostname: stable over attempts, resolvable as `<hostname>.<job>.<namespace>.svc`."""
    return f"{role}-{index}"


def service_name(job: str) -> str:
    """Headless Service over all pods of the job."""
    return job


def coordinator_service_name(job: str) -> str:
    return f"{job}-coordinator"


def store_service_name(job: str) -> str:
    return f"{job}-store-master"


def job_config_name(job: str) -> str:
    """ConfigMap holding the RLJob document the workers read."""
    return f"{job}-job"


def memory_config_name(job: str) -> str:
    """ConfigMap holding what decisions must remember."""
    return f"{job}-memory"


def checkpoint_folder(namespace: str, job: str) -> str:
    """Of a job below its checkpoint volume, which other jobs may share. One level: each job's user makes its own."""
    return f"{namespace}.{job}"


def token_secret_name(job: str, uid: str) -> str:
    """Carries the job's uid, so a 409 on create can only mean that it is ours."""
    return f"{job}-token-{uid[:8]}"


def labels(job: str, uid: str, role: Role | None = None, index: int = 0, attempt: int = 0) -> dict[str, str]:
    """The one label set: selector part alone, or with the identity of a pod."""
    out = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_JOB: job, LABEL_JOB_UID: uid}
    if role is not None:
        out |= {LABEL_ROLE: str(role), LABEL_INDEX: str(index), LABEL_ATTEMPT: str(attempt)}
    return out
