"""Report: what a job's coordinator knows (GET, long poll after a sequence number, at most 16 KiB)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from rljob_core.api.base import Document
from rljob_core.api.directive import StageName, Versioned

REPORT_LIMIT_BYTES = 16 * 1024


class Outcome(StrEnum):
    """How the coordinator ended, or not yet."""

    NONE = "None"
    STEPS_DONE = "StepsDone"
    TARGET_REACHED = "TargetReached"
    DRAINED = "Drained"
    INVALID_INPUT = "InvalidInput"
    FAILED = "Failed"


SILENT_LIMIT = 64


class StageTime(Document):
    """Seconds a role spent in a stage, summed over its processes since the start."""

    role: str
    stage: StageName
    seconds: float


class QueueDepth(Document):
    """Rows of one table."""

    table: str
    ready: int
    leased: int


class WorkerHealth(Document):
    """Registered workers of a role."""

    role: str
    registered: int
    wanted: int


class Cause(Document):
    """First cause of a failure, in the worker's own words."""

    role: str
    pod: str
    rank: int = -1
    message: str = ""


class Absent(Document):
    """A rank nobody has registered for."""

    role: str
    rank: int


class KVCounters(Document):
    """Prefill KV through MooncakeStore."""

    puts: int = 0
    hits: int = 0
    misses: int = 0
    bytes: int = 0


class QueueCounters(Document):
    """Packed sample traffic."""

    samples: int = 0
    payload_bytes: int = 0
    padded_bytes: int = 0
    """What the same samples would take padded to their batch's longest."""


class WeightCounters(Document):
    """Weight publication and pull."""

    bytes: int = 0
    seconds: float = 0.0
    publishes: int = 0
    pulls: int = 0


class ExpertCounters(Document):
    """Expert load of the last step."""

    max_over_mean: float = 0.0
    """Per layer max/mean over experts, averaged over layers (placement.md P5)."""


class Report(Versioned):
    """One snapshot."""

    sequence: int
    """Grows with every change."""
    applied_revision: int = 0
    outcome: Outcome = Outcome.NONE
    outcome_message: str = ""
    stage: StageName = StageName.IDLE
    """What the job is mostly doing now."""
    step: int = 0
    total_steps: int = 0
    policy_version: int = 0
    lag_newest: int = 0
    lag_oldest: int = 0
    """Largest lag, at the oldest token, of the last trained step."""
    max_version_lag_seen: int = 0
    """Over the whole run."""
    reward_mean: float = 0.0
    eval_exact_match: float | None = None
    eval_mean_reward: float | None = None
    eval_step: int | None = None
    tokens_generated: int = 0
    tokens_per_second: float = 0.0
    logprob_gap: float | None = None
    """Largest |rollout - trainer| log-probability difference of any token under the same version; absent until one was
    compared."""
    loss: float = 0.0
    grad_norm: float = 0.0
    clip_fraction: float = 0.0
    kl: float = 0.0
    importance_ratio_mean: float = 1.0
    response_tokens_mean: float = 0.0
    first_token_at: float | None = None
    """Unix seconds of the first sampled token."""
    stages: list[StageTime] = Field(default_factory=list, max_length=64)
    queues: list[QueueDepth] = Field(default_factory=list, max_length=16)
    workers: list[WorkerHealth] = Field(default_factory=list, max_length=16)
    silent: list[str] = Field(default_factory=list, max_length=SILENT_LIMIT)
    """Pods whose worker was lost and has not come back; those that still run are replaced."""
    absent: list[Absent] = Field(default_factory=list, max_length=SILENT_LIMIT)
    """Ranks without a worker for longer than `lifecycle.startupDeadlineSeconds`: a pod of one that has run for so long
    hangs, and is replaced."""
    kv: KVCounters = KVCounters()
    queue: QueueCounters = QueueCounters()
    weights: WeightCounters = WeightCounters()
    experts: ExpertCounters = ExpertCounters()
    last_checkpoint_step: int | None = None
    resumed_step: int | None = None
    """Step of the checkpoint this coordinator went on from; absent when there was none."""
    dropped_prompts: int = 0
    reward_timeouts: int = 0
    cause: Cause | None = None


class TerminationMessage(Document):
    """Last words of a worker, written as JSON to its termination log (at most 4,096 bytes)."""

    model_config = Document.model_config | {"extra": "ignore"}
    invalid_input: bool = False
    rank: int = -1
    exit_code: int = 0
    message: str = ""
    report: Report | None = None
    """The coordinator's final report, so that an operator that was away still learns the figures."""
