"""What decisions see and what they say: Observed, Memory, Plan. Frozen values that print well."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import Field, field_validator

from rljob_core.api.base import Document
from rljob_core.api.directive import Directive
from rljob_core.api.report import Report, TerminationMessage
from rljob_core.api.status import FirstCause, Phase, Reason, RLJobStatus
from rljob_core.names import Role

MEMORY_MAJOR = 1


class WorkloadPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class ObservedWorkload:
    """One child pod or local process, as the substrate sees it."""

    name: str
    role: Role
    index: int
    attempt: int
    uid: str
    phase: WorkloadPhase
    ready: bool = False
    deleting: bool = False
    node: str = ""
    exit_code: int | None = None
    reason: str = ""
    """Container or pod reason (`OOMKilled`, `Evicted`, `Unschedulable`)."""
    message: str = ""
    disrupted: bool = False
    """Ended by eviction, preemption or node loss: not the worker's fault."""
    last_words: TerminationMessage | None = None
    started_at: float | None = None
    """Unix seconds at which the worker began to run, where the substrate knows it."""
    finished_at: float | None = None
    """Unix seconds of the end, where the substrate knows it: orders failures (B30)."""

    @property
    def live(self) -> bool:
        """It may still hold devices: not ended yet, even when it is being deleted."""
        return self.phase in (WorkloadPhase.PENDING, WorkloadPhase.RUNNING)


@dataclass(frozen=True, kw_only=True)
class ApplyError:
    """One action of the last plan that the API (or the machine) refused."""

    action: str
    name: str
    reason: str
    """A `Reason` value: QuotaExceeded, InvalidTemplate, NameTaken, CreateFailed."""
    message: str
    field: str = ""
    """RLJob path of the offending template field, where known."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Everything outside the spec that a decision may depend on."""

    workloads: tuple[ObservedWorkload, ...] = ()
    report: Report | None = None
    report_error: str = ""
    errors: tuple[ApplyError, ...] = ()
    status: RLJobStatus = field(default_factory=RLJobStatus)
    drain_requested: bool = False
    """The embedded command was interrupted."""
    durable_checkpoints: bool = False
    """The checkpoint directory outlives the pods (embedded: always)."""
    invalid_input: str = ""
    """What reading model or data beforehand showed; empty when fine or unread."""
    created_at: float = 0.0
    """Unix seconds of the RLJob's creation."""
    units: str = "pods"
    """What workloads are called in messages."""


class GangMember(Document):
    """A workload this attempt created (uids tell a replaced pod from ours)."""

    name: str
    uid: str = ""


class Ending(Document):
    """The terminal verdict; once remembered it is never taken back (B17)."""

    phase: Phase
    reason: Reason
    message: str = ""


class CreateTrouble(Document):
    """Why workloads could not be created at the last try (B3, B6)."""

    name: str
    reason: Reason
    message: str
    tries: int = 1
    """Tries in a row that were refused: the back-off grows with it."""
    not_before: float = 0.0
    """Unix seconds before which no further try is made."""


class Memory(Document):
    """What decisions must remember; the only state of the operator, written before a plan is acted on."""

    model_config = Document.model_config | {"extra": "ignore"}
    format_major: int = MEMORY_MAJOR
    """Of a document that another version wrote: an unknown one is refused, never guessed at."""
    attempt: int = 0
    counted_restarts: int = 0
    uncounted_restarts: int = 0
    replacements: dict[str, int] = Field(default_factory=dict)
    """`role/index` -> replacements since the job began. Pod names carry attempt + replacements, so that no name of a
    slot is ever used twice."""
    restart_not_before: float = 0.0
    """Back-off: unix seconds before which the next attempt is not started."""
    replace_not_before: float = 0.0
    """Back-off: unix seconds before which no single pod is replaced."""
    create_trouble: CreateTrouble | None = None
    furthest_step: int = 0
    """Most training steps ever reported: what goes beyond it is progress, what a rollback does again is not."""
    tries: int = 0
    """Restarts and replacements since the last progress: the back-off grows with it."""
    directive_revision: int = 0
    last_directive: Directive | None = None
    first_cause: FirstCause | None = None
    start_time: float | None = None
    completion_time: float | None = None
    deadline_from: float | None = None
    """When a Failed job was tried again: its deadline counts from here, not from its creation."""
    resumed_step: int | None = None
    """Step of the checkpoint this attempt went on from, once its coordinator said so."""
    final_report: Report | None = None
    """The coordinator's own account of the end, once it gave one."""
    done_since: float | None = None
    """When the coordinator was first known to have reached its goal."""
    drain_since: float | None = None
    """When draining was asked for."""
    ending: Ending | None = None
    progress_at: float = 0.0
    """When progress figures last went into the status."""
    gang: list[GangMember] = Field(default_factory=list)
    """Workloads of this attempt that were seen to exist: one of them missing was lost, not yet to be created."""

    @field_validator("format_major")
    @classmethod
    def _known(cls, major: int) -> int:
        if major != MEMORY_MAJOR:
            raise ValueError(f"{major} is not supported, this version reads {MEMORY_MAJOR}: use the one that wrote it")
        return major

    def durable(self) -> Memory:
        """Without what may be forgotten: a difference in that alone is not worth a write."""
        return self.model_copy(update={"progress_at": 0.0, "furthest_step": 0})


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One pod or process that shall exist."""

    name: str
    role: Role
    index: int
    attempt: int
    """Attempt of its gang."""
    replacement: int = 0
    """Earlier workloads of this role and index that were replaced on their own."""
    devices: int = 0
    """Device processes inside it; 0 for roles without a device."""
    job_started_at: float = 0.0
    """Unix seconds at which the job's workloads were first wanted, whichever attempt this is."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """To be posted after the status write succeeded, never repeated."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now. `create` holds only what does not exist yet; `delete` names what shall go."""

    create: tuple[Workload, ...] = ()
    delete: tuple[str, ...] = ()
    directive: Directive | None = None
    status: RLJobStatus = field(default_factory=RLJobStatus)
    events: tuple[Event, ...] = ()
    memory: Memory = field(default_factory=Memory)
    requeue_after: float | None = None
    """Seconds after which to decide again even if nothing happens; None: wait for an event."""
