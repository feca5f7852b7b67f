"""Messages between workers and the coordinator: one WebSocket each, msgpack frames, columnar and batched.

A frame is a map {"id": n, "type": name, "body": {...}} from the worker and {"id": n, "body"| "error": ...} back;
several requests may be open at once. Row ids, prompt ids and versions are ints; lists of a message that belong
together have equal length. Times are seconds.
"""

from rljob_core.api.messages.base import Message
from rljob_core.api.messages.connection import Ack, Goodbye, Heartbeat, Register, Registered, Span
from rljob_core.api.messages.sampling import (
    Committed,
    CompletePrefill,
    CompleteReward,
    CompleteRollout,
    Pulled,
    RewardWork,
    RolloutWork,
    TableName,
    TakeReward,
    TakeRollout,
    WorkKind,
)
from rljob_core.api.messages.training import CheckpointDone, Published, StepDone, TakeTrain, TrainCommand, TrainWork

REQUESTS: dict[str, type[Message]] = {
    m.__name__: m
    for m in (
        Register, Heartbeat, Goodbye, TakeRollout, CompletePrefill, CompleteRollout, TakeReward,
        CompleteReward, TakeTrain, StepDone, Published, CheckpointDone, Pulled,
    )
}  # fmt: skip
"""Requests a coordinator accepts, by the frame's type."""

__all__ = [
    "REQUESTS",
    "Ack",
    "CheckpointDone",
    "Committed",
    "CompletePrefill",
    "CompleteReward",
    "CompleteRollout",
    "Goodbye",
    "Heartbeat",
    "Message",
    "Published",
    "Pulled",
    "Register",
    "Registered",
    "RewardWork",
    "RolloutWork",
    "Span",
    "StepDone",
    "TableName",
    "TakeReward",
    "TakeRollout",
    "TakeTrain",
    "TrainCommand",
    "TrainWork",
    "WorkKind",
]
