"""The life of a job without sockets: happy path, versions, evaluation, ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from outputs_page import documented

from rljob_core.api.directive import Directive, StaleSyncLimits
from rljob_core.api.inputs import Decoding
from rljob_core.api.messages import CompleteReward, Goodbye, Register, RolloutWork, TableName, TrainCommand, WorkKind
from rljob_core.api.report import Outcome
from rljob_core.api.spec import RLJob
from rljob_core.errors import InvalidInputError
from rljob_core.journal import lineage_prompts, replay
from rljob_core.layouts import Layout
from rljob_core.session import Discarded
from rljob_core.session.reporting import report
from rljob_core.session.settings import EvaluationSettings, Settings

MakeJob = Callable[..., Any]


def test_a_job_trains_every_prompt_once_in_order_and_ends(job: MakeJob) -> None:
    done = job().run()
    assert done.session.finishing is Outcome.STEPS_DONE
    assert lineage_prompts(replay(done.journal)) == list(range(16))
    assert [s.metrics["step"] for s in done.steps] == [1, 2, 3, 4]
    assert done.published == [0, 1, 2, 3, 4]
    assert done.store == {}, "KV and packs are removed when nobody needs them"


def test_two_ranks_get_the_same_commands_and_disjoint_whole_groups(job: MakeJob) -> None:
    done = job(trainer_layout=Layout(dp=2, ep=2), minibatches=2).run()
    first, second = done.commands[0], done.commands[1]
    assert [(w.command, w.step, w.version) for w in first[: len(second)]] == [
        (w.command, w.step, w.version) for w in second
    ]
    train = next(w for w in first if w.command is TrainCommand.TRAIN)
    other = next(w for w in second if w.command is TrainCommand.TRAIN)
    assert train.prompt_ids == [0, 0, 2, 2]
    assert other.prompt_ids == [1, 1, 3, 3]
    assert train.minibatch == other.minibatch == [0, 0, 1, 1]
    assert train.sample_indices == [0, 1, 0, 1]
    assert train.group_rewards == [[1.0, 1.0], [1.0, 1.0]]
    assert train.groups == [0, 0, 1, 1]


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_lag_never_passes_the_bound_and_is_used_rl25(job: MakeJob, bound: int) -> None:
    done = job(max_version_lag=bound, steps=8, evaluation=None, max_sequences=64).run()
    assert max(done.lags) == min(bound, 8)
    assert report(done.session, 1).max_version_lag_seen == max(done.lags)


@pytest.mark.parametrize(("bound", "updates"), [(0, 3), (2, 11)])
def test_lag_is_reported_in_optimizer_updates_too_rl29(job: MakeJob, bound: int, updates: int) -> None:
    """Four minibatches: the last one is trained three updates after the first, on top of four a version of lag."""
    done = job(max_version_lag=bound, minibatches=4, steps=8, evaluation=None, max_sequences=64).run()
    assert max(s.metrics["lag_updates"] for s in done.steps) == updates


def test_a_new_version_cuts_nothing_short_rl21(job: MakeJob) -> None:
    """A group that still decodes when a version comes out ends that first; what it then commits is trained."""
    running = job(max_version_lag=1, evaluation=None)
    while running.session.step < 1:
        running.now += 0.1
        for group, rollout in enumerate(running.rollouts):
            running.take(group)
            for work in list(rollout.work):
                if group or work.kind is WorkKind.PREFILL or min(work.rows) < 8:
                    rollout.work.remove(work)
                    running.complete(group, work)
        running.take_reward()
        while running.reward_work:
            running.complete_reward(running.reward_work.pop(0))
        running.train(0)
    [held] = running.rollouts[0].work
    assert running.take(1).kind is WorkKind.PULL
    assert running.take(0).kind is WorkKind.WAIT
    assert all(running.complete(0, running.rollouts[0].work.pop()))
    assert running.take(0).kind is WorkKind.PULL
    trained = [row for work in running.run().commands[0] for row in work.rows]
    assert sorted(trained) == list(range(32))
    assert set(held.rows) <= set(trained)


def test_synchronous_has_one_batch_in_work_at_a_time(job: MakeJob) -> None:
    sync = job(max_version_lag=0)
    ahead = []
    sync.run(until=lambda: ahead.append(len(sync.session.batches)))
    assert max(ahead) == 1


def test_a_directive_may_lower_the_lag_but_not_raise_it_above_the_spec(job: MakeJob) -> None:
    running = job(max_version_lag=1)
    assert running.session.direct(Directive(revision=1, stale_sync=StaleSyncLimits(max_version_lag=5)), 0.0)
    assert running.session.max_version_lag == 1
    assert running.session.direct(Directive(revision=2, stale_sync=StaleSyncLimits(max_version_lag=0)), 0.0)
    assert running.session.max_version_lag == 0


def test_an_old_or_repeated_directive_changes_nothing(job: MakeJob) -> None:
    running = job()
    directive = Directive(revision=3, stale_sync=StaleSyncLimits(max_version_lag=0))
    assert running.session.direct(directive, 0.0)
    assert not running.session.direct(directive, 0.0)
    assert not running.session.direct(Directive(revision=2, stale_sync=StaleSyncLimits(max_version_lag=1)), 0.0)
    assert running.session.max_version_lag == 0


def test_evaluation_runs_on_its_cadence_and_on_the_last_version(job: MakeJob) -> None:
    done = job(steps=5).run()
    assert [(e.metrics["step"], e.metrics["version"]) for e in done.evaluations] == [(2, 2), (4, 4), (5, 5)]
    assert done.session.evaluations.last.exact_match == 1.0


def test_kv_that_found_no_room_leaves_no_key_to_remove(job: MakeJob) -> None:
    running, discarded = job(), []
    complete, take_effects = running.session.complete_prefill, running.session.take_effects
    running.session.complete_prefill = lambda message: complete(
        message.model_copy(update={"kv_keys": [""] * len(message.rows)})
    )

    def noted() -> Any:
        effects = take_effects()
        discarded.extend(key for e in effects if isinstance(e, Discarded) for key in e.keys)
        return effects

    running.session.take_effects = noted
    take = running.session.take_rollout
    running.session.take_rollout = lambda *given: take(*given).model_copy(update={"kv_keys": []})
    assert running.run().session.finishing is Outcome.STEPS_DONE
    assert discarded
    assert all(discarded)


@pytest.mark.parametrize(("held_out", "taken"), [(2, 2), (3, 3), (9, 3), (None, 3)])
def test_an_evaluation_takes_no_prompt_twice(job: MakeJob, held_out: int | None, taken: int) -> None:
    running = job()
    running.source.held_out = held_out
    running.run(until=lambda: running.session.evaluations.running)
    [evaluation] = running.session.evaluations._running
    assert [p.text for p in evaluation.batch.prompts] == [f"e{i}" for i in range(taken)]
    assert [e.metrics["step"] for e in running.run().evaluations] == [2, 4]


def test_evaluation_never_reaches_the_trainer(job: MakeJob) -> None:
    done = job().run()
    assert all(row < 1 << 48 for work in done.commands[0] for row in work.rows)


@pytest.mark.parametrize(("decoding", "greedy"), [(Decoding.GREEDY, True), (Decoding.SAMPLED, False)])
def test_evaluation_is_decoded_as_the_spec_says_and_training_is_sampled(
    job: MakeJob, decoding: Decoding, greedy: bool
) -> None:
    spec = {
        "model": {"path": "/m"}, "data": {"generator": {"task": "copy-digits"}}, "reward": {"exactMatch": {}},
        "evaluation": {"generator": {"task": "copy-digits"}, "prompts": 3, "everySteps": 2, "decoding": decoding},
        "algorithm": {},
    }  # fmt: skip
    settings = Settings.of(RLJob.from_object({"metadata": {"name": "a"}, "spec": spec}).spec)
    running, seen = job(evaluation=settings.evaluation), set()
    take = running.take

    def noted(group: int) -> RolloutWork:
        work = take(group)
        if work.kind is WorkKind.DECODE:
            seen.add((work.table, work.greedy))
        return work

    running.take = noted
    running.run()
    assert seen == {(TableName.ROLLOUT, False), (TableName.EVALUATION, greedy)}


def test_reaching_the_target_ends_the_job_early_with_a_checkpoint(job: MakeJob) -> None:
    target = EvaluationSettings(prompts=3, every_steps=1, greedy=True, target_exact_match=0.9)
    done = job(evaluation=target, steps=50).run()
    assert done.session.finishing is Outcome.TARGET_REACHED
    assert done.session.step < 50
    assert done.session.last_checkpoint_step == done.session.step
    assert done.session.evaluations.last.version == done.session.version


def test_samples_of_the_first_step_are_logged_as_documented(job: MakeJob) -> None:
    first, second = job().run().steps[:2]
    assert first.samples[0].keys() == documented("samples.jsonl").keys()
    assert second.samples == ()


def test_the_evaluation_that_ended_the_job_is_the_one_reported(job: MakeJob) -> None:
    """Weights trained while it ran are evaluated too, but a lower figure of theirs does not take its place."""
    target = EvaluationSettings(prompts=3, every_steps=2, greedy=True, target_exact_match=0.9)
    running = job(evaluation=target, steps=50, max_version_lag=1)
    running.run(until=lambda: running.session.evaluations.running)
    running.run(until=lambda: running.session.finishing is not Outcome.NONE)
    decisive = running.session.evaluations.last
    running.reward = 0.5
    done = running.run()
    told = report(done.session, 1)
    assert (told.eval_step, told.eval_exact_match) == (decisive.step, 1.0)
    assert [e.metrics["eval_exact_match"] for e in done.evaluations][-2:] == [1.0, 0.0]
    assert done.evaluations[-1].metrics["version"] == done.session.version > decisive.version


def test_constant_rewards_are_trained_not_refilled_rl43(job: MakeJob) -> None:
    running = job(evaluation=None)
    running.reward = 0.0
    assert running.run().session.finishing is Outcome.STEPS_DONE


def test_deterministic_dispatch_is_by_prompt_modulo_groups_in_fixed_batches(job: MakeJob) -> None:
    running = job(deterministic=True, max_version_lag=0, evaluation=None, max_sequences=4)
    seen: dict[int, list[list[int]]] = {0: [], 1: []}
    while not running.session.stopping:
        running.now += 0.1
        for group, rollout in enumerate(running.rollouts):
            work = running.take(group)
            if work.kind is WorkKind.DECODE:
                seen[group].append(work.prompt_ids)
            while rollout.work:
                running.complete(group, rollout.work.pop(0))
        running.take_reward()
        while running.reward_work:
            running.complete_reward(running.reward_work.pop(0))
        running.train(0)
    assert seen[0][:2] == [[0, 0, 2, 2], [4, 4, 6, 6]]
    assert seen[1][:2] == [[1, 1, 3, 3], [5, 5, 7, 7]]


def test_deterministic_decode_waits_until_nothing_is_in_flight(job: MakeJob) -> None:
    running = job(deterministic=True, max_version_lag=0, evaluation=None, max_sequences=2)
    running.train(0)
    assert running.take(0).kind is WorkKind.PULL
    assert running.take(0).kind is WorkKind.PREFILL
    running.complete(0, running.rollouts[0].work.pop())
    assert len(running.take(0).rows) == 2
    assert running.take(0).kind is WorkKind.WAIT
    running.complete(0, running.rollouts[0].work.pop())
    assert len(running.take(0).rows) == 2


def test_prefill_comes_first_in_equal_halves_then_samples_of_a_prompt_are_spread(job: MakeJob) -> None:
    running = job(evaluation=None, max_version_lag=0, max_sequences=4)
    running.train(0)
    for group in (0, 1):
        assert running.take(group).kind is WorkKind.PULL
    prefills = [running.take(group) for group in (0, 1)]
    assert [p.rows for p in prefills] == [[0, 1], [2, 3]]
    for group in (0, 1):
        running.complete(group, running.rollouts[group].work.pop())
    decodes = [running.take(group) for group in (0, 1)]
    assert [d.prompt_ids for d in decodes] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert [d.sample_indices for d in decodes] == [[0, 0, 0, 0], [1, 1, 1, 1]]
    assert all(d.kv_keys for d in decodes)


def test_prompts_with_the_same_tokens_are_prefilled_once_d7(job: MakeJob) -> None:
    """Positions 0 and 5 have the same tokens; both batches are admitted under one version."""
    running = job(evaluation=None, max_version_lag=1, max_sequences=64, prefill_prompts=64, rollout_groups=1)
    running.train(0)
    running.take(0)
    prefill = running.take(0)
    assert prefill.rows == [0, 1, 2, 3, 4]
    running.complete(0, running.rollouts[0].work.pop())
    assert len(running.take(0).rows) == 16
    running.complete(0, running.rollouts[0].work.pop())
    assert [k for k in running.store if k.startswith("kv/")] == []


def test_trainer_that_restored_another_step_ends_the_job(job: MakeJob) -> None:
    running = job()
    message = Register(role="trainer", pod="t", pod_uid="other", rank=0, resumed_step=7)
    running.session.register(message, 0.0)
    assert running.session.finishing is Outcome.FAILED


def test_lost_trainer_ends_the_job_with_its_words_as_cause_rl38(job: MakeJob) -> None:
    running = job()
    running.run(until=lambda: running.session.step == 1)
    running.session.goodbye(running.trainers[0], Goodbye(error="CUDA out of memory"), running.now)
    assert running.session.finishing is Outcome.FAILED
    assert running.session.cause.role == "trainer"
    assert "CUDA out of memory" in running.session.cause.message
    assert running.take(0).kind is WorkKind.STOP


def test_invalid_input_seen_by_any_worker_ends_the_job_as_such(job: MakeJob) -> None:
    running = job()
    running.session.goodbye(running.rewarder, Goodbye(error="reward: bad", invalid_input=True), 0.0)
    assert running.session.finishing is Outcome.INVALID_INPUT
    assert running.session.cause.message == "reward: bad"


def test_rollout_that_ends_with_an_error_is_replaced_and_the_job_goes_on_rl39(job: MakeJob) -> None:
    running = job()
    running.run(until=lambda: running.session.step == 1)
    running.session.goodbye(running.rollouts[0].worker, Goodbye(error="engine broke"), running.now)
    running.rollouts[0] = type(running.rollouts[0])(running.join("rollout", 0))
    assert running.run().session.finishing is Outcome.STEPS_DONE


def test_reward_that_is_no_number_is_the_users_mistake(job: MakeJob) -> None:
    running = job(evaluation=None)
    running.train(0)
    while not running.reward_work:
        running.now += 0.1
        for group, rollout in enumerate(running.rollouts):
            running.take(group)
            while rollout.work:
                running.complete(group, rollout.work.pop(0))
        running.take_reward()
    work = running.reward_work.pop()
    bad = CompleteReward(
        rows=work.rows[:1], attempts=work.attempts[:1], rewards=[float("nan")], exact=[False], responses=["x"]
    )
    with pytest.raises(InvalidInputError, match=r"spec.reward: nan is what row \d+ scored"):
        running.session.complete_reward(bad, running.now)


def test_silent_workers_are_lost_after_three_heartbeats(job: MakeJob) -> None:
    running = job()
    running.now = 9.5
    for worker in (*running.trainers, running.rewarder):
        worker.last_seen = running.now
    running.session.tick(running.now)
    assert [w.role for w in running.session.registry] == ["trainer", "reward"]


def test_a_worker_that_stays_silent_is_reported_until_its_rank_is_back(job: MakeJob) -> None:
    running = job()
    silent = running.rewarder
    running.now = 31.0
    for worker in running.session.registry:
        if worker is not silent:
            worker.last_seen = running.now
    running.session.tick(running.now)
    assert report(running.session, 1).silent == [silent.pod]
    message = Register(role="reward", pod="again", pod_uid="u9", rank=silent.rank)
    running.session.register(message, running.now)
    running.session.tick(running.now)
    assert report(running.session, 2).silent == []


def test_ranks_nobody_registers_for_are_missed_after_the_start_up_time(job: MakeJob) -> None:
    running = job(reward_workers=2, startup_s=100.0)

    def missed(now: float) -> list[tuple[str, int]]:
        running.now = now
        for worker in running.session.registry:
            worker.last_seen = now
        running.session.tick(now)
        return [(a.role, a.rank) for a in report(running.session, 1).absent]

    assert missed(1.0) == []
    assert missed(100.0) == []
    assert missed(101.5) == [("reward", 1)]
    running.session.goodbye(running.rewarder, Goodbye(), running.now)
    assert missed(150.0) == [("reward", 1)], "one that left has its time to come back"
    assert missed(202.0) == [("reward", 0), ("reward", 1)]
    running.join("reward", 1)
    assert missed(203.0) == [("reward", 0)]


def test_a_goodbye_is_not_silence(job: MakeJob) -> None:
    running = job()
    running.session.goodbye(running.rewarder, Goodbye(), running.now)
    running.now = 31.0
    for worker in running.session.registry:
        worker.last_seen = running.now
    running.session.tick(running.now)
    assert report(running.session, 1).silent == []


def test_stopped_only_when_everybody_has_gone(job: MakeJob) -> None:
    done = job().run()
    assert not done.session.stopped
    for worker in list(done.session.registry):
        done.session.goodbye(worker, Goodbye(), done.now)
    assert done.session.stopped
    assert done.session.finishing is Outcome.STEPS_DONE, "saying goodbye after the end is no failure"


def test_the_logprob_gap_is_the_largest_of_all_steps_and_absent_until_one_was_measured(job: MakeJob) -> None:
    running = job(steps=4, evaluation=None)
    running.gaps = {2: 3e-6, 3: 1e-6}
    running.run(until=lambda: running.session.step == 1)
    assert "logprobGap" not in report(running.session, 1).to_wire()
    assert report(running.run().session, 1).logprob_gap == 3e-6


def test_report_fits_its_limit_and_carries_the_figures(job: MakeJob) -> None:
    done = job().run()
    final = report(done.session, 9)
    assert final.outcome is Outcome.STEPS_DONE
    assert (final.step, final.total_steps, final.policy_version) == (4, 4, 4)
    assert final.queue.samples == 32
    assert final.queue.padded_bytes == 32 * ((2 + 3) * 4 + 3 * 4 + 8)
    assert final.kv.misses == 0
    assert final.kv.hits >= 32
    assert final.weights.publishes == 5
    assert final.weights.pulls >= 8
    assert len(final.model_dump_json().encode()) < 16 * 1024
