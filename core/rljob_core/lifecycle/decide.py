"""decide(): everything the operator does to a job, from what it sees and remembers. Pure; the same twice is once.

Each policy is a file beside this one. Order: remember, endings (goal before failures), reactions to losses and
refusals, then what follows from memory: directive, create, delete, status, events.
"""

from __future__ import annotations

from rljob_core.api.spec import RLJob
from rljob_core.api.status import Reason
from rljob_core.lifecycle import causes, creation, deadline, invalid, startup
from rljob_core.lifecycle.completion import FINISH_GRACE_S, completed, finishing
from rljob_core.lifecycle.creation import to_create, troubled
from rljob_core.lifecycle.deletion import to_delete
from rljob_core.lifecycle.directive import DRAIN_DEADLINE_S, directed
from rljob_core.lifecycle.drain import MARGIN_S
from rljob_core.lifecycle.events import events
from rljob_core.lifecycle.failure import react
from rljob_core.lifecycle.model import Ending, Memory, Observed, Plan
from rljob_core.lifecycle.remember import recover, remember
from rljob_core.lifecycle.status import PROGRESS_EVERY_S, next_status
from rljob_core.lifecycle.view import Loss, View, look
from rljob_core.names import Role


def decide(job: RLJob, observed: Observed, memory: Memory, now: float) -> Plan:
    """What to do now. now: unix seconds."""
    given, memory = memory, recover(memory, observed.status)
    view = look(job, observed, memory, now)
    if memory.ending is None:
        memory = _live(job, observed, view, remember(observed, view, memory, now), now)
        view = look(job, observed, memory, now)
    status, memory = next_status(job, observed, view, memory, now)
    create = () if memory.ending or observed.drain_requested else to_create(view, memory, now)
    return Plan(
        create=create,
        delete=to_delete(observed, view, memory, now),
        directive=memory.last_directive if memory.ending is None and view.live(Role.COORDINATOR) else None,
        status=status,
        events=events(observed.status, status),
        memory=given if observed.status.phase.terminal else memory,
        requeue_after=_requeue(job, observed, view, memory, now),
    )


def _live(job: RLJob, observed: Observed, view: View, memory: Memory, now: float) -> Memory:
    """Memory of a job that had not ended before this pass."""
    ending = (
        completed(job, view, memory, now)
        or invalid.invalid(observed, view, memory)
        or deadline.overdue(job, observed, memory, now)
    )
    if ending is not None:
        return _end(_blame(view, memory, ending, now), ending, now)
    if not observed.drain_requested and not finishing(memory):
        memory = react(job, view, memory, now)
        if memory.ending is not None:
            return _end(memory, memory.ending, now)
    memory = troubled(observed, look(job, observed, memory, now), memory, now)
    return directed(job, observed, memory)


def _end(memory: Memory, ending: Ending, now: float) -> Memory:
    return memory.model_copy(update={"ending": ending, "completion_time": now, "create_trouble": None})


def _blame(view: View, memory: Memory, ending: Ending, now: float) -> Memory:
    """The pod that found the input wrong is the first cause."""
    if ending.reason is not Reason.INVALID_INPUT:
        return memory
    guilty = invalid.invalid_input_pod(view)
    if guilty is None:
        return memory.model_copy(update={"first_cause": causes.told(memory.final_report, now) or memory.first_cause})
    workload = next(w for w in view.wanted if w.name == guilty.name)
    loss = Loss(workload=workload, pod=guilty, disrupted=False)
    return memory.model_copy(update={"first_cause": causes.cause(loss, now)})


def _requeue(job: RLJob, observed: Observed, view: View, memory: Memory, now: float) -> float | None:
    """Seconds until something may change by time alone."""
    if memory.ending is not None:
        return FINISH_GRACE_S if any(pod.live for pod in observed.workloads) else None
    waits = [creation.not_before(memory) - now, memory.replace_not_before - now]
    if memory.done_since is not None:
        waits.append(memory.done_since + FINISH_GRACE_S - now)
    if memory.drain_since is not None:
        waits.append(memory.drain_since + DRAIN_DEADLINE_S + MARGIN_S - now)
    left = deadline.seconds_left(job, observed, memory, now)
    if left is not None:
        waits.append(left)
    for workload in view.wanted:
        pod = view.current.get(workload.name)
        left = startup.seconds_left(job, workload, pod, observed.report, now) if pod else None
        waits += [] if left is None else [left]
    waits.append(memory.progress_at + PROGRESS_EVERY_S - now)
    return min((wait for wait in waits if wait > 0), default=None)
