"""The life of a job, mishap by mishap. Ids B… are cases of the field (kuberay, jobset, volcano, trainer)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rljob_core.api.directive import Action
from rljob_core.api.report import Cause, Outcome, Report, TerminationMessage
from rljob_core.api.status import Phase, RLJobStatus
from rljob_core.lifecycle.model import ApplyError, Memory, WorkloadPhase
from rljob_core.names import Role

TRAINERS = ["demo-trainer-0", "demo-trainer-1"]


def test_from_nothing_to_running(world):
    plan = world.step()
    assert len(plan.create) == 8
    assert world.status.phase is Phase.PROVISIONING
    world.ready()
    world.step()
    assert (world.status.phase, world.status.reason) == (Phase.PROVISIONING, "WaitingForReport")
    world.report = Report(sequence=1)
    world.step()
    assert world.status.phase is Phase.RUNNING
    assert world.status.pods_ready == "8/8"
    assert world.condition("Ready").status == "True"
    assert world.condition("Reconciling").status == "False"
    assert world.events == ["WaitingForPods", "Running"]


def test_b9_not_running_while_one_pod_of_the_gang_is_pending(world):
    world.run()
    world.change("demo-trainer-1", phase=WorkloadPhase.PENDING, ready=False, reason="Unschedulable", message="no node")
    world.step()
    assert world.status.phase is Phase.PROVISIONING
    assert "Unschedulable no node" in world.status.message


def test_b10_phase_needs_no_event(world):
    """All came up while nobody looked: the next pass sees it."""
    world.step()
    world.ready()
    world.report = Report(sequence=7, step=3)
    world.step()
    assert (world.status.phase, world.status.step) == (Phase.RUNNING, 3)


def test_success_keeps_coordinator_and_trainers(world, done_report):
    world.run()
    world.report = done_report
    world.step()
    assert world.status.phase is Phase.RUNNING
    world.succeed(Role.COORDINATOR, Role.TRAINER)
    plan = world.step()
    assert (world.status.phase, world.status.reason) == (Phase.SUCCEEDED, "StepsDone")
    assert world.status.progress == "10/10"
    assert (world.status.pods_ready, world.status.roles) == ("-", {}), "nothing is wanted any more"
    assert sorted(plan.delete) == [
        "demo-reward-0", "demo-rollout-0", "demo-rollout-1", "demo-store-0", "demo-store-master-0",
    ]  # fmt: skip
    assert world.names(*Role) == ["demo-coordinator-0", *TRAINERS]
    assert world.condition("Complete").status == "True"
    assert world.condition("Failed").status == "False"


def test_b1_coordinator_pod_deleted_just_before_the_trainers_end(world, done_report):
    world.run()
    world.report = done_report
    world.step()
    del world.pods["demo-coordinator-0"]
    world.report = None
    world.step()
    assert world.status.phase is not Phase.SUCCEEDED
    world.succeed(Role.TRAINER)
    world.step()
    assert world.status.phase is Phase.SUCCEEDED
    assert world.memory.attempt == 0


def test_b1_operator_was_away_for_the_whole_run(world, done_report):
    world.step()
    world.memory, world.status = Memory(), RLJobStatus()
    world.succeed(Role.COORDINATOR, Role.TRAINER, words=TerminationMessage(report=done_report))
    world.step()
    assert (world.status.phase, world.status.step) == (Phase.SUCCEEDED, 10)


def test_still_running_while_the_trainers_outlive_the_coordinator(world, done_report):
    world.run()
    world.report = done_report
    world.step()
    world.succeed(Role.COORDINATOR)
    world.report = None
    world.step()
    assert world.status.phase is Phase.RUNNING


def test_trainers_that_hang_after_the_goal_are_not_waited_for(world, done_report):
    world.run()
    world.report = done_report
    world.step()
    world.step(61)
    assert world.status.phase is Phase.SUCCEEDED
    world.step(61)
    assert world.names(Role.TRAINER) == []


@pytest.mark.parametrize("how", ["exit code", "last words"])
def test_invalid_input_fails_at_once_without_retries(world, how):
    world.run()
    words = TerminationMessage(invalid_input=True, rank=1, message="data.jsonl line 7: bad", exit_code=64)
    code = {"exit code": 64, "last words": 1}[how]
    world.fail("demo-trainer-1", code, last_words=words)
    world.step()
    assert (world.status.phase, world.status.reason) == (Phase.FAILED, "InvalidInput")
    assert world.status.message == "data.jsonl line 7: bad"
    assert world.status.restarts.counted == 0
    assert world.status.first_cause.rank == 1
    assert len(world.names(*Role)) == 8, "the coordinator tells them to stop: they end by themselves"
    world.fail("demo-coordinator-0", 64)
    world.step()
    kept = ["demo-coordinator-0", "demo-trainer-1"]
    assert world.names(*Role) == kept, "ended pods stay for their logs, running ones go"


def test_invalid_input_that_the_coordinator_tells_of_leaves_the_logs(world):
    world.run()
    cause = Cause(role="trainer", pod="demo-trainer-0", rank=0, message="3 does not divide 8")
    told = Report(sequence=2, outcome=Outcome.INVALID_INPUT, outcome_message="3 does not divide 8", cause=cause)
    world.report = told
    world.step()
    assert (world.status.phase, world.status.reason) == (Phase.FAILED, "InvalidInput")
    assert (world.status.first_cause.pod, world.status.first_cause.exit_code) == ("demo-trainer-0", 64)
    assert len(world.names(*Role)) == 8
    world.step(61)
    assert world.names(*Role) == [], "not waited for for ever"


def test_invalid_input_known_beforehand_creates_nothing(new_world):
    world = new_world()
    observed = replace(world.observed(), invalid_input="no such file")
    world.observed = lambda: observed
    plan = world.step()
    assert plan.create == ()
    assert world.status.phase is Phase.FAILED


def test_a_status_message_is_one_line_and_the_first_cause_keeps_the_log(world):
    """A native process that is killed leaves no last words: the end of its log stands in for them."""
    world.run()
    log = "I1130 mounted\nI1130 serving\nE1130 bind: address in use\n"
    world.fail("demo-store-master-0", 137, reason="SIGKILL", message=log, finished_at=world.now)
    world.step()
    assert "\n" not in world.status.message
    assert "bind: address in use" in world.status.message
    assert world.status.first_cause.message == log


def test_a_reward_worker_that_hangs_is_replaced(world):
    """Its process runs on, so only the coordinator can tell: without a replacement the job would wait for ever."""
    world.run()
    world.report = Report(sequence=2, silent=["demo-reward-0", "demo-trainer-0"])
    plan = world.step()
    assert plan.delete == ("demo-reward-0",)
    assert world.status.first_cause.reason == "Silent"
    assert world.status.restarts.counted == 1
    plan = world.step(2.5)
    assert [w.name for w in plan.create] == ["demo-reward-0-r1"]
    assert world.step().create == (), "the old name in the report counts once"


def test_b2_lost_trainer_restarts_the_gang_from_the_checkpoint(world):
    world.run()
    world.fail("demo-trainer-0", 137, reason="OOMKilled", node="n1", finished_at=world.now)
    plan = world.step()
    assert plan.create == ()
    assert len(plan.delete) == 8
    assert (world.status.phase, world.status.attempt) == (Phase.RESTARTING, 1)
    assert world.status.restarts.counted == 1
    assert world.events[-2:] == ["Restarting", "RestartingFromCheckpoint"]
    assert world.step().create == ()
    plan = world.step(2.5)
    assert [w.name for w in plan.create][:3] == ["demo-store-master-0-r1", "demo-store-0-r1", "demo-coordinator-0-r1"]
    world.ready()
    world.report = Report(sequence=1)
    world.step()
    assert world.status.phase is Phase.RUNNING


def test_a_resume_is_said_once_an_attempt(world):
    world.run()
    assert (world.status.resumed_step, "resumed" in world.condition("Resumable").message) == (None, False)
    for attempt in (1, 2):
        world.fail(f"demo-trainer-0{f'-r{attempt - 1}' if attempt > 1 else ''}", 1)
        world.step()
        assert world.status.resumed_step is None
        world.report = None
        world.step(10)
        world.ready()
        world.report = Report(sequence=1, resumed_step=20)
        world.step()
        assert world.status.resumed_step == 20
        assert world.condition("Resumable").message == "checkpoints outlive the pods; resumed from step 20"
        assert world.events.count("Resumed") == attempt
    world.report = None
    world.step()
    world.report = Report(sequence=2, resumed_step=20)
    world.step()
    assert world.events.count("Resumed") == 2, "not again when the operator was away"


def test_b30_first_cause_is_named(world):
    world.run()
    words = TerminationMessage(rank=3, exit_code=1, message="loss is NaN")
    world.fail("demo-trainer-1", 1, reason="Error", node="n2", finished_at=5.0, last_words=words)
    world.fail("demo-coordinator-0", 1, finished_at=9.0)
    world.step()
    cause = world.status.first_cause
    assert (cause.pod, cause.rank, cause.node, cause.message) == ("demo-trainer-1", 3, "n2", "loss is NaN")
    assert "loss is NaN" in world.status.message
    assert world.status.restarts.counted == 1, "one incident, whatever it took down"


def test_b2_patience_ends(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"backoffLimit": 1}))
    world.run()
    world.fail("demo-trainer-0", 1)
    world.step()
    world.step(3)
    world.ready()
    world.fail("demo-store-0-r1", 9, message="segment died")
    world.step(3)
    assert (world.status.phase, world.status.reason) == (Phase.FAILED, "BackoffLimitExceeded")
    assert "segment died" in world.status.message
    assert world.names(*Role) == ["demo-store-0-r1"]


def test_new_gang_waits_until_the_old_one_is_gone(world):
    world.run()
    world.obeys_deletes = False
    world.fail("demo-trainer-0", 1)
    world.step()
    assert world.step(100).create == ()
    world.pods.clear()
    assert len(world.step().create) == 8


def test_lost_rollout_is_replaced_alone(world):
    world.run()
    world.fail("demo-rollout-1", 1)
    world.step()
    assert world.names(Role.ROLLOUT) == ["demo-rollout-0"]
    assert world.names(Role.TRAINER) == TRAINERS
    assert world.status.phase is Phase.RESTARTING
    plan = world.step(2.5)
    assert [w.name for w in plan.create] == ["demo-rollout-1-r1"]
    assert world.status.restarts.counted == 1
    assert world.status.attempt == 0
    world.ready()
    world.step()
    assert world.status.phase is Phase.RUNNING


def test_ranks_of_a_rollout_group_are_replaced_together_and_counted_once(new_world, new_job):
    world = new_world(job=new_job(rollout={"groups": 2, "layout": {"dp": 2}}))
    world.run()
    world.fail("demo-rollout-2", 1)
    world.fail("demo-rollout-3", 1)
    world.step()
    assert world.names(Role.ROLLOUT) == ["demo-rollout-0", "demo-rollout-1"]
    assert [w.name for w in world.step(2.5).create] == ["demo-rollout-2-r1", "demo-rollout-3-r1"]
    assert world.status.restarts.counted == 1


@pytest.mark.parametrize(
    "fields",
    [{"disrupted": True, "reason": "Evicted"}, {"code": 75}],
    ids=["evicted", "drained by its node"],
)
def test_b26_disruption_is_not_counted(world, fields):
    world.run()
    world.fail("demo-trainer-0", **fields)
    world.step()
    assert (world.status.restarts.counted, world.status.restarts.uncounted) == (0, 1)
    assert world.status.attempt == 1


def test_b20_deleted_trainer_restarts_the_gang_uncounted(world):
    world.run()
    del world.pods["demo-trainer-1"]
    world.step()
    assert (world.status.attempt, world.status.restarts.counted, world.status.restarts.uncounted) == (1, 0, 1)
    assert world.status.first_cause.reason == "Deleted"


def test_back_off_grows(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"backoffLimit": 9}))
    world.run()
    waits = []
    for attempt in range(4):
        suffix = f"-r{attempt}" if attempt else ""
        world.fail(f"demo-trainer-0{suffix}", 1)
        world.step()
        waits.append(world.memory.restart_not_before - world.now)
        world.step(waits[-1])
        world.ready()
        world.step()
    assert waits == [2, 4, 8, 16]


def _wait_after_a_crash(world, step):
    """Seconds until the next try, where the attempt that crashes had reported so many steps."""
    world.ready()
    world.report = world.report.model_copy(update={"step": step})
    world.step()
    world.fail(world.names(Role.TRAINER)[0], 1)
    world.step()
    wait = world.memory.restart_not_before - world.now
    world.step(wait)
    return wait


def test_back_off_begins_anew_once_a_step_was_done_that_never_was_before(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"backoffLimit": 99}))
    world.run()
    assert [_wait_after_a_crash(world, step) for step in (3, 3, 2, 4, 1, 4)] == [2, 4, 8, 2, 4, 8]


def test_back_off_knows_progress_over_the_loss_of_memory(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"backoffLimit": 99}))
    world.run()
    _wait_after_a_crash(world, 3)
    world.memory = type(world.memory)(gang=world.memory.gang)
    assert [_wait_after_a_crash(world, step) for step in (3, 3)] == [2, 4], "the tries are forgotten, the step is not"


@pytest.mark.parametrize("ending", ["ok", "failed"])
def test_b17_terminal_is_final(world, done_report, ending):
    world.run()
    if ending == "ok":
        world.report = done_report
        world.succeed(Role.COORDINATOR, Role.TRAINER)
    else:
        world.fail("demo-trainer-0", 64)
    world.step()
    status = world.status
    assert status.phase.terminal
    world.pods.clear()
    world.report = None
    world.memory = Memory()
    plan = world.step(1000)
    assert plan.create == ()
    assert plan.events == ()
    assert plan.status is status
    assert plan.memory == Memory(), "nothing is written any more, not even what is remembered"


def test_b17_counters_survive_the_loss_of_memory(world):
    world.run()
    world.fail("demo-trainer-0", 1)
    world.step()
    world.memory = Memory()
    world.step(10)
    assert (world.memory.attempt, world.memory.counted_restarts) == (1, 1)


def test_observed_generation_follows_a_finished_job(world, done_report):
    world.run()
    world.report = done_report
    world.succeed(Role.COORDINATOR, Role.TRAINER)
    world.step()
    metadata = world.job.metadata.model_copy(update={"generation": 2})
    world.job = world.job.model_copy(update={"metadata": metadata})
    world.step()
    assert world.status.observed_generation == 2
    assert {c.observed_generation for c in world.status.conditions} == {2}


def test_b3_quota_is_said_retried_and_recovers(world):
    world.step()
    del world.pods["demo-rollout-1"]
    refusal = ApplyError(
        action="create", name="demo-rollout-1", reason="QuotaExceeded", message="exceeded quota: pods=7"
    )
    world.errors = (refusal,)
    assert world.step().create == ()
    created = world.condition("PodsCreated")
    assert (created.status, created.reason) == ("False", "QuotaExceeded")
    assert "exceeded quota: pods=7" in created.message
    world.ready()
    world.report = Report(sequence=1)
    assert world.step(1).create == ()
    assert world.status.phase is Phase.PROVISIONING
    assert [w.name for w in world.step(1.5).create] == ["demo-rollout-1"]
    world.ready()
    world.step()
    world.step()
    assert world.status.phase is Phase.RUNNING
    assert world.condition("PodsCreated").status == "True"
    assert world.memory.create_trouble is None


def test_b3_back_off_of_refusals_grows(world):
    refusal = ApplyError(action="create", name="demo-trainer-0", reason="QuotaExceeded", message="no")
    waits = []
    for _ in range(3):
        world.errors = (refusal,)
        world.step(1000)
        waits.append(world.memory.create_trouble.not_before - world.now)
    assert waits == [2, 4, 8]


@pytest.mark.parametrize("reason", ["CreateFailed", "NameTaken"])
def test_b6_denial_reaches_condition_and_event(world, reason):
    world.errors = (ApplyError(action="create", name="demo-trainer-0", reason=reason, message="denied by policy x"),)
    plan = world.step()
    assert (world.status.phase, world.status.reason) == (Phase.PENDING, reason)
    assert "denied by policy x" in world.condition("PodsCreated").message
    assert any(e.reason == reason and "denied by policy x" in e.message for e in plan.events)


def test_bad_template_is_final_and_names_the_field(world):
    error = ApplyError(
        action="prepare",
        name="trainer",
        reason="InvalidTemplate",
        message='unknown field "nodeSelectr"',
        field="spec.trainer.template.spec.nodeSelectr",
    )
    world.errors = (error,)
    world.step()
    assert (world.status.phase, world.status.reason) == (Phase.FAILED, "InvalidTemplate")
    stalled = world.condition("Stalled")
    assert (stalled.status, stalled.reason) == ("True", "InvalidTemplate")
    assert stalled.message.startswith("spec.trainer.template.spec.nodeSelectr: ")
    assert world.condition("PodsCreated").reason == "InvalidTemplate"


def test_deadline(new_world, new_job):
    world = new_world(job=new_job(lifecycle={"activeDeadlineSeconds": 100}))
    world.run()
    assert world.step(50).requeue_after <= 50
    world.step(50)
    assert (world.status.phase, world.status.reason) == (Phase.FAILED, "DeadlineExceeded")
    assert world.names(*Role) == []


def test_drain_lets_the_coordinator_checkpoint_then_removes_the_rest(world):
    world.run()
    world.drain = True
    plan = world.step()
    assert plan.directive.action is Action.DRAIN
    assert plan.delete == ()
    assert (world.status.phase, world.status.reason) == (Phase.PENDING, "Draining")
    assert world.status.message == "finishing the step under way, then a checkpoint (last: none)"
    world.report = Report(sequence=2, outcome=Outcome.DRAINED, step=4, last_checkpoint_step=4)
    world.step()
    assert world.status.message == "pods still stopping: 8; checkpoint of step 4"
    for name in ["demo-coordinator-0", *TRAINERS]:
        world.fail(name, 75)
    world.step()
    world.step()
    assert (world.status.phase, world.status.reason) == (Phase.PENDING, "Drained")
    assert world.status.message == "checkpoint of step 4"
    assert world.status.restarts.uncounted == 0
    assert all(not pod.live for pod in world.pods.values())
    assert world.step(100).create == ()


def test_b1_trainers_that_stopped_for_a_drain_are_no_success(world):
    """The coordinator pod was deleted: it drained, told the trainers to stop, and said so."""
    world.run()
    world.report = Report(sequence=2, outcome=Outcome.DRAINED, step=4)
    world.step()
    del world.pods["demo-coordinator-0"]
    world.succeed(Role.TRAINER)
    world.step()
    assert (world.status.phase, world.status.attempt) == (Phase.RESTARTING, 1)


def test_drain_before_anyone_can_be_asked_removes_all(world):
    world.step()
    world.drain = True
    world.step()
    world.step()
    assert world.status.reason == "Drained"
    assert world.pods == {}


def test_a_drain_before_the_first_report_still_knows_the_checkpoint_of_an_earlier_attempt(world):
    world.status = world.status.model_copy(update={"last_checkpoint_step": 6})
    world.step()
    world.drain = True
    world.step()
    world.step()
    assert (world.status.reason, world.status.message) == ("Drained", "checkpoint of step 6")


def test_messages_call_workloads_what_the_substrate_calls_them(world):
    world.units = "processes"
    world.step()
    assert world.status.message == "0 of 8 processes ready"
    assert world.condition("PodsCreated").message == "0 of 8 processes exist"
    world.ready()
    world.step()
    assert world.status.message == "8 processes ready, waiting for the coordinator's first report"
    assert world.condition("Resumable").message == "checkpoints outlive the processes"
    world.report = Report(sequence=1)
    world.step()
    assert world.status.message == "8 processes ready"


def test_drain_that_hangs_is_cut_off(world):
    world.run()
    world.drain = True
    world.step()
    assert world.step(60).delete == ()
    assert len(world.step(10).delete) == 8


@pytest.mark.parametrize("durable", [True, False])
def test_resumable_says_whether_checkpoints_outlive_the_pods(new_world, durable):
    world = new_world(durable=durable)
    world.step()
    condition = world.condition("Resumable")
    assert (condition.status, condition.reason) == (("True", "DurableVolume") if durable else ("False", "EmptyDir"))


def test_directive_revision_grows_only_with_news(world):
    world.run()
    first = world.step().directive
    assert world.step(5).directive == first
    world.drain = True
    assert world.step().directive.revision == first.revision + 1
