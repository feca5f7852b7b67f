"""Directive: what the operator wants of a job's coordinator (PUT, idempotent, revision-numbered)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from rljob_core.api.base import Document
from rljob_core.errors import ProtocolVersionError

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 0


class Action(StrEnum):
    RUN = "Run"
    DRAIN = "Drain"


class StageName(StrEnum):
    """Phases of an RL step, as scheduled, timed and reported."""

    SYNC = "sync"
    PREFILL = "prefill"
    DECODE = "decode"
    REWARD = "reward"
    REFERENCE = "reference"
    TRAIN = "train"
    PUBLISH = "publish"
    EVALUATE = "evaluate"
    CHECKPOINT = "checkpoint"
    IDLE = "idle"


class StaleSyncLimits(Document):
    """Limits in force now; never above the spec's."""

    max_version_lag: int
    ready_share: float = 1.0
    max_groups_in_flight: int = 0
    """0: what the lag bound admits."""


class Versioned(Document):
    """Root of both documents: an unknown major is refused, keys of an unknown minor are ignored."""

    model_config = Document.model_config | {"extra": "ignore"}
    protocol_major: int = PROTOCOL_MAJOR
    protocol_minor: int = PROTOCOL_MINOR

    @classmethod
    def check_version(cls, body: dict[str, Any]) -> None:
        """Raise ProtocolVersionError unless the body's major is ours."""
        major = body.get("protocolMajor")
        if major != PROTOCOL_MAJOR:
            raise ProtocolVersionError(
                f"{cls.__name__}: protocolMajor {major!r} is not supported; this side speaks {PROTOCOL_MAJOR}"
            )


class Directive(Versioned):
    """Run or drain, and how old samples may be. Schedule, ready share, groups in flight, expert map and lending are
    there for what is not built yet: no coordinator reads them."""

    revision: int
    """Grows with every change; the coordinator ignores older ones."""
    action: Action = Action.RUN
    drain_deadline_seconds: float = 60.0
    """Drain: checkpoint and exit within this."""
    schedule: list[StageName] = Field(
        default_factory=lambda: [
            StageName.SYNC,
            StageName.PREFILL,
            StageName.DECODE,
            StageName.REWARD,
            StageName.TRAIN,
            StageName.PUBLISH,
        ]
    )
    """Order of the phases of a step."""
    stale_sync: StaleSyncLimits
    expert_map_version: int = 0
    """0: contiguous map."""
    lend_trainer_devices: bool = False
