"""The loop that drives passes: coalescing, newest body, retries, a bound on concurrency, jobs that go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_core.api.spec import RLJob
from rljob_core.api.status import RLJobStatus
from rljob_core.lifecycle.model import Plan
from rljob_operator.cluster.api import ApiError, Object
from rljob_operator.cluster.controller import Jobs
from rljob_operator.cluster.store import MemoryUnreadableError, NameTakenError
from rljob_operator.reconcile import Circumstances
from rljob_operator.substrates.kubernetes import JobGoneError

pytestmark = pytest.mark.looptime


def body(uid: str = "u", version: int = 1, generation: int = 1, **spec: Any) -> Object:
    full = {
        "model": {"init": {"config": {"model_type": "qwen3_moe"}}, "tokenizer": {"characters": "0123456789="}},
        "data": {"generator": {"task": "reverse-digits"}},
        "reward": {"perPosition": {}},
        "algorithm": {},
    } | spec
    metadata = {
        "name": f"rl-{uid}",
        "namespace": "ns",
        "uid": uid,
        "resourceVersion": str(version),
        "generation": generation,
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    return {"metadata": metadata, "spec": full}


class Passes:
    """Stands in for the reconciler and everything else that keeps something per job."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.forgotten: list[str] = []
        self.generations: list[int] = []
        self.shown: list[RLJobStatus] = []
        self.running = self.most = 0
        self.takes_s = 0.0
        self.raises: list[Exception] = []
        self.refuses_status: list[Exception] = []
        self.requeue_after: float | None = None

    async def reconcile(self, job: RLJob, status: RLJobStatus, circumstances: Circumstances) -> Plan:
        self.started.append(job.metadata.uid)
        self.generations.append(job.metadata.generation)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.takes_s)
            if self.raises:
                raise self.raises.pop(0)
        finally:
            self.running -= 1
        return Plan(requeue_after=self.requeue_after)

    def forget(self, uid: str) -> None:
        self.forgotten.append(uid)

    async def write_to(self, namespace: str, name: str, uid: str, status: RLJobStatus) -> None:
        if self.refuses_status:
            raise self.refuses_status.pop(0)
        self.shown.append(status)


def make(passes: Passes, concurrency: int = 4) -> Jobs:
    jobs = Jobs(concurrency, lambda: 1000.0)
    keeper = SimpleNamespace(forget=lambda uid: None)
    jobs.parts = SimpleNamespace(  # type: ignore[assignment]
        reconciler=passes, substrate=keeper, memories=keeper, statuses=passes, links=keeper
    )
    return jobs


async def test_wake_ups_during_a_pass_become_one_more_pass() -> None:
    passes = Passes()
    passes.takes_s = 10.0
    jobs = make(passes)
    jobs.seen(body())
    await asyncio.sleep(1)
    for _ in range(5):
        jobs.wake("u")
    await asyncio.sleep(100)
    assert passes.started == ["u", "u"]
    await jobs.close()


async def test_the_newest_body_counts_and_an_old_one_wakes_nobody() -> None:
    passes = Passes()
    jobs = make(passes)
    jobs.seen(body(version=5, generation=2))
    await asyncio.sleep(1)
    jobs.seen(body(version=4, generation=1))
    await asyncio.sleep(1)
    assert passes.generations == [2]
    jobs.seen(body(version=6, generation=3))
    await asyncio.sleep(1)
    assert passes.generations == [2, 3]
    await jobs.close()


async def test_our_own_write_wakes_only_with_a_new_spec() -> None:
    passes = Passes()
    jobs = make(passes)
    jobs.seen(body(version=5))
    await asyncio.sleep(1)
    jobs.wrote(body(version=6) | {"status": {"step": 3}})
    await asyncio.sleep(1)
    assert passes.started == ["u"]
    assert jobs.status("u") == {"step": 3}
    jobs.wrote(body(version=8, generation=2))
    await asyncio.sleep(1)
    assert passes.generations == [1, 2]
    await jobs.close()


async def test_requeue_after() -> None:
    passes = Passes()
    passes.requeue_after = 10.0
    jobs = make(passes)
    jobs.seen(body())
    await asyncio.sleep(35)
    assert len(passes.started) == 4
    await jobs.close()


