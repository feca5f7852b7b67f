"""The pass, against a substrate in memory: order of writes, restarts between any two calls, refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rljob_core.api import RLJob
from rljob_core.api.report import Report
from rljob_core.api.status import Phase, RLJobStatus
from rljob_core.lifecycle.model import ApplyError, Memory, ObservedWorkload, WorkloadPhase
from rljob_core.names import Role
from rljob_operator.reconcile import CONCURRENT_CALLS, RETRY_DELETE_S, Circumstances, Reconciler

JOB = RLJob.from_object(
    {
        "metadata": {"name": "demo", "uid": "u1"},
        "spec": {"model": {"path": "/m"}, "data": {}, "reward": {}, "algorithm": {}, "rollout": {"groups": 3}},
    }
)


class KilledError(Exception):
    """The operator dies here."""


class Cluster:
    """Substrate, MemoryStore, StatusWriter, EventPoster and Links in one; `calls` is what was asked, in order."""

    def __init__(self):
        self.pods = {}
        self.memory = Memory()
        self.status = RLJobStatus()
        self.report = None
        self.calls = []
        self.refuse = {}
        self.ever = []
        self.started_at = []
        self.dies_at = None
        self.attended = []
        self.at_once = 0
        self.most_at_once = 0
        self.now = 1000.0

    def _call(self, *what):
        if self.dies_at == len(self.calls):
            raise KilledError
        self.calls.append(what)

    async def observe(self, job):
        return tuple(self.pods.values())

    async def prepare(self, job):
        self._call("prepare")
        return tuple(self.refuse.get("prepare", ()))

    async def create(self, job, workload):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self._call("create", workload.name)
        if workload.name in self.refuse:
            return self.refuse[workload.name]
        assert workload.name not in self.ever
        self.ever.append(workload.name)
        self.started_at.append(workload.job_started_at)
        self.pods[workload.name] = ObservedWorkload(
            name=workload.name,
            role=workload.role,
            index=workload.index,
            attempt=workload.attempt,
            uid=f"u-{workload.name}",
            phase=WorkloadPhase.RUNNING,
            ready=True,
        )
        return None

    async def delete(self, job, name, grace_s):
        self._call("delete", name)
        if name in self.refuse:
            return self.refuse[name]
        self.pods.pop(name, None)
        return None

    def coordinator_url(self, job):
        return "http://coordinator"

    async def load(self, job):
        return self.memory

    async def save(self, job, memory):
        self._call("save")
        self.memory = memory

    async def write(self, job, status):
        self._call("status", status.phase)
        self.status = status

    async def post(self, job, event):
        self._call("event", event.reason)

    def attend(self, job, attempt, url):
        self.attended.append((attempt, url))

    def latest(self, job):
        return self.report, ""

    def direct(self, job, directive):
        self.directive = directive

    def fail(self, name):
        self.change(name, phase=WorkloadPhase.FAILED, ready=False, exit_code=1)

    def operator(self):
        return Reconciler(substrate=self, memories=self, statuses=self, events=self, links=self, clock=lambda: self.now)

    def change(self, name, **fields):
        self.pods[name] = replace(self.pods[name], **fields)

    async def pass_(self, operator, job=JOB):
        return await operator.reconcile(job, self.status, Circumstances(created_at=1000.0))

    async def run(self, operator, job=JOB):
        """From nothing to Running."""
        for _ in range(3):
            await self.pass_(operator, job)
        self.report = Report(sequence=1)
        await self.pass_(operator, job)
        assert self.status.phase is Phase.RUNNING

    def true_conditions(self):
        return {str(c.type) for c in self.status.conditions if c.status == "True"}


@pytest.fixture
def cluster():
    return Cluster()


async def test_memory_before_action_status_after_it_events_last(cluster):
    await cluster.pass_(cluster.operator())
    kinds = [call[0] for call in cluster.calls]
    assert kinds == ["save", "prepare", *["create"] * 8, "status", "event"]


async def test_nothing_new_nothing_written(cluster):
    operator = cluster.operator()
    for _ in range(3):
        await cluster.pass_(operator)
    cluster.report = Report(sequence=1)
    for _ in range(3):
        await cluster.pass_(operator)
    assert cluster.status.phase is Phase.RUNNING
    cluster.calls.clear()
    cluster.now += 100
    await cluster.pass_(operator)
    assert cluster.calls == []


async def test_progress_alone_does_not_write_memory(cluster):
    operator = cluster.operator()
    cluster.report = Report(sequence=1)
    for _ in range(3):
        await cluster.pass_(operator)
    cluster.calls.clear()
    cluster.now += 100
    cluster.report = Report(sequence=2, step=3)
    await cluster.pass_(operator)
    assert [call[0] for call in cluster.calls] == ["status"]


async def test_b3_refusal_reaches_the_status_in_the_next_pass_at_once(cluster):
    operator = cluster.operator()
    name = "demo-rollout-2"
    cluster.refuse[name] = ApplyError(action="create", name=name, reason="QuotaExceeded", message="exceeded quota")
    plan = await cluster.pass_(operator)
    assert plan.requeue_after == 0
    await cluster.pass_(operator)
    assert cluster.status.reason == "QuotaExceeded"
    assert "exceeded quota" in cluster.status.message
    del cluster.refuse[name]
    cluster.now += 5
    await cluster.pass_(operator)
    cluster.report = Report(sequence=1)
    await cluster.pass_(operator)
    assert cluster.status.phase is Phase.RUNNING


async def test_refused_preparation_creates_nothing(cluster):
    operator = cluster.operator()
    error = ApplyError(action="prepare", name="t", reason="InvalidTemplate", message="no such field", field="spec.x")
    cluster.refuse["prepare"] = [error]
    await cluster.pass_(operator)
    await cluster.pass_(operator)
    assert cluster.pods == {}
    assert (cluster.status.phase, cluster.status.reason) == (Phase.FAILED, "InvalidTemplate")


async def test_creation_is_concurrent_but_bounded(cluster):
    many = JOB.model_copy(
        update={"spec": JOB.spec.model_copy(update={"rollout": JOB.spec.rollout.model_copy(update={"groups": 60})})}
    )
    await cluster.operator().reconcile(many, cluster.status, Circumstances(created_at=1000.0))
    assert len(cluster.pods) == 65
    assert 1 < cluster.most_at_once <= CONCURRENT_CALLS


async def test_status_is_written_even_when_an_action_raised(cluster):
    async def broken(job, workload):
        raise ConnectionError("API server gone")

    cluster.create = broken
    with pytest.raises(ConnectionError):
        await cluster.pass_(cluster.operator())
    assert ("status", Phase.PROVISIONING) in cluster.calls


async def test_a_job_has_one_start_over_attempts_and_operators(cluster):
    await cluster.run(cluster.operator())
    cluster.now += 500
    cluster.fail("demo-trainer-0")
    restarted = cluster.operator()
    for seconds in (0, 2, 2):
        cluster.now += seconds
        await cluster.pass_(restarted)
    assert cluster.ever[-1].endswith("-r1")
    cluster.memory = Memory()
    cluster.fail("demo-trainer-0-r1")
    memoryless = cluster.operator()
    for seconds in (0, 2, 2):
        cluster.now += seconds
        await cluster.pass_(memoryless)
    assert cluster.ever[-1].endswith("-r2")
    assert set(cluster.started_at) == {1000.0}, "the status knows it where memory is lost"


async def test_only_the_running_coordinator_of_this_attempt_is_listened_to(cluster):
    operator = cluster.operator()
    await cluster.pass_(operator)
    await cluster.pass_(operator)
    assert cluster.attended == [(0, None), (0, "http://coordinator")]
    cluster.fail("demo-trainer-0")
    await cluster.pass_(operator)
    await cluster.pass_(operator)
    assert cluster.attended[-1] == (1, None)


@pytest.mark.parametrize("raises", [False, True], ids=["refused", "broken"])
async def test_deletions_that_fail_at_the_deadline_are_asked_for_again_b7(cluster, raises):
    lifecycle = JOB.spec.lifecycle.model_copy(update={"active_deadline_seconds": 60})
    job = JOB.model_copy(update={"spec": JOB.spec.model_copy(update={"lifecycle": lifecycle})})
    operator = cluster.operator()
    await cluster.run(operator, job)
    delete = cluster.delete

    async def fails(job, name, grace_s):
        if raises:
            raise ConnectionError("API server gone")
        return ApplyError(action="delete", name=name, reason="CreateFailed", message="500: not now")

    cluster.delete, cluster.now = fails, 1061.0
    for _ in range(2):
        try:
            plan = await cluster.pass_(operator, job)
        except ConnectionError:
            assert raises  # the controller repeats a pass that raised
        else:
            assert plan.requeue_after <= RETRY_DELETE_S
    assert (cluster.status.phase, cluster.status.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert len(cluster.pods) == 8
    cluster.delete = delete
    await cluster.pass_(operator, job)
    assert cluster.pods == {}


@pytest.mark.parametrize("leader", ["demo-coordinator-0", "demo-trainer-0"])
async def test_one_incident_is_one_attempt_b23(cluster, leader):
    """A leader is deleted from outside; the others break off one by one, and each goes in its own time."""
    operator = cluster.operator()
    await cluster.run(operator)

    async def lingers(job, name, grace_s):
        cluster.change(name, deleting=True)

    cluster.delete = lingers
    cluster.change(leader, deleting=True)
    await cluster.pass_(operator)
    gang = list(cluster.pods)
    for name in gang:
        cluster.fail(name)
        await cluster.pass_(operator)
    for name in gang:
        del cluster.pods[name]
        cluster.now += 10
        await cluster.pass_(operator)
    for _ in range(2):
        await cluster.pass_(operator)
    assert len(cluster.ever) == 2 * len(gang)
    assert cluster.status.phase is Phase.RUNNING
    assert (cluster.status.attempt, cluster.status.restarts.counted, cluster.status.restarts.uncounted) == (1, 0, 1)


async def test_a_slow_restart_never_claims_opposites_b33(cluster):
    operator = cluster.operator()
    await cluster.run(operator)
    assert cluster.true_conditions() >= {"Ready"}
    cluster.fail("demo-trainer-0")
    cluster.report = None
    opposites = {"Ready", "Reconciling", "Stalled", "Complete", "Failed"}
    for _ in range(10):
        cluster.now += 60
        await cluster.pass_(operator)
        assert cluster.true_conditions() & opposites == {"Reconciling"}
        if "demo-reward-0-r1" in cluster.pods:
            cluster.change("demo-reward-0-r1", phase=WorkloadPhase.PENDING, ready=False)
    assert cluster.status.phase is Phase.RESTARTING
    cluster.change("demo-reward-0-r1", phase=WorkloadPhase.RUNNING, ready=True)
    cluster.report = Report(sequence=1)
    await cluster.pass_(operator)
    assert cluster.true_conditions() & opposites == {"Ready"}


async def live_through(cluster, operator):
    """From nothing to Running, a trainer lost, Running again."""
    for _ in range(3):
        await cluster.pass_(operator)
    cluster.report = Report(sequence=1)
    await cluster.pass_(operator)
    if "demo-trainer-0" in cluster.pods and not cluster.memory.attempt:
        cluster.fail("demo-trainer-0")
    for _ in range(3):
        await cluster.pass_(operator)
    cluster.now += 10
    for _ in range(3):
        await cluster.pass_(operator)


async def test_killed_after_any_call_ends_the_same(cluster):
    await live_through(cluster, cluster.operator())
    reference = (sorted(cluster.pods), cluster.status.phase, cluster.status.restarts, sorted(cluster.ever))
    for cut in range(len(cluster.calls)):
        again = Cluster()
        again.dies_at = cut
        operator = again.operator()
        with pytest.raises(KilledError):
            await live_through(again, operator)
        again.dies_at = None
        await live_through(again, again.operator())
        result = (sorted(again.pods), again.status.phase, again.status.restarts, sorted(again.ever))
        assert result == reference, f"killed before call {cut}"
        assert all(pod.role in Role for pod in again.pods.values())
