"""The state machine of a job, and the records it exchanges with its shell. Pure."""

from rljob_core.session.records import (
    Discarded,
    Effect,
    EvaluationLogged,
    Journalled,
    Noticed,
    Prompt,
    PromptSource,
    StepLogged,
)
from rljob_core.session.session import Session
from rljob_core.session.settings import Settings
from rljob_core.session.workers import HEARTBEAT_S, Worker

__all__ = [
    "HEARTBEAT_S",
    "Discarded",
    "Effect",
    "EvaluationLogged",
    "Journalled",
    "Noticed",
    "Prompt",
    "PromptSource",
    "Session",
    "Settings",
    "StepLogged",
    "Worker",
]
