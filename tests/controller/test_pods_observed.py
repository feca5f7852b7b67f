"""Pod status as an ObservedWorkload, on recorded shapes."""

from __future__ import annotations

from typing import Any

import pytest

from rljob_core.lifecycle.model import ObservedWorkload, WorkloadPhase
from rljob_core.names import Role, labels
from rljob_operator.pods.observed import observe_pod

READY = [{"type": "Ready", "status": "True"}]


def observe(status: dict[str, Any], **metadata: Any) -> ObservedWorkload:
    meta = {"name": "rl-0-trainer-1", "uid": "u", "labels": labels("rl-0", "j", Role.TRAINER, 1, 2)} | metadata
    found = observe_pod({"metadata": meta, "spec": {"nodeName": "n1"}, "status": status})
    assert found is not None
    return found


def ended(code: int, reason: str = "Error", message: str = "", **status: Any) -> dict[str, Any]:
    state = {"exitCode": code, "reason": reason, "message": message, "finishedAt": "2026-01-02T03:04:05Z"}
    phase = "Succeeded" if code == 0 else "Failed"
    return {"phase": phase, "containerStatuses": [{"name": "worker", "state": {"terminated": state}}]} | status


def test_identity_comes_from_labels_b8() -> None:
    found = observe({"phase": "Pending"})
    assert (found.role, found.index, found.attempt, found.node) == (Role.TRAINER, 1, 2, "n1")
    assert observe_pod({"metadata": {"name": "rl-trainer-0", "uid": "u", "labels": {}}}) is None


def test_ready_means_running_and_ready() -> None:
    assert observe({"phase": "Running", "conditions": READY}).ready
    assert not observe({"phase": "Running"}).ready
    assert not observe(ended(0, conditions=READY)).ready


@pytest.mark.parametrize(
    ("status", "phase", "code", "reason", "disrupted"),
    [
        (ended(0, "Completed"), WorkloadPhase.SUCCEEDED, 0, "Completed", False),
        (ended(137, "OOMKilled"), WorkloadPhase.FAILED, 137, "OOMKilled", False),
        (ended(64), WorkloadPhase.FAILED, 64, "Error", False),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, WorkloadPhase.FAILED, None, "Evicted", True),
        ({"phase": "Failed", "reason": "NodeShutdown"}, WorkloadPhase.FAILED, None, "NodeShutdown", True),
        ({"phase": "Unknown"}, WorkloadPhase.RUNNING, None, "", False),
    ],
)
def test_endings_b26_b27(
    status: dict[str, Any], phase: WorkloadPhase, code: int | None, reason: str, disrupted: bool
) -> None:
    found = observe(status)
    assert (found.phase, found.exit_code, found.reason, found.disrupted) == (phase, code, reason, disrupted)


def test_disruption_beats_the_exit_code_b25() -> None:
    target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempted"}
    found = observe(ended(143, conditions=[target]))
    assert found.disrupted
    assert found.exit_code == 143
    assert (found.reason, found.message) == ("PreemptionByScheduler", "preempted")


def test_a_sidecar_that_never_exits_does_not_hold_the_job_b19() -> None:
    status = ended(0) | {"phase": "Running"}
    status["containerStatuses"].append({"name": "proxy", "state": {"running": {}}})
    assert observe(status).phase is WorkloadPhase.SUCCEEDED


def test_last_words() -> None:
    text = '{"invalidInput": true, "rank": 3, "exitCode": 64, "message": "data.jsonl line 7: not JSON"}'
    found = observe(ended(64, message=text))
    assert found.last_words is not None
    assert (found.last_words.rank, found.last_words.invalid_input) == (3, True)
    assert found.message == "data.jsonl line 7: not JSON"
    assert found.finished_at == 1767323045.0


@pytest.mark.parametrize("text", ["Traceback: boom", "{cut off", '{"rank": "x"}'])
def test_other_last_words_are_a_plain_message(text: str) -> None:
    found = observe(ended(1, message=text))
    assert (found.last_words, found.message) == (None, text)


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector",
                    }
                ],
            },
            "Unschedulable",
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"name": "worker", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                ],
            },
            "ImagePullBackOff",
            "no such image",
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}}
                ],
                "containerStatuses": [{"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            "ErrImagePull",
            "m",
        ),
        ({"phase": "Pending"}, "", ""),
    ],
)
def test_why_a_pod_is_pending_a1(status: dict[str, Any], reason: str, message: str) -> None:
    found = observe(status)
    assert (found.phase, found.reason, found.message) == (WorkloadPhase.PENDING, reason, message)


def test_when_the_worker_began_to_run() -> None:
    running = {"name": "worker", "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}
    assert observe({"phase": "Running", "containerStatuses": [running]}).started_at == 1767323045.0
    assert observe({"phase": "Pending"}).started_at is None


def test_deleting() -> None:
    assert observe({"phase": "Running"}, deletionTimestamp="2026-01-02T03:04:05Z").deleting
