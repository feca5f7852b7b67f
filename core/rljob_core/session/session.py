"""The state machine of a job, seen from outside: events in, answers and effects out.

No sockets, no clock, no files: the coordinator process is a thin shell around one Session, and tests and the
simulator drive the same class.
"""

from __future__ import annotations

from typing import Any

from rljob_core.api.directive import Action, Directive
from rljob_core.api.messages import (
    CheckpointDone,
    CompletePrefill,
    CompleteReward,
    CompleteRollout,
    Goodbye,
    Heartbeat,
    Published,
    Pulled,
    Register,
    RewardWork,
    RolloutWork,
    StepDone,
    TrainCommand,
    TrainWork,
    WorkKind,
)
from rljob_core.api.report import Absent, Outcome
from rljob_core.names import Role
from rljob_core.session.flow import Flow
from rljob_core.session.records import (
    Batch,
    Journalled,
    Noticed,
    StepLogged,
)
from rljob_core.session.sampling import Consumer
from rljob_core.session.training import Command
from rljob_core.session.workers import Worker

LOGGED_SAMPLES = 8


class Session(Flow):
    """One run of a job. Events may raise InvalidInputError: end the job with `fail` then.

    The shell calls one method an event, then does what `take_effects` says, then answers.
    """

    # Workers come and go.

    def register(self, message: Register, now: float) -> Worker:
        worker, replaced = self.registry.register(message, now)
        if replaced is not None:
            self._released(replaced)
        if worker.role is Role.TRAINER and not self.stopping:
            self._trainer_registered(worker, message)
        self._advance(now)
        return worker

    def _trainer_registered(self, worker: Worker, message: Register) -> None:
        if message.resumed_step != self.resumed_step:
            self.fail(
                f"trainer rank {worker.rank} restored step {message.resumed_step}, the coordinator step"
                f" {self.resumed_step}: both must see the same checkpoint directory",
                worker,
            )
        elif worker.rank not in range(self.settings.trainer_ranks):
            self.fail(f"trainer rank {worker.rank} is outside a world of {self.settings.trainer_ranks}", worker)
        else:
            self.trainers.present.add(worker.rank)

    def heartbeat(self, worker: Worker, message: Heartbeat, now: float) -> None:
        worker.last_seen = now
        self.sampling.renew(worker.worker_id, now)
        self.figures.add_spans(str(worker.role), message.spans)

    def goodbye(self, worker: Worker, message: Goodbye, now: float) -> None:
        """A worker ends. An error of a trainer, and the user's mistakes wherever seen, end the job."""
        if message.invalid_input:
            self.fail(message.error, worker, outcome=Outcome.INVALID_INPUT)
        self._gone(worker.worker_id, message.error or "it ended", now)

    def lost(self, worker_id: int, why: str, now: float) -> None:
        """A worker is gone without a word. See `_gone`."""
        worker = self._gone(worker_id, why, now)
        if worker is not None:
            self.registry.miss(worker)

    def _gone(self, worker_id: int, why: str, now: float) -> Worker | None:
        """Its leases return. Without one of its ranks a trainer cannot go on. None: it was gone already."""
        worker = self.registry.remove(worker_id)
        if worker is not None:
            self._released(worker, why)
            self._advance(now)
        return worker

    def _released(self, worker: Worker, why: str = "it was replaced") -> None:
        self.sampling.release(worker.worker_id)
        self._effects.append(Noticed(message=f"{worker.role} rank {worker.rank} ({worker.pod}) is gone: {why}"))
        if worker.role is Role.TRAINER:
            self.fail(f"trainer rank {worker.rank} is lost: {why}", worker)

    # Rollout groups and reward workers.

    def take_rollout(self, worker: Worker, free: int, in_flight: int, version: int, now: float) -> RolloutWork:
        """The next thing a group shall do; nothing but a pull while its weights are not those that serve."""
        serving = self.sampling.serving
        if self.stopping:
            return RolloutWork(kind=WorkKind.STOP)
        worker.version = version
        if serving < 0:
            return RolloutWork(kind=WorkKind.WAIT)
        if version != serving:
            if in_flight:
                return RolloutWork(kind=WorkKind.WAIT)
            worker.pulling = serving
            return RolloutWork(kind=WorkKind.PULL, version=serving)
        worker.pulling = None
        if self.finishing is Outcome.DRAINED:
            return RolloutWork(kind=WorkKind.WAIT)
        peers = [
            w.worker_id
            for w in self.registry.of(Role.ROLLOUT)
            if w is worker or (w.version == serving or w.pulling == serving)
        ]
        who = Consumer(worker=worker.worker_id, group=worker.group, peers=peers)
        training = serving == self.version and self.finishing is Outcome.NONE
        work = self.sampling.take(who, free, in_flight, now, training=training)
        self._advance(now)
        return work or RolloutWork(kind=WorkKind.WAIT)

    def pulled(self, worker: Worker, message: Pulled, now: float) -> None:
        worker.version, worker.pulling = message.version, None
        self.figures.pulled(message.version, message.bytes, message.seconds)
        self._advance(now)

    def complete_prefill(self, message: CompletePrefill) -> None:
        self.sampling.complete_prefill(message)

    def complete_rollout(self, message: CompleteRollout) -> list[bool]:
        totals = self.sampling.totals
        known = totals.first_token_at
        accepted = self.sampling.complete_rollout(message)
        if totals.first_token_at != known:
            self._effects.append(Journalled(record={"kind": "first_token", "at": totals.first_token_at}))
        return accepted

    def take_reward(self, worker: Worker, room: int, now: float) -> RewardWork:
        if self.stopping:
            return RewardWork(kind=WorkKind.STOP)
        peers = [w.worker_id for w in self.registry.of(Role.REWARD)]
        work = self.sampling.take_reward(Consumer(worker=worker.worker_id, peers=peers), room, now)
        return work or RewardWork(kind=WorkKind.WAIT)

    def complete_reward(self, message: CompleteReward, now: float) -> list[bool]:
        """Without its samples the attempt cannot go on: the next one does, from the last checkpoint."""
        accepted = self.sampling.complete_reward(message)
        lost = self.sampling.lost(message)
        if lost:
            self.fail(lost)
        self._advance(now)
        return accepted

    # Trainer ranks.

    def take_train(self, worker: Worker, now: float) -> TrainWork:
        if self.finishing in (Outcome.FAILED, Outcome.INVALID_INPUT):
            return TrainWork(command=TrainCommand.STOP, step=self.step, unfinished=True)
        work = self.trainers.take(worker.rank)
        if work is None:
            return TrainWork(command=TrainCommand.WAIT, step=self.step)
        unfinished = work.command is TrainCommand.STOP and self.finishing is Outcome.DRAINED
        return work.model_copy(update={"unfinished": unfinished})

    def step_done(self, worker: Worker, message: StepDone, now: float) -> None:
        self._completed(self.trainers.step_done(worker.rank, message), now)

    def published(self, worker: Worker, message: Published, now: float) -> None:
        self._completed(self.trainers.published(worker.rank, message), now)

    def checkpoint_done(self, message: CheckpointDone, now: float) -> None:
        self.last_checkpoint_step = message.step
        if self.trainers.checkpoint_pending == message.step:
            self.trainers.checkpoint_pending = None
        self._effects.append(Journalled(record={"kind": "checkpoint", "step": message.step}))
        self._advance(now)

    def _completed(self, command: Command | None, now: float) -> None:
        """All ranks published: the version is current; a TRAIN also ends its step."""
        if command is None:
            return
        consumed_at, self.version = self.version, command.version
        self.figures.published(command)
        if command.batch is not None:
            self._trained(command, command.batch, consumed_at, now)
        self._advance(now)

    def _trained(self, command: Command, batch: Batch, consumed_at: int, now: float) -> None:
        self.step = command.step
        first, count = batch.prompts[0].prompt_id, len(batch.prompts)
        record = {"kind": "trained", "step": self.step, "version": self.version}
        self._effects.append(Journalled(record=record | {"first_prompt": first, "prompts": count}))
        metrics = self.figures.trained(command, batch, consumed_at, now)
        self._effects.append(StepLogged(metrics=metrics, samples=self._samples_to_log(batch, consumed_at)))
        self.sampling.retire(batch)
        del self.batches[batch.index]
        self.evaluations.step_done(self.step)

    def _samples_to_log(self, batch: Batch, version: int) -> tuple[dict[str, Any], ...]:
        if self.step % self.settings.log_samples_every and self.step != 1:
            return ()
        texts = {p.prompt_id: p for p in batch.prompts}
        return tuple(
            {
                "step": self.step,
                "prompt_id": s.prompt_id,
                "sample": s.index,
                "prompt": texts[s.prompt_id].text,
                "response": s.response,
                "answer": texts[s.prompt_id].answer,
                "reward": s.reward,
                "version": s.first_version,
                "trained_at_version": version,
            }
            for s in batch.ordered()[:LOGGED_SAMPLES]
        )

    # The operator and the clock.

    def direct(self, directive: Directive, now: float) -> bool:
        """Apply a directive; False for one that is old or known already (it changes nothing)."""
        if directive.revision <= self.applied_revision:
            return False
        self.applied_revision = directive.revision
        self.max_version_lag = max(0, min(directive.stale_sync.max_version_lag, self.settings.max_version_lag))
        if directive.action is Action.DRAIN:
            self.drain(now + directive.drain_deadline_seconds, now)
        self._advance(now)
        return True

    def drain(self, deadline: float, now: float) -> None:
        """Finish the step under way, checkpoint, stop; at the deadline stop anyway."""
        if self.stopping:
            return
        self._drain_deadline = min(deadline, self._drain_deadline or deadline)
        self.finishing, self.message = Outcome.DRAINED, "drained as asked"
        self.evaluations.abandon()
        self._advance(now)

    def tick(self, now: float) -> None:
        """Leases run out, workers fall silent, deadlines pass. Call about once a second."""
        for worker in self.registry.overdue(now):
            self.lost(worker.worker_id, f"no heartbeat for {now - worker.last_seen:.0f} s", now)
        self.silent = self.registry.silent(now)
        self.absent = self._absent(now)
        self.sampling.expire(now)
        if self._drain_deadline is not None and now >= self._drain_deadline and not self.stopping:
            self.message = "drained without a checkpoint of the last step: the deadline passed"
            self._stop()
        self._advance(now)

    def _absent(self, now: float) -> list[Absent]:
        if self._started_at is None:
            self._started_at = now
        if self.stopping or now - self._started_at < self.settings.startup_s:
            return []
        before = now - self.settings.startup_s
        return [
            Absent(role=str(role), rank=rank)
            for role in (Role.TRAINER, Role.ROLLOUT, Role.REWARD)
            for rank in self.registry.absent(role, self.settings.wanted(role), before, self._started_at)
        ]
