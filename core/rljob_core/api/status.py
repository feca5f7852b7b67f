"""RLJob status: phase, conditions, counts. Lists and maps live in ConfigMaps, never here."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rljob_core.api.base import Document


class Phase(StrEnum):
    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class ConditionType(StrEnum):
    """Ready: as the spec asks (running or complete). Never contradictory (kubernetes.md B33)."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    COMPLETE = "Complete"
    FAILED = "Failed"
    PODS_CREATED = "PodsCreated"
    RESUMABLE = "Resumable"


class Reason(StrEnum):
    """Why a phase or condition is what it is: part of the API."""

    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    INVALID_TEMPLATE = "InvalidTemplate"
    INVALID_INPUT = "InvalidInput"
    CREATING_PODS = "CreatingPods"
    PODS_CREATED = "PodsCreated"
    QUOTA_EXCEEDED = "QuotaExceeded"
    CREATE_FAILED = "CreateFailed"
    NAME_TAKEN = "NameTaken"
    MEMORY_UNREADABLE = "MemoryUnreadable"
    WAITING_FOR_PODS = "WaitingForPods"
    WAITING_FOR_REPORT = "WaitingForReport"
    TRAINING = "Training"
    WORKER_FAILED = "WorkerFailed"
    RESTARTING_FROM_CHECKPOINT = "RestartingFromCheckpoint"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    STEPS_DONE = "StepsDone"
    TARGET_REACHED = "TargetReached"
    DRAINING = "Draining"
    DRAINED = "Drained"
    DURABLE_VOLUME = "DurableVolume"
    EMPTY_DIR = "EmptyDir"


class ConditionStatus(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Document):
    """metav1.Condition."""

    type: ConditionType
    """What it says something about."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Reason
    """One word from the list above."""
    message: str = ""
    """A sentence with numbers."""
    last_transition_time: str
    """RFC 3339 time at which `status` last changed."""
    observed_generation: int = 0
    """Generation of the spec this was computed from."""


class Ready(Document):
    """Pods ready and wanted, one role."""

    ready: int = 0
    """Pods that are ready."""
    wanted: int = 0
    """Pods the spec asks for."""


class FirstCause(Document):
    """The first failure of the last incident (kubernetes.md B30)."""

    pod: str
    """Pod or process name."""
    role: str
    """Role."""
    node: str = ""
    """Node."""
    rank: int = -1
    """Global rank inside the role; -1 when unknown."""
    exit_code: int = 0
    """Exit code."""
    reason: str = ""
    """Container or pod reason."""
    message: str = ""
    """The worker's own words, cut to 1,024 characters."""
    time: str = ""
    """RFC 3339."""


class Restarts(Document):
    """Restarts so far."""

    counted: int = 0
    """Against `lifecycle.backoffLimit`."""
    uncounted: int = 0
    """Not against it."""


class RLJobStatus(Document):
    """What `kubectl get rljobs` shows."""

    model_config = Document.model_config | {"extra": "ignore"}

    phase: Phase = Phase.PENDING
    """Lifecycle phase."""
    reason: str = ""
    """Why this phase; while Running, the current RL phase."""
    message: str = ""
    """One sentence."""
    observed_generation: int = 0
    """Generation of the spec last acted on."""
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """metav1 conditions."""
    step: int = 0
    """Training steps done."""
    total_steps: int = 0
    """Training steps asked for."""
    progress: str = ""
    """`step/totalSteps`, for the STEP column."""
    policy_version: int = 0
    """Version of the newest published weights."""
    reward: str = ""
    """Mean training reward of the last step, three digits (a string: floats in status are discouraged)."""
    eval_exact_match: str = ""
    """Exact match of the last evaluation, three digits."""
    lag: int = 0
    """Largest version lag trained in the last step."""
    tokens_per_second: str = ""
    """Generated tokens a second, three digits."""
    balance: str = ""
    """Expert load, max/mean over experts, mean over layers."""
    mode: str = ""
    """Deployment mode in force."""
    pods_ready: str = ""
    """`ready/wanted` over all roles, for the READY column; `-` once the job has ended."""
    roles: dict[str, Ready] = Field(default_factory=dict)
    """Ready counts by role; none once the job has ended."""
    restarts: Restarts = Restarts()
    """Restart counts."""
    attempt: int = 0
    """Attempt number: pods of one attempt form a gang."""
    first_cause: FirstCause | None = None
    """First failure of the last incident."""
    last_checkpoint_step: int | None = None
    """Step of the newest complete checkpoint."""
    resumed_step: int | None = None
    """Step of the checkpoint that this attempt went on from; absent when it began with the first step."""
    start_time: str | None = None
    """When the first pod was asked for."""
    completion_time: str | None = None
    """When the job became Succeeded or Failed."""
