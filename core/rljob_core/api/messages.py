"""Messages between workers and the coordinator: one WebSocket each, msgpack frames, columnar and batched.

A frame is a map {"id": n, "type": name, "body": {...}} from the worker and {"id": n, "body"| "error": ...} back;
several requests may be open at once. Row ids, prompt ids and versions are ints; lists of a message that belong
together have equal length. Times are seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Message(BaseModel):
    """Frozen; keys stay snake_case on this wire; unknown keys are ignored (minor versions)."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class TableName(StrEnum):
    """Queue tables, in the order of a sample's life."""

    PROMPT = "prompt"  # rows: prompts to prefill
    ROLLOUT = "rollout"  # rows: samples to decode
    REWARD = "reward"  # rows: finished samples to score
    TRAIN = "train"  # rows: scored samples
    EVALUATION = "evaluation"  # rows: evaluation samples to decode


class Register(Message):
    """First message of a connection. Reply: Registered."""

    protocol_major: int = 1
    role: str
    pod: str
    pod_uid: str
    index: int
    """Pod index inside the role."""
    rank: int
    """Global rank of this process: pod index x devicesPerPod + local rank."""
    world: int
    group: int = 0
    """Rollout group."""
    rendezvous: str = ""
    resumed_step: int = -1
    """Trainer: step of the checkpoint it restored; -1 for none."""


class Registered(Message):
    worker_id: int
    heartbeat_s: float = 3.0
    """A worker whose last three heartbeats are missing is lost, and its leases return."""
    attempt: int = 0
    instance: str = ""
    """Incarnation of the coordinator: a link that meets another one ends."""


class Heartbeat(Message):
    """Counters since the last one; spans are finished stages, unix seconds."""

    stage: str = "idle"
    version: int = -1
    spans: list[Span] = Field(default_factory=list)


class Span(Message):
    """One finished stage of a process, for timeline and phase_seconds."""

    stage: str
    start: float
    end: float
    step: int = -1


class Ack(Message):
    ok: bool = True


class Goodbye(Message):
    """A worker that ends on purpose; error says why when it is a failure."""

    error: str = ""
    invalid_input: bool = False
    rank: int = -1


class PrefillUnit(Message):
    """Prompts to prefill, or to decode from."""

    prompt_id: int
    token_ids: list[int]


class TakeRollout(Message):
    """A rollout group asks for work, having room for `free_sequences`. Long poll up to wait_s. Reply: RolloutWork."""

    version: int
    """Version its weights prove; -1 before the first pull."""
    free_sequences: int
    in_flight: int
    """Sequences still decoding here."""
    wait_s: float = 5.0


class WorkKind(StrEnum):
    """What a worker shall do next."""

    WAIT = "wait"
    PULL = "pull"  # pull `version`, nothing may be in flight
    PREFILL = "prefill"
    DECODE = "decode"
    STOP = "stop"


class RolloutWork(Message):
    """Columns of equal length: one entry a prompt (PREFILL) or a sample (DECODE)."""

    kind: WorkKind
    version: int = -1
    """PULL: version to pull; PREFILL and DECODE: version the work is dispatched under."""
    table: TableName = TableName.ROLLOUT
    rows: list[int] = Field(default_factory=list)
    attempts: list[int] = Field(default_factory=list)
    prompt_ids: list[int] = Field(default_factory=list)
    sample_indices: list[int] = Field(default_factory=list)
    prompts: list[list[int]] = Field(default_factory=list)
    """Prompt token ids."""
    kv_keys: list[str] = Field(default_factory=list)
    """DECODE: key of the prompt's prefill KV; empty string when there is none (recompute)."""
    greedy: bool = False
    max_response_tokens: int = 0
    lease_s: float = 60.0
    first_step: int = 0
    """Training step these samples are meant for (seeds of deterministic runs)."""


class CompletePrefill(Message):
    """Prefill done: KV of each prompt lies under its key, version `version`. Reply: Ack."""

    version: int
    rows: list[int]
    attempts: list[int]
    kv_keys: list[str]
    kv_bytes: list[int]


class CompleteRollout(Message):
    """Finished samples, payload packed under `pack_key`, slot i of the pack is rows[i]. Reply: Committed."""

    table: TableName
    rows: list[int]
    attempts: list[int]
    pack_key: str
    pack_bytes: int
    first_versions: list[int]
    """Version of each sample's oldest token."""
    last_versions: list[int]
    prompt_lengths: list[int]
    response_lengths: list[int]
    finish_reasons: list[str]
    """`eos` or `length`, from the engine."""
    kv_hits: int = 0
    kv_misses: int = 0
    first_token_at: float | None = None


