"""Events: what changed between the last status written and the next, so that none is lost or repeated."""

from __future__ import annotations

from rljob_core.api.status import Condition, ConditionStatus, ConditionType, Phase, Reason, RLJobStatus
from rljob_core.lifecycle import causes
from rljob_core.lifecycle.model import Event

NORMAL, WARNING = "Normal", "Warning"


def events(before: RLJobStatus, after: RLJobStatus) -> tuple[Event, ...]:
    """One for a loss, one for a checkpoint gone on from, one for refused creation, one for each phase entered."""
    out = []
    if after.restarts != before.restarts and after.first_cause is not None:
        used = f"restarts: {after.restarts.counted} counted, {after.restarts.uncounted} not"
        out.append(Event(type=WARNING, reason="Restarting", message=f"{causes.sentence(after.first_cause)}; {used}"))
    if after.resumed_step is not None and after.resumed_step != before.resumed_step:
        message = f"resumed from the checkpoint of step {after.resumed_step}"
        out.append(Event(type=NORMAL, reason="Resumed", message=message))
    refused = _refused(after)
    if refused is not None and refused != _refused(before):
        out.append(Event(type=WARNING, reason=refused[0], message=refused[1]))
    if after.phase is not before.phase or not before.conditions or _drain_changed(before, after):
        kind = WARNING if after.phase is Phase.FAILED else NORMAL
        reason = str(after.phase) if after.phase is Phase.RUNNING else after.reason
        draining = after.reason in (Reason.DRAINING, Reason.DRAINED)
        state = after.reason if draining else after.phase
        out.append(Event(type=kind, reason=reason, message=f"{state}: {after.message}"))
    return tuple(out)


def _refused(status: RLJobStatus) -> tuple[str, str] | None:
    """Reason and message of a creation the API refused."""
    created = _find(status, ConditionType.PODS_CREATED)
    if created is None or created.status is ConditionStatus.TRUE or created.reason is Reason.CREATING_PODS:
        return None
    return (str(created.reason), created.message)


def _drain_changed(before: RLJobStatus, after: RLJobStatus) -> bool:
    return (before.reason == Reason.DRAINED) != (after.reason == Reason.DRAINED)


def _find(status: RLJobStatus, kind: ConditionType) -> Condition | None:
    return next((c for c in status.conditions if c.type is kind), None)
