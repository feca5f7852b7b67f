"""Spec groups of where things run and live: deployment, experts, kvStore, checkpoint, scheduling, lifecycle."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from rljob_core.api.base import Document


class Mode(StrEnum):
    SEPARATED = "Separated"
    TRAIN_ROLLOUT_COLOCATED = "TrainRolloutColocated"
    FULLY_COLOCATED = "FullyColocated"
    AUTO = "Auto"


class Deployment(Document):
    """Which roles share devices."""

    mode: Mode = Mode.SEPARATED
    """Deployment mode. Default Separated (others: not yet)."""


class Experts(Document):
    """Placement of experts over rollout devices."""

    redundant: int = 0
    """Extra replicas of hot experts a layer. Default 0 (others: not yet)."""


class StoreProtocol(StrEnum):
    TCP = "tcp"
    RDMA = "rdma"
    ASCEND = "ascend"


class ManagedStore(Document):
    """A MooncakeStore that lives and dies with the job."""

    segments: int = 1
    """Store pods, one segment each. Default 1."""
    segment_bytes: int = 1 << 30
    """Bytes a segment. Default 1 GiB; an object never spans segments."""
    template: dict[str, Any] = Field(default_factory=dict)
    """Pod template of the store pods, merged by key over the generated one."""


class ExternalStore(Document):
    """A MooncakeStore someone else runs; the job sweeps its own keys at the end."""

    master_address: str
    """host:port of `mooncake_master`."""


class KVStore(Document):
    """MooncakeStore: managed (default) or external."""

    managed: ManagedStore | None = None
    """Deployed by the operator. Default when `external` is absent."""
    external: ExternalStore | None = None
    """Already running."""
    protocol: StoreProtocol = StoreProtocol.TCP
    """Transport: tcp on CPU, rdma or ascend on accelerators. Default tcp."""


class HostPath(Document):
    """A directory of the node; shared only where all pods run on that node."""

    path: str
    """Absolute path."""


class ClaimVolume(Document):
    """A PersistentVolumeClaim; ReadWriteMany unless all pods share a node."""

    name: str
    """Claim name."""


class CheckpointVolume(Document):
    """Exactly one kind of shared volume."""

    persistent_volume_claim: ClaimVolume | None = None
    """A claim."""
    host_path: HostPath | None = None
    """A node directory."""


class Checkpoint(Document):
    """Model, optimizer, data position, RNG and the coordinator's journal, saved atomically."""

    volume: CheckpointVolume | None = None
    """Shared by coordinator and trainers. Absent: emptyDir on a cluster (resume is not promised), `runs/<job>`
    embedded."""
    every_steps: int = 20
    """Steps between checkpoints. Default 20; one more at the end and at a drain."""
    keep: int = 3
    """Newest checkpoints kept. Default 3."""


class DevicePreset(StrEnum):
    CPU = "cpu"
    NPU = "npu"
    CUDA = "cuda"


class Scheduling(Document):
    """Where pods run."""

    device: DevicePreset = DevicePreset.CPU
    """Device kind of trainer and rollout pods. Default cpu."""
    image: str | None = None
    """Worker image of all roles. Default: the operator's `RLJOB_WORKER_IMAGE`."""
    resource_name: str | None = None
    """Extended resource a device pod asks for. Default by device: `huawei.com/Ascend910`, `nvidia.com/gpu`."""
    priority_class_name: str | None = None
    """PriorityClass of all pods."""


class Lifecycle(Document):
    """Retries and deadlines."""

    backoff_limit: int = 3
    """Restarts of the job from its last checkpoint before it is Failed. Default 3."""
    active_deadline_seconds: int | None = None
    """Seconds from creation to the end at most. Absent: no limit."""
