"""Creation policy: what is missing is created, once what it takes the place of is gone; refusals back off (B3, B6)."""

from __future__ import annotations

from rljob_core.api.status import Reason
from rljob_core.lifecycle import backoff
from rljob_core.lifecycle.model import ApplyError, CreateTrouble, Memory, Observed, Workload
from rljob_core.lifecycle.view import View

REFUSALS = (Reason.QUOTA_EXCEEDED, Reason.CREATE_FAILED, Reason.NAME_TAKEN)


def troubled(observed: Observed, view: View, memory: Memory, now: float) -> Memory:
    """Remember a refusal and when to try again; forget it once nothing is refused and every wanted
    workload exists."""
    refused = [error for error in observed.errors if error.reason in REFUSALS]
    trouble = memory.create_trouble
    if refused and (trouble is None or now >= trouble.not_before):
        return memory.model_copy(update={"create_trouble": _next(refused[0], trouble, now)})
    if trouble is not None and not refused and all(w.name in view.current for w in view.wanted):
        return memory.model_copy(update={"create_trouble": None})
    return memory


def to_create(view: View, memory: Memory, now: float) -> tuple[Workload, ...]:
    """Workloads that never existed and whose turn it is. A new gang waits until the old one is gone, a replacement
    until its predecessor has ended: never two live workloads of one role and index."""
    if now < not_before(memory) or any(pod.attempt < memory.attempt for pod in view.stale):
        return ()
    existed = {member.name for member in memory.gang}
    occupied = {(pod.role, pod.index) for pod in view.stale if pod.live}
    return tuple(
        w
        for w in view.wanted
        if w.name not in view.current
        and w.name not in existed
        and (w.role, w.index) not in occupied
        and not (w.replacement and now < memory.replace_not_before)
    )


def not_before(memory: Memory) -> float:
    """Unix seconds before which nothing at all is created."""
    return max(memory.restart_not_before, memory.create_trouble.not_before if memory.create_trouble else 0.0)


def _next(error: ApplyError, before: CreateTrouble | None, now: float) -> CreateTrouble:
    tries = before.tries + 1 if before else 1
    message = error.message if not error.field else f"{error.field}: {error.message}"
    return CreateTrouble(
        name=error.name,
        reason=Reason(error.reason),
        message=message,
        tries=tries,
        not_before=now + backoff.delay(tries),
    )
