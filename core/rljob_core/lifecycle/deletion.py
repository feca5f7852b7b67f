"""Deletion policy: what nobody wants goes; what ended for good is kept for its logs.

After wrong input a living coordinator has told everybody to stop: they end by themselves, so that their logs stay.
"""

from __future__ import annotations

from rljob_core.api.status import Phase, Reason
from rljob_core.lifecycle import completion, drain
from rljob_core.lifecycle.model import Memory, Observed, ObservedWorkload
from rljob_core.lifecycle.view import View
from rljob_core.names import Role

KEPT_ON_SUCCESS = (Role.COORDINATOR, Role.TRAINER)


def to_delete(observed: Observed, view: View, memory: Memory, now: float) -> tuple[str, ...]:
    """Names of workloads to delete, asked for again each pass until they are gone (B7)."""
    pods = [pod for pod in observed.workloads if not pod.deleting]
    return tuple(sorted(pod.name for pod in pods if _goes(pod, observed, view, memory, now)))


def _goes(pod: ObservedWorkload, observed: Observed, view: View, memory: Memory, now: float) -> bool:
    if memory.ending is None:
        unwanted = pod.name not in view.current
        return unwanted or (pod.live and drain.must_go(observed, view, memory, now))
    since = memory.completion_time if memory.completion_time is not None else now
    if memory.ending.phase is Phase.FAILED:
        leaving = memory.ending.reason is Reason.INVALID_INPUT and view.live(Role.COORDINATOR)
        return pod.live and not (leaving and now - since < completion.FINISH_GRACE_S)
    return pod.role not in KEPT_ON_SUCCESS or (pod.live and now - since >= completion.FINISH_GRACE_S)
