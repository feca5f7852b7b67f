"""A session as a Report."""

from __future__ import annotations

from rljob_core.api.directive import StageName
from rljob_core.api.messages import TableName, TrainCommand
from rljob_core.api.report import SILENT_LIMIT, Outcome, QueueDepth, Report, StageTime, WorkerHealth
from rljob_core.names import Role
from rljob_core.session.flow import Flow


def report(session: Flow, sequence: int, *, dropped_prompts: int = 0) -> Report:
    """One snapshot; the outcome shows once everybody has been told to stop."""
    totals, last, evaluation = session.sampling.totals, session.figures.last, session.evaluations.shown
    return Report(
        sequence=sequence,
        applied_revision=session.applied_revision,
        outcome=session.finishing if session.stopping else Outcome.NONE,
        outcome_message=session.message if session.stopping else "",
        stage=stage(session),
        step=session.step,
        total_steps=session.settings.steps,
        policy_version=max(0, session.version),
        max_version_lag_seen=totals.max_version_lag_seen,
        eval_exact_match=evaluation.exact_match if evaluation else None,
        eval_mean_reward=evaluation.mean_reward if evaluation else None,
        eval_step=evaluation.step if evaluation else None,
        tokens_generated=totals.tokens_generated,
        logprob_gap=totals.logprob_gap,
        first_token_at=totals.first_token_at,
        stages=_stages(session),
        queues=_queues(session),
        workers=_workers(session),
        silent=session.silent[:SILENT_LIMIT],
        absent=session.absent[:SILENT_LIMIT],
        kv=totals.kv,
        queue=totals.queue,
        weights=totals.weights,
        experts=session.figures.experts,
        last_checkpoint_step=session.last_checkpoint_step,
        resumed_step=session.resumed_step if session.resumed_step >= 0 else None,
        dropped_prompts=dropped_prompts,
        reward_timeouts=totals.reward_timeouts,
        cause=session.cause,
        **last.model_dump(),
    )


def stage(session: Flow) -> StageName:
    """What the job is mostly doing now."""
    command, sampling = session.trainers.current, session.sampling
    if command is not None:
        return StageName.TRAIN if command.kind is TrainCommand.TRAIN else StageName.PUBLISH
    if sampling.evaluation.undispatched or (session.evaluations.running and not session.batches):
        return StageName.EVALUATE
    for table, name in (
        (sampling.training.prompts, StageName.PREFILL),
        (sampling.training.samples, StageName.DECODE),
        (sampling.rewards, StageName.REWARD),
    ):
        if len(table):
            return name
    return StageName.IDLE if session.trainers.checkpoint_pending is None else StageName.CHECKPOINT


def _stages(session: Flow) -> list[StageTime]:
    return [
        StageTime(role=role, stage=name, seconds=round(seconds, 3))
        for role, stages in sorted(session.sampling.totals.stage_seconds.items())
        for name, seconds in sorted(stages.items())
    ][:64]


def _queues(session: Flow) -> list[QueueDepth]:
    sampling = session.sampling
    tables = {
        TableName.PROMPT: sampling.training.prompts,
        TableName.ROLLOUT: sampling.training.samples,
        TableName.EVALUATION: sampling.evaluation.samples,
        TableName.REWARD: sampling.rewards,
    }
    depths = [QueueDepth(table=str(n), ready=t.total_ready, leased=t.leased) for n, t in tables.items()]
    scored = sum(s.reward is not None for b in session.batches.values() for s in b.samples.values())
    return [*depths, QueueDepth(table=str(TableName.TRAIN), ready=scored, leased=0)]


def _workers(session: Flow) -> list[WorkerHealth]:
    return [
        WorkerHealth(role=str(r), registered=len(session.registry.of(r)), wanted=session.settings.wanted(r))
        for r in (Role.TRAINER, Role.ROLLOUT, Role.REWARD)
    ]
