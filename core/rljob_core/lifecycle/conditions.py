"""metav1 conditions: computed whole from the phase, so that they never contradict each other (B33)."""

from __future__ import annotations

from rljob_core.api.status import Condition, ConditionStatus, ConditionType, Phase, Reason
from rljob_core.lifecycle.model import Memory, Observed
from rljob_core.lifecycle.text import rfc3339
from rljob_core.lifecycle.view import View

Claim = tuple[ConditionType, bool, Reason, str]


def conditions(
    phase: Phase,
    reason: Reason,
    message: str,
    generation: int,
    observed: Observed,
    view: View,
    memory: Memory,
    now: float,
) -> list[Condition]:
    """All conditions; a transition time changes only where the condition's status does."""
    before = {c.type: c for c in observed.status.conditions}
    drained = reason is Reason.DRAINED
    claims: list[Claim] = [
        (ConditionType.READY, phase in (Phase.RUNNING, Phase.SUCCEEDED), reason, message),
        (ConditionType.RECONCILING, not phase.terminal and phase is not Phase.RUNNING and not drained, reason, message),
        (ConditionType.STALLED, phase is Phase.FAILED, reason, message),
        (ConditionType.COMPLETE, phase is Phase.SUCCEEDED, reason, message),
        (ConditionType.FAILED, phase is Phase.FAILED, reason, message),
        _pods_created(phase, observed, view, memory),
        _resumable(observed, memory),
    ]
    return [_condition(claim, generation, before, now) for claim in claims]


def _pods_created(phase: Phase, observed: Observed, view: View, memory: Memory) -> Claim:
    kind, units = ConditionType.PODS_CREATED, observed.units
    wanted = len(view.wanted)
    created = sum(w.name in view.current for w in view.wanted)
    trouble = memory.create_trouble
    if trouble is not None:
        return (kind, False, trouble.reason, f"{trouble.name}: {trouble.message} ({created} of {wanted} {units} exist)")
    if memory.ending is not None and memory.ending.reason is Reason.INVALID_TEMPLATE:
        return (kind, False, Reason.INVALID_TEMPLATE, memory.ending.message)
    if phase.terminal or created == wanted:
        return (kind, True, Reason.PODS_CREATED, f"{wanted} {units}")
    return (kind, False, Reason.CREATING_PODS, f"{created} of {wanted} {units} exist")


def _resumable(observed: Observed, memory: Memory) -> Claim:
    if observed.durable_checkpoints:
        resumed = "" if memory.resumed_step is None else f"; resumed from step {memory.resumed_step}"
        return (
            ConditionType.RESUMABLE,
            True,
            Reason.DURABLE_VOLUME,
            f"checkpoints outlive the {observed.units}{resumed}",
        )
    message = (
        "checkpoints are in an emptyDir and go with the pods; set spec.checkpoint.volume to make the job resumable"
    )
    return (ConditionType.RESUMABLE, False, Reason.EMPTY_DIR, message)


def _condition(claim: Claim, generation: int, before: dict[ConditionType, Condition], now: float) -> Condition:
    kind, holds, reason, message = claim
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    old = before.get(kind)
    unchanged = old is not None and old.status is status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=old.last_transition_time if old and unchanged else rfc3339(now),
        observed_generation=generation,
    )
