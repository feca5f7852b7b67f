"""Spec groups of where things run and live: deployment, experts, kvStore, checkpoint, scheduling, lifecycle."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from rljob_core.api.base import Document, FreeForm, Name, Rule, Text
from rljob_core.api.rules import (
    DNS_SUBDOMAIN,
    MAX_STEPS,
    at_most_one,
    between,
    exactly_one,
    only_yet,
    shaped,
    without_parent_parts,
)


class Mode(StrEnum):
    SEPARATED = "Separated"
    TRAIN_ROLLOUT_COLOCATED = "TrainRolloutColocated"
    FULLY_COLOCATED = "FullyColocated"
    AUTO = "Auto"


class Deployment(Document):
    """Which roles share devices."""

    rules: ClassVar[tuple[Rule, ...]] = (only_yet("mode", Mode.SEPARATED),)

    mode: Mode = Mode.SEPARATED
    """Deployment mode. Default Separated (others: not yet)."""


class Experts(Document):
    """Placement of experts over rollout devices."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.redundant == 0",
            message="'redundant is %d: only 0 works, other values not yet'.format([self.redundant])",
            field=".redundant",
        ),
    )

    redundant: int = 0
    """Extra replicas of hot experts a layer. Default 0 (others: not yet)."""


class StoreProtocol(StrEnum):
    TCP = "tcp"
    RDMA = "rdma"
    ASCEND = "ascend"


class ManagedStore(Document):
    """A MooncakeStore that lives and dies with the job."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("segments", 1, 1024),
        between("segmentBytes", 1 << 20, 1 << 40, why="in bytes"),
    )

    segments: int = 1
    """Store pods, one segment each. Default 1."""
    segment_bytes: int = 1 << 30
    """Bytes a segment. Default 1 GiB; an object never spans segments."""
    template: FreeForm = Field(default_factory=dict)
    """Pod template of the store pods, merged by key over the generated one."""


class ExternalStore(Document):
    """A MooncakeStore someone else runs; the job sweeps its own keys at the end."""

    rules: ClassVar[tuple[Rule, ...]] = (
        shaped("masterAddress", r"([-.A-Za-z0-9]+|\[[0-9a-f:.]+\]):[1-9][0-9]{0,4}", "write host:port"),
    )

    master_address: Text
    """host:port of `mooncake_master`."""


class KVStore(Document):
    """MooncakeStore: managed (default) or external."""

    rules: ClassVar[tuple[Rule, ...]] = (at_most_one("managed", "external"),)

    managed: ManagedStore | None = None
    """Deployed by the operator. Default when `external` is absent."""
    external: ExternalStore | None = None
    """Already running."""
    protocol: StoreProtocol = StoreProtocol.TCP
    """Transport: tcp on CPU, rdma or ascend on accelerators. Default tcp."""

    @property
    def managed_store(self) -> ManagedStore | None:
        """The store to deploy: `managed`, its defaults when neither is set, None when the store is external."""
        return None if self.external else self.managed or ManagedStore()


class HostPath(Document):
    """A directory of the node; shared only where all pods run on that node."""

    rules: ClassVar[tuple[Rule, ...]] = (shaped("path", "/.*", "write an absolute path"), without_parent_parts("path"))

    path: Text
    """Absolute path. The directory must exist and be writable by the pods' user (10001 in our image)."""


class ClaimVolume(Document):
    """A PersistentVolumeClaim; ReadWriteMany unless all pods share a node."""

    rules: ClassVar[tuple[Rule, ...]] = (shaped("name", DNS_SUBDOMAIN, "write the name of a claim"),)

    name: Name
    """Claim name."""


class CheckpointVolume(Document):
    """Exactly one kind of shared volume."""

    rules: ClassVar[tuple[Rule, ...]] = (exactly_one("persistentVolumeClaim", "hostPath"),)

    persistent_volume_claim: ClaimVolume | None = None
    """A claim."""
    host_path: HostPath | None = None
    """A node directory."""


class Checkpoint(Document):
    """Model, optimizer, data position, RNG and the coordinator's journal, saved atomically."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("everySteps", 1, MAX_STEPS),
        between("keep", 1, 1000),
    )

    volume: CheckpointVolume | None = None
    """Shared by coordinator and trainers; several trainer pods need one. Jobs may share it: each has its own directory
    `<namespace>.<name>` there, from which a later job of the same name resumes. Absent: emptyDir on a cluster (resume
    is not promised), `runs/<job>` embedded. An embedded run uses a host path of this machine, and refuses a claim."""
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

    rules: ClassVar[tuple[Rule, ...]] = (
        shaped("image", "[^[:space:]]+", "write an image reference", optional=True),
        shaped(
            "resourceName",
            rf"{DNS_SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
            "write an extended resource such as huawei.com/Ascend910",
            optional=True,
        ),
        Rule(
            rule="!has(self.resourceName) || self.device != 'cpu'",
            message="'resourceName is \"%s\", but device is cpu: set device to npu or cuda, or drop resourceName'"
            ".format([self.resourceName])",
            field=".resourceName",
        ),
        shaped("priorityClassName", DNS_SUBDOMAIN, "write the name of a PriorityClass", optional=True),
    )

    device: DevicePreset = DevicePreset.CPU
    """Device kind of trainer and rollout pods. Default cpu."""
    image: Text | None = None
    """Worker image of all roles. Default: the operator's `RLJOB_WORKER_IMAGE`."""
    resource_name: Text | None = None
    """Extended resource a device pod asks for. Default by device: `huawei.com/Ascend910`, `nvidia.com/gpu`."""
    priority_class_name: Name | None = None
    """PriorityClass of all pods."""


class Lifecycle(Document):
    """Retries and deadlines."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("backoffLimit", 0, 1000),
        between("activeDeadlineSeconds", 1, 2**31 - 1, optional=True),
        between("startupDeadlineSeconds", 1, 2**31 - 1),
    )

    backoff_limit: int = 3
    """Restarts of the job from its last checkpoint before it is Failed. Default 3. May change while the job runs."""
    active_deadline_seconds: int | None = None
    """Seconds from creation to the end at most. Absent: no limit. May change while the job runs."""
    startup_deadline_seconds: int = 1800
    """Seconds a worker that runs may take until the coordinator hears of it; then it is lost, like one that fell
    silent. It imports, reads a checkpoint and meets the other ranks meanwhile. Default 1800: as long as collectives on
    Ascend wait for a rank."""