async def test_one_bad_job_does_not_hold_up_the_others_b46() -> None:
    passes = Passes()
    passes.raises = [RuntimeError("bug"), RuntimeError("bug")]
    jobs = make(passes)
    jobs.seen(body("bad"))
    await asyncio.sleep(0.5)
    jobs.seen(body("good"))
    await asyncio.sleep(20)
    assert passes.started.count("bad") >= 2
    assert "good" in passes.started
    await jobs.close()


async def test_passes_at_once_are_bounded_b50() -> None:
    passes = Passes()
    passes.takes_s = 5.0
    jobs = make(passes, concurrency=3)
    for number in range(10):
        jobs.seen(body(f"u{number}"))
    await asyncio.sleep(60)
    assert passes.most == 3
    assert len(passes.started) == 10
    await jobs.close()


async def test_a_conflict_makes_it_read_again() -> None:
    passes = Passes()
    passes.raises = [ApiError("patch", "configmaps", "x", 409, {"reason": "Conflict"})]
    jobs = make(passes)
    jobs.seen(body())
    await asyncio.sleep(5)
    assert passes.forgotten == ["u"]
    assert len(passes.started) == 2
    await jobs.close()


@pytest.mark.parametrize(
    "error", [JobGoneError("gone"), ApiError("patch", "rljobs.rljob.dev/status", "x", 404, {"reason": "NotFound"})]
)
async def test_a_job_that_is_gone_is_let_go(error: Exception) -> None:
    passes = Passes()
    passes.raises = [error]
    jobs = make(passes)
    jobs.seen(body())
    await asyncio.sleep(100)
    jobs.wake("u")
    await asyncio.sleep(100)
    assert passes.started == ["u"]
    assert passes.forgotten == ["u"]


async def test_a_job_being_deleted_is_let_go_b11() -> None:
    passes = Passes()
    jobs = make(passes)
    jobs.seen(body())
    await asyncio.sleep(1)
    deleting = body(version=2)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:06Z"
    jobs.seen(deleting)
    jobs.wake("u")
    await asyncio.sleep(100)
    assert passes.started == ["u"]


async def test_a_missing_verb_is_shown_with_its_resource_b60() -> None:
    passes = Passes()
    words = 'User "x" cannot patch resource "configmaps" in API group ""'
    passes.raises = [ApiError("patch", "configmaps", "rl-memory", 403, {"reason": "Forbidden", "message": words})]
    jobs = make(passes)
    jobs.seen(body(generation=4))
    await asyncio.sleep(1)
    condition = passes.shown[0].conditions[0]
    assert (condition.type, condition.status, condition.reason) == ("PodsCreated", "False", "CreateFailed")
    assert "may not patch configmaps" in condition.message
    assert passes.shown[0].observed_generation == 4
    await jobs.close()


@pytest.mark.parametrize("error", [NameTakenError("theirs"), MemoryUnreadableError("of a later version")])
async def test_what_only_a_person_can_mend_is_said_and_tried_again(
    error: NameTakenError | MemoryUnreadableError,
) -> None:
    passes = Passes()
    passes.raises = [error]
    jobs = make(passes)
    jobs.seen(body())
    await asyncio.sleep(100)
    condition = passes.shown[0].conditions[0]
    assert (condition.type, condition.status, condition.reason) == ("PodsCreated", "False", error.reason)
    assert condition.message == str(error)
    assert passes.started == ["u", "u"]
    await jobs.close()


async def test_a_spec_that_does_not_parse_is_said_and_waited_for() -> None:
    passes = Passes()
    jobs = make(passes)
    jobs.seen(body(trainer={"replicas": "many"}))
    await asyncio.sleep(100)
    condition = passes.shown[0].conditions[0]
    assert (condition.reason, passes.started) == ("InvalidSpec", [])
    assert "trainer.replicas" in condition.message
    jobs.seen(body(version=2, generation=2))
    await asyncio.sleep(1)
    assert passes.started == ["u"]
    await jobs.close()


async def test_a_spec_that_does_not_parse_is_said_even_where_the_first_write_fails() -> None:
    passes = Passes()
    passes.refuses_status = [ApiError("patch", "rljobs.rljob.dev/status", "rl-u", 500, {})] * 2
    jobs = make(passes)
    jobs.seen(body(trainer={"replicas": "many"}))
    await asyncio.sleep(100)
    assert [status.conditions[0].reason for status in passes.shown] == ["InvalidSpec"]
    await jobs.close()
