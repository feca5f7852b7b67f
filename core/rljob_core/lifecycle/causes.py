"""First cause: which of several failures broke the job, and what is kept of it (B30)."""

from __future__ import annotations

from collections.abc import Sequence

from rljob_core.api.report import Report
from rljob_core.api.status import FirstCause, Reason
from rljob_core.errors import EXIT_INVALID_INPUT
from rljob_core.lifecycle.model import ObservedWorkload
from rljob_core.lifecycle.text import rfc3339, shorten
from rljob_core.lifecycle.view import Loss

MESSAGE_LIMIT = 1024


def first(losses: Sequence[Loss]) -> Loss:
    """The failure that came first. Disruptions and drains follow real failures; then the earliest end; then the order
    of the gang."""
    return min(losses, key=lambda loss: (loss.disrupted, _finished(loss.pod)))


def cause(loss: Loss, now: float) -> FirstCause:
    """What status keeps of a loss."""
    pod = loss.pod
    common = {"pod": loss.workload.name, "role": str(loss.workload.role)}
    if pod is None:
        return FirstCause(**common, reason="Deleted", message="the pod vanished", time=rfc3339(now))
    words = pod.last_words
    return FirstCause(
        **common,
        node=pod.node,
        rank=words.rank if words else -1,
        exit_code=pod.exit_code or 0,
        reason=pod.reason or ("Deleted" if pod.deleting else "Error"),
        message=shorten((words.message if words else "") or pod.message, MESSAGE_LIMIT),
        time=rfc3339(pod.finished_at if pod.finished_at is not None else now),
    )


def told(report: Report | None, now: float) -> FirstCause | None:
    """The worker that the coordinator says found the input wrong, before any pod has ended."""
    if report is None or report.cause is None:
        return None
    found = report.cause
    return FirstCause(
        pod=found.pod,
        role=found.role,
        rank=found.rank,
        exit_code=EXIT_INVALID_INPUT,
        reason=str(Reason.INVALID_INPUT),
        message=shorten(found.message, MESSAGE_LIMIT),
        time=rfc3339(now),
    )


def sentence(found: FirstCause) -> str:
    """`trainer demo-trainer-0 (rank 3) failed with exit code 137 (OOMKilled): …`.

    One line: of a log's end only the last, where an error says what it is; first_cause keeps the rest.
    """
    said = found.message.strip().splitlines()
    rank = f" (rank {found.rank})" if found.rank >= 0 else ""
    how = (
        f"failed with exit code {found.exit_code} ({found.reason})" if found.exit_code else f"was lost ({found.reason})"
    )
    return f"{found.role} {found.pod}{rank} {how}" + (f": {said[-1]}" if said else "")


def _finished(pod: ObservedWorkload | None) -> float:
    return pod.finished_at if pod is not None and pod.finished_at is not None else float("inf")
