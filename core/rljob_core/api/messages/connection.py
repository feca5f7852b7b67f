"""A worker's connection: who it is, that it lives, how it ends."""

from __future__ import annotations

from pydantic import Field

from rljob_core.api.messages.base import Message


class Register(Message):
    """First message of a connection. Reply: Registered."""

    protocol_major: int = 1
    role: str
    pod: str
    pod_uid: str
    rank: int
    """Global rank of this process: pod index x devicesPerPod + local rank."""
    group: int = 0
    """Rollout group."""
    resumed_step: int = -1
    """Trainer: step of the checkpoint it restored; -1 for none."""


class Registered(Message):
    worker_id: int
    heartbeat_s: float = 3.0
    """A worker whose last three heartbeats are missing is lost, and its leases return."""
    instance: str = ""
    """Incarnation of the coordinator: a link that meets another one ends."""


class Span(Message):
    """One finished stage of a process, for timeline and phase_seconds."""

    stage: str
    start: float
    end: float
    step: int = -1


class Heartbeat(Message):
    """The worker lives. spans: stages finished since the last one, unix seconds."""

    spans: list[Span] = Field(default_factory=list)


class Ack(Message):
    ok: bool = True


class Goodbye(Message):
    """A worker that ends on purpose; error says why when it is a failure."""

    error: str = ""
    invalid_input: bool = False
