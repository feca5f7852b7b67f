"""Drain, crash and resume: each prompt is trained once along the lineage, versions are never issued twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rljob_core.api.report import Outcome
from rljob_core.errors import ProtocolVersionError
from rljob_core.journal import JournalError, Replay, lineage_prompts, replay, start_from
from rljob_core.session.reporting import report

MakeJob = Callable[..., Any]


def versions(journal: bytes) -> list[int]:
    records = [json.loads(line) for line in journal.splitlines()]
    return [r["version"] for r in records if r["kind"] == "version"]


def test_drain_checkpoints_at_the_step_border_and_stops(job: MakeJob) -> None:
    running = job(steps=10)
    running.run(until=lambda: running.session.step == 3)
    drained = running.drain().run()
    assert drained.session.finishing is Outcome.DRAINED
    assert drained.checkpoint[0] == drained.session.step


def test_drain_before_anything_is_trained_stops_at_once(job: MakeJob) -> None:
    running = job()
    assert running.drain().run().checkpoint is None


def test_drain_gives_up_at_its_deadline(job: MakeJob) -> None:
    running = job(steps=10)
    running.run(until=lambda: running.session.step == 3)
    running.drain()
    running.now += 2000
    running.beat()
    running.session.tick(running.now)
    assert running.session.stopping
    assert "deadline" in running.session.message


def test_resume_after_a_drain_trains_each_prompt_once(job: MakeJob) -> None:
    running = job(steps=6)
    running.run(until=lambda: running.session.step == 3)
    done = running.drain().run().resume().run()
    assert lineage_prompts(replay(done.journal)) == list(range(24))


@pytest.mark.parametrize("crash_at", [1, 2, 3, 5])
def test_resume_after_a_crash_rolls_back_to_the_checkpoint_and_goes_on(job: MakeJob, crash_at: int) -> None:
    """The checkpoint is every second step; versions go on from the highest ever issued."""
    running = job(steps=6)
    running.run(until=lambda: running.session.step == crash_at)
    resumed = running.resume(torn=b'{"kind":"ver')
    assert resumed.session.step == crash_at // 2 * 2
    assert report(resumed.session, 1).resumed_step == (crash_at // 2 * 2 or None)
    done = resumed.run()
    assert lineage_prompts(replay(done.journal)) == list(range(24))
    issued = versions(done.journal)
    assert issued == sorted(set(issued))
    assert max(done.lags) <= 1


def test_resume_of_a_finished_job_evaluates_and_ends_without_training(job: MakeJob) -> None:
    done = job().run()
    again = done.resume().run()
    assert again.session.finishing is Outcome.STEPS_DONE
    assert again.steps == []
    assert len(again.evaluations) == 1


@pytest.mark.parametrize("drained", [False, True])
def test_figures_of_the_newest_step_are_not_empty_after_a_resume(job: MakeJob, drained: bool) -> None:
    """Also where nothing is left to train: a job that was killed between its last checkpoint and its end."""
    running = job(steps=2)
    running.reward = 0.25
    running.run(until=lambda: running.checkpoint is not None)
    assert running.checkpoint[0] == running.session.step == 2
    before = report((running.drain().run() if drained else running).session, 1)
    after = report(running.resume().session, 1)
    assert before.reward_mean == after.reward_mean == 0.25
    assert (after.lag_oldest, after.response_tokens_mean) == (before.lag_oldest, 3.0)
    again = running.resume().run()
    assert again.steps == []
    assert report(again.session, 1).reward_mean == 0.25


def test_the_newest_evaluation_outlives_a_drain(job: MakeJob) -> None:
    running = job(steps=9)
    running.run(until=lambda: running.session.evaluations.last is not None)
    resumed = running.drain().run().resume()
    assert report(resumed.session, 1).eval_step == 2


@pytest.mark.parametrize("drained", [False, True])
def test_an_evaluation_that_was_due_at_the_checkpoint_runs_after_the_resume(job: MakeJob, drained: bool) -> None:
    running = job(steps=6)
    running.run(until=lambda: running.session.trainers.checkpoint_pending == 2 or running.checkpoint is not None)
    if drained:
        running = running.drain().run()
    assert running.session.step == 2
    assert running.evaluations == []
    done = running.resume().run()
    assert [e.metrics["step"] for e in done.evaluations] == [2, 4, 6]


def test_an_evaluation_that_is_in_the_checkpoint_is_not_repeated(job: MakeJob) -> None:
    running = job(steps=6)
    running.run(until=lambda: running.session.evaluations.last is not None)
    drained = running.drain().run()
    done = drained.resume().run()
    assert drained.evaluations[-1].metrics["step"] == 2
    assert [e.metrics["step"] for e in done.evaluations] == [4, 6]


def test_the_first_token_is_that_of_the_run_not_of_the_last_start(job: MakeJob) -> None:
    running = job(steps=6)
    running.now = 100.0
    running.beat()
    running.run(until=lambda: running.session.step == 1)
    first = report(running.session, 1).first_token_at
    assert 100.0 < first < running.now
    crashed = running.resume()
    assert crashed.checkpoint is None, "not from a checkpoint"
    assert crashed.session.sampling.first_token_at is None
    crashed.now = 900.0
    crashed.beat()
    done = crashed.run()
    assert report(done.session, 1).first_token_at == first
    assert done.session.sampling.first_token_at > 900.0
    assert [json.loads(line)["kind"] for line in done.journal.splitlines()].count("first_token") == 1
    log = replay(done.journal)
    begins = [start_from(log, step=0, version=-1, state={}, job_started_at=at).first_token_at for at in (99.0, 500.0)]
    assert begins == [first, None], "a token before the job began was another job's"


def test_no_rollout_is_repeated_on_resume_beyond_what_was_not_trained_rl49(job: MakeJob) -> None:
    running = job(steps=6, evaluation=None)
    running.run(until=lambda: running.session.step == 4)
    resumed = running.resume()
    resumed.train(0)
    resumed.take(0)
    assert min(resumed.take(0).rows) == 16


def test_state_of_a_checkpoint_names_what_is_in_flight_rl48(job: MakeJob) -> None:
    running = job(steps=6, max_version_lag=2, evaluation=None)
    running.run(until=lambda: running.checkpoint is not None)
    step, version, state = running.checkpoint
    assert (step, version, state["next_prompt"]) == (2, 2, 8)
    assert state["in_flight"] == [[8, 12], [12, 16]]
    assert state["totals"]["tokens_generated"] > 0


@pytest.mark.parametrize("major", [None, 2])
def test_a_checkpoint_of_another_format_is_refused(job: MakeJob, major: int | None) -> None:
    running = job(steps=6).run()
    step, version, state = running.checkpoint
    assert state["format_major"] == 1
    running.checkpoint = (step, version, state | {"format_major": major})
    with pytest.raises(ProtocolVersionError, match=f"step 6: format_major {major} is not supported; this version"):
        running.resume()


def test_totals_go_on_after_a_resume(job: MakeJob) -> None:
    running = job(steps=6, evaluation=None)
    running.run(until=lambda: running.session.step == 3)
    resumed = running.drain().run().resume()
    assert resumed.session.tokens_at_start >= 3 * 8 * 3
    assert resumed.run().session.sampling.totals.queue.samples >= 48


def test_a_checkpoint_counts_the_batch_of_its_own_step(job: MakeJob) -> None:
    running = job(steps=6, max_version_lag=2, evaluation=None, max_sequences=64)
    running.run(until=lambda: running.checkpoint is not None)
    before, after = running.session.sampling.totals, running.resume().session.sampling.totals
    assert running.checkpoint[0] == running.session.step == 2
    assert after.queue.padded_bytes == before.queue.padded_bytes > 0
    assert after.max_version_lag_seen == before.max_version_lag_seen == max(running.lags) > 0


def test_checkpoint_whose_step_had_not_reached_the_journal_counts_as_trained() -> None:
    start = start_from(Replay(), step=2, version=2, state={"format_major": 1, "next_prompt": 8})
    log = Replay()
    for record in start.records:
        log.apply(record)
    assert lineage_prompts(log) == list(range(8))
    assert (start.highest_version, start.next_prompt) == (2, 8)


@pytest.mark.parametrize("known", [0, 1, 2])
def test_steps_that_only_the_checkpoint_knows_share_its_prompts(known: int) -> None:
    """Also when they were not all of one size: 3 prompts a step first, then 5."""
    log = Replay()
    for step, ids in ((1, range(3)), (2, range(3, 8)))[:known]:
        log.apply({"kind": "trained", "step": step, "first_prompt": ids.start, "prompts": len(ids)})
    for record in start_from(log, step=4, version=4, state={"format_major": 1, "next_prompt": 18}).records:
        log.apply(record)
    assert log.last_step == 4
    assert lineage_prompts(log) == list(range(18))


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("sizes", [(4, 2), (2, 5), (4, 8, 3)])
def test_a_job_made_again_with_steps_of_another_size_trains_each_prompt_once(
    job: MakeJob, sizes: tuple[int, ...], drained: bool
) -> None:
    running = job(steps=9, prompts_per_step=sizes[0])
    for size in sizes[1:]:
        session = running.session
        running.run(until=partial(lambda session, steps: session.step == steps, session, session.step + 3))
        if drained:
            running = running.drain().run()
        running = running.resume(prompts_per_step=size)
    done = running.run()
    trained = lineage_prompts(replay(done.journal))
    assert trained == list(range(len(trained)))
    assert {len(ids) for ids in replay(done.journal).trained.values()} == set(sizes)


def test_a_bad_line_in_the_middle_of_the_journal_stops_the_start() -> None:
    with pytest.raises(JournalError, match="line 2 cannot be read"):
        replay(b'{"kind":"version","version":1}\n{"kind":"ver\n{"kind":"version","version":3}\n')


def test_a_torn_last_line_is_left_out() -> None:
    log = replay(b'{"kind":"version","version":1}\n{"kind":"version","vers')
    assert (log.highest_version, log.whole_bytes) == (1, 31)
