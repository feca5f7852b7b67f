"""A pod, as the API server shows it, as an ObservedWorkload. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from rljob_core.api.report import TerminationMessage
from rljob_core.lifecycle.model import ObservedWorkload, WorkloadPhase
from rljob_core.lifecycle.text import unix_seconds
from rljob_core.names import LABEL_ATTEMPT, LABEL_INDEX, LABEL_ROLE, WORKER_CONTAINER, Role

_DISRUPTIONS = frozenset({"Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"})
"""Pod reasons that are not the worker's fault (kubernetes.md B26, B27)."""


def observe_pod(pod: dict[str, Any]) -> ObservedWorkload | None:
    """None for a pod without our identity labels: identity is read from labels, never from names (B8)."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels = metadata.get("labels") or {}
    try:
        role = Role(labels[LABEL_ROLE])
        index, attempt = int(labels[LABEL_INDEX]), int(labels[LABEL_ATTEMPT])
    except (KeyError, ValueError):
        return None
    worker = _worker_status(status)
    ended = (worker.get("state") or {}).get("terminated")
    phase = _phase(status.get("phase", "Pending"), ended)
    reason, message = _why(status, worker, ended, phase)
    words = _last_words(ended)
    return ObservedWorkload(
        name=metadata["name"],
        role=role,
        index=index,
        attempt=attempt,
        uid=metadata["uid"],
        phase=phase,
        ready=phase is WorkloadPhase.RUNNING and _condition(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        node=(pod.get("spec") or {}).get("nodeName", ""),
        exit_code=ended["exitCode"] if ended else None,
        reason=reason,
        message=words.message if words else message,
        disrupted=_disrupted(status),
        last_words=words,
        started_at=unix_seconds(((worker.get("state") or {}).get("running") or {}).get("startedAt")),
        finished_at=unix_seconds((ended or {}).get("finishedAt")),
    )


def pod_ip(pod: dict[str, Any]) -> str:
    """The pod's address, empty while it has none."""
    return str((pod.get("status") or {}).get("podIP") or "")


def _worker_status(status: dict[str, Any]) -> dict[str, Any]:
    """Status of our container; sidecars do not hold the job (B19)."""
    every = status.get("containerStatuses") or []
    return next((entry for entry in every if entry.get("name") == WORKER_CONTAINER), {})


def _phase(pod_phase: str, ended: dict[str, Any] | None) -> WorkloadPhase:
    if ended:
        return WorkloadPhase.SUCCEEDED if ended["exitCode"] == 0 else WorkloadPhase.FAILED
    if pod_phase in list(WorkloadPhase):
        return WorkloadPhase(pod_phase)
    return WorkloadPhase.RUNNING  # `Unknown`: the node does not answer; nothing is known to have ended


def _why(
    status: dict[str, Any], worker: dict[str, Any], ended: dict[str, Any] | None, phase: WorkloadPhase
) -> tuple[str, str]:
    """Reason and message of what the pod is or waits for, in the cluster's own words."""
    disruption = _condition(status, "DisruptionTarget")
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message", ""))
    if disruption.get("status") == "True":
        return str(disruption.get("reason", "")), str(disruption.get("message", ""))
    if ended:
        return str(ended.get("reason", "")), str(ended.get("message", ""))
    if phase is not WorkloadPhase.PENDING:
        return "", ""
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason", "Unschedulable")), str(scheduled.get("message", ""))
    waiting = _waiting(status, worker)
    return str(waiting.get("reason", "")), str(waiting.get("message", ""))


def _waiting(status: dict[str, Any], worker: dict[str, Any]) -> dict[str, Any]:
    """What the pod waits for: an init container that is stuck comes before the worker."""
    for entry in [*(status.get("initContainerStatuses") or []), worker]:
        waiting: dict[str, Any] = (entry.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing"):
            return waiting
    return {}


def _disrupted(status: dict[str, Any]) -> bool:
    """DisruptionTarget beats the exit code (B25)."""
    return _condition(status, "DisruptionTarget").get("status") == "True" or status.get("reason") in _DISRUPTIONS


def _condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((entry for entry in status.get("conditions") or [] if entry.get("type") == kind), {})


def _last_words(ended: dict[str, Any] | None) -> TerminationMessage | None:
    """The worker's termination log, where it is ours (a killed worker leaves none, or log lines)."""
    text = (ended or {}).get("message") or ""
    if not text.startswith("{"):
        return None
    try:
        return TerminationMessage.model_validate_json(text)
    except ValidationError:
        return None
