"""Trainer ranks: one script of commands, and what they report of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from rljob_core.api.messages.base import Message


class TakeTrain(Message):
    """A trainer rank asks for its share of the next step's batch. Reply: TrainWork, the same step for all ranks."""

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

    Metrics are named as in Report: loss, grad_norm, clip_fraction, kl, importance_ratio_mean, and logprob_gap
    (largest absolute difference of a token; absent when no row's weights were at hand). Others go to metrics.jsonl.
    """

    step: int
    metrics: dict[str, float] = Field(default_factory=dict)
    expert_counts: list[list[int]] = Field(default_factory=list)
    """Tokens a MoE layer and expert, summed over ranks and minibatches, the last token of a sequence excluded."""


class Published(Message):
    """One rank's slices of `version` are in the store. Reply: Ack."""

    version: int
    bytes: int
    seconds: float


class CheckpointDone(Message):
    """Rank 0: the checkpoint of `step` is complete and visible. Reply: Ack."""

    step: int
