"""From prompts to scored samples: rollout groups and reward workers take work and complete it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from rljob_core.api.messages.base import Message


class TableName(StrEnum):
    """Queue tables, in the order of a sample's life."""

    PROMPT = "prompt"  # rows: prompts to prefill
    ROLLOUT = "rollout"  # rows: samples to decode
    REWARD = "reward"  # rows: finished samples to score
    TRAIN = "train"  # rows: scored samples
    EVALUATION = "evaluation"  # rows: evaluation samples to decode


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
    first_step: int = 0
    """DECODE, for the timeline: the step that the first of these samples are for; of an evaluation, the next one."""


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
    rows: list[int] = Field(default_factory=list)
    attempts: list[int] = Field(default_factory=list)
    pack_keys: list[str] = Field(default_factory=list)
    slots: list[int] = Field(default_factory=list)
    prompts: list[str] = Field(default_factory=list)
    answers: list[str] = Field(default_factory=list)
    fields: list[dict[str, Any]] = Field(default_factory=list)


class CompleteReward(Message):
    """Rewards of rows, with the response text where it is to be logged. Reply: Committed."""

    rows: list[int]
    attempts: list[int]
    rewards: list[float]
    exact: list[bool]
    responses: list[str]
    timed_out: int = 0
    returned_rows: list[int] = Field(default_factory=list)
    """Not scored yet: whoever has room may take them."""
    returned_attempts: list[int] = Field(default_factory=list)
    lost_rows: list[int] = Field(default_factory=list)
    """Their pack is not in the store."""
    lost_attempts: list[int] = Field(default_factory=list)


class Pulled(Message):
    """One rollout group holds `version`, proven by checksums. Reply: Ack."""

    version: int
    bytes: int
    seconds: float
