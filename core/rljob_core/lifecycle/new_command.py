"""What a new `rljob run` makes of the state an earlier one left. No process of that one lives any more."""

from __future__ import annotations

from rljob_core.api.status import Phase, Reason, Restarts, RLJobStatus
from rljob_core.lifecycle.failure import restart
from rljob_core.lifecycle.model import Memory
from rljob_core.lifecycle.remember import recover


def take_over(memory: Memory) -> Memory:
    """An unfinished run goes on: a new attempt at once, uncounted; nothing changes where nothing had begun.

    A drain that was asked for is over, and so are delays that were meant for the old processes.
    """
    if not memory.gang and memory.start_time is None:
        return memory
    return _next_attempt(memory)


def try_again(memory: Memory, status: RLJobStatus, now: float) -> tuple[Memory, RLJobStatus]:
    """A Failed run goes on from its last checkpoint: restarts so far stay known, but `lifecycle.backoffLimit` and
    `lifecycle.activeDeadlineSeconds` begin anew. Names and policy versions go on counting.

    The memory is to be saved first: cut off in between, the run is still Failed, and this can be done once more.
    """
    assert status.phase is Phase.FAILED, "Succeeded is final, and an unfinished run is taken over"
    memory = _next_attempt(recover(memory, status))
    memory = memory.model_copy(
        update={
            "ending": None,
            "completion_time": None,
            "first_cause": None,
            "counted_restarts": 0,
            "uncounted_restarts": memory.uncounted_restarts + memory.counted_restarts,
            "deadline_from": now,
        }
    )
    restarts = Restarts(counted=memory.counted_restarts, uncounted=memory.uncounted_restarts)
    fresh = {
        "phase": Phase.PENDING,
        "reason": str(Reason.ACCEPTED),
        "message": "",
        "attempt": memory.attempt,
        "restarts": restarts,
        "first_cause": None,
        "completion_time": None,
    }
    return memory, status.model_copy(update=fresh)


def _next_attempt(memory: Memory) -> Memory:
    return restart(memory, 0.0).model_copy(
        update={
            "uncounted_restarts": memory.uncounted_restarts + 1,
            "tries": 0,
            "replace_not_before": 0.0,
            "create_trouble": None,
            "drain_since": None,
        }
    )
