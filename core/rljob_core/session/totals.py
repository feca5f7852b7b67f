"""Sums over the whole run, restarts included: part of every checkpoint."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rljob_core.api.directive import StageName
from rljob_core.api.report import KVCounters, QueueCounters, WeightCounters


class Totals(BaseModel):
    """Mutable on purpose: the session counts in it."""

    model_config = ConfigDict(extra="ignore")
    tokens_generated: int = 0
    first_token_at: float | None = None
    """Unix seconds, of the whole run: the journal keeps it."""
    reward_timeouts: int = 0
    max_version_lag_seen: int = 0
    logprob_gap: float | None = None
    """None until it was measured."""
    kv: KVCounters = KVCounters()
    queue: QueueCounters = QueueCounters()
    weights: WeightCounters = WeightCounters()
    stage_seconds: dict[str, dict[StageName, float]] = Field(default_factory=dict)
    """role -> stage -> seconds, summed over processes."""