class Committed(Message):
    """Row by row: False where the lease had expired or the attempt was old (the payload is then dropped)."""

    accepted: list[bool]


class TakeReward(Message):
    """Reply: RewardWork."""

    max_rows: int
    wait_s: float = 5.0


class RewardWork(Message):
    kind: WorkKind
    """WAIT, DECODE (= score these rows) or STOP."""
    table: TableName = TableName.REWARD
    rows: list[int] = Field(default_factory=list)
    attempts: list[int] = Field(default_factory=list)
    pack_keys: list[str] = Field(default_factory=list)
    slots: list[int] = Field(default_factory=list)
    prompts: list[str] = Field(default_factory=list)
    answers: list[str] = Field(default_factory=list)
    fields: list[dict[str, Any]] = Field(default_factory=list)
    lease_s: float = 60.0


class CompleteReward(Message):
    """Rewards of rows, with the response text where it is to be logged. Reply: Committed."""

    rows: list[int]
    attempts: list[int]
    rewards: list[float]
    exact: list[bool]
    responses: list[str]
    timed_out: int = 0


class TakeTrain(Message):
    """A trainer rank asks for its share of the next step's batch. Reply: TrainWork, the same step for all ranks."""

    step: int
    """Steps done so far on this rank."""
    wait_s: float = 5.0


class TrainCommand(StrEnum):
    WAIT = "wait"
    TRAIN = "train"
    PUBLISH = "publish"  # publish the current weights as `version` (start, or after a resume)
    CHECKPOINT = "checkpoint"
    STOP = "stop"


class TrainWork(Message):
    """TRAIN: this rank's samples, ordered by (prompt, sample), whole groups, equal counts of groups a minibatch.

    All ranks get the same commands in the same order.
    """

    command: TrainCommand
    step: int = 0
    """TRAIN: number of this step, 1 for the first. CHECKPOINT: steps done, the `<n>` of `step-<n>`."""
    version: int = 0
    """TRAIN: version to publish after the step. PUBLISH: version to publish now."""
    rows: list[int] = Field(default_factory=list)
    pack_keys: list[str] = Field(default_factory=list)
    slots: list[int] = Field(default_factory=list)
    prompt_ids: list[int] = Field(default_factory=list)
    sample_indices: list[int] = Field(default_factory=list)
    rewards: list[float] = Field(default_factory=list)
    first_versions: list[int] = Field(default_factory=list)
    group_rewards: list[list[float]] = Field(default_factory=list)
    """Rewards of the sample's whole group, for each sample's row (same list object repeated on the wire once a
    prompt: indexed by `groups`)."""
    groups: list[int] = Field(default_factory=list)
    """Index into group_rewards of each row."""
    minibatch: list[int] = Field(default_factory=list)
    """Minibatch number of each row."""
    checkpoint_after: bool = False
    """TRAIN: write a checkpoint once the step is published; CHECKPOINT: write it now."""
    coordinator_state: dict[str, Any] = Field(default_factory=dict)
    """The coordinator's part of that checkpoint, written by rank 0."""
    unfinished: bool = False
    """STOP: the job's goal is not reached. The rank exits with code 75, so that exit code 0 proves success."""


class StepDone(Message):
    """One rank finished `step`. Metrics count from rank 0 (already reduced over ranks). Reply: Ack.

    Metrics are named as in Report: loss, grad_norm, clip_fraction, kl, importance_ratio_mean, and logprob_gap (mean
    absolute difference over the step's samples of lag 0; absent when there are none). Others go to metrics.jsonl.
    """

    step: int
    version: int
    metrics: dict[str, float] = Field(default_factory=dict)
    expert_counts: list[list[int]] = Field(default_factory=list)
    """Tokens a MoE layer and expert, summed over ranks and minibatches, the last token of a sequence excluded."""


class Published(Message):
    """One rank's slices of `version` are in the store. Reply: Ack."""

    version: int
    rank: int
    bytes: int
    seconds: float


class CheckpointDone(Message):
    """Rank 0: the checkpoint of `step` is complete and visible. Reply: Ack."""

    step: int
    seconds: float


class Pulled(Message):
    """One rollout group holds `version`, proven by checksums. Reply: Ack."""

    version: int
    bytes: int
    seconds: float


Heartbeat.model_rebuild()

REQUESTS: dict[str, type[Message]] = {
    m.__name__: m
    for m in (
        Register, Heartbeat, Goodbye, TakeRollout, CompletePrefill, CompleteRollout, TakeReward,
        CompleteReward, TakeTrain, StepDone, Published, CheckpointDone, Pulled,
    )
}  # fmt: skip
"""Requests a coordinator accepts, by the frame's type."""
