"""What the session keeps of prompts and samples, and what it asks its shell to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

EVALUATION_BASE = 1 << 48
"""Prompt and row ids from here on belong to evaluations; below, to training."""


@dataclass(slots=True, kw_only=True)
class Prompt:
    """One prompt in work.

    prompt_id: position in the data order, or EVALUATION_BASE + n. kv_key: its prefill KV under the serving version,
    empty while there is none. kv_keys: everything written for it so far. open_rows: samples not finished yet.
    """

    prompt_id: int
    text: str
    answer: str
    token_ids: list[int]
    fields: Mapping[str, Any] = field(default_factory=dict)
    kv_key: str = ""
    kv_keys: list[str] = field(default_factory=list)
    open_rows: int = 0


class PromptSource(Protocol):
    """Prompts by position; pure, so that a resume needs a number and no state."""

    def training(self, prompt_id: int) -> Prompt: ...

    @property
    def held_out(self) -> int | None:
        """Evaluation prompts there are; None without a bound."""
        ...

    def evaluation(self, index: int) -> Prompt: ...


@dataclass(slots=True, kw_only=True)
class Sample:
    """One finished sample; reward is None until scored."""

    row: int
    prompt_id: int
    index: int
    first_version: int
    last_version: int
    prompt_tokens: int
    response_tokens: int
    finish_reason: str
    pack_key: str
    slot: int
    reward: float | None = None
    exact: bool = False
    response: str = ""


@dataclass(slots=True, kw_only=True)
class Batch:
    """The samples of one step, or of one evaluation."""

    index: int
    prompts: list[Prompt]
    unscored: int
    samples: dict[int, Sample] = field(default_factory=dict)

    @property
    def scored(self) -> bool:
        return self.unscored == 0

    def ordered(self) -> list[Sample]:
        """By (prompt, sample)."""
        return [self.samples[row] for row in sorted(self.samples)]


@dataclass(frozen=True, kw_only=True)
class Journalled:
    """Append to the journal and fsync before any answer leaves."""

    record: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Discarded:
    """Remove these keys from the store."""

    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StepLogged:
    """One training step is done: one line of metrics.jsonl; samples for samples.jsonl where due."""

    metrics: dict[str, float]
    samples: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class EvaluationLogged:
    """One evaluation is done."""

    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Noticed:
    """Something for the log."""

    message: str


Effect = Journalled | Discarded | StepLogged | EvaluationLogged | Noticed
