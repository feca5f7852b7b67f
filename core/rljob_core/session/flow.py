"""What a job does next, given what is done: admission, versions, training, evaluation, checkpoints, the end."""

from __future__ import annotations

from typing import Any

from rljob_core.api.bounded import bounded
from rljob_core.api.messages import TrainCommand
from rljob_core.api.report import Absent, Cause, Outcome
from rljob_core.journal import STATE_MAJOR, Start
from rljob_core.names import Role
from rljob_core.session.evaluation import Evaluations
from rljob_core.session.figures import Figures, LastStep
from rljob_core.session.records import Batch, Discarded, Effect, EvaluationLogged, Journalled, PromptSource
from rljob_core.session.sampling import Sampling
from rljob_core.session.settings import Settings
from rljob_core.session.totals import Totals
from rljob_core.session.training import Command, Trainers
from rljob_core.session.workers import Registry, Worker
from rljob_core.staleness import last_admissible_batch


class Flow:
    """State of one run, from `start` (a checkpoint or nothing) to an outcome.

    step: training steps done. version: of the trainer's weights, -1 before the first publication. highest: last
    version issued; versions are never issued twice.
    """

    def __init__(self, settings: Settings, source: PromptSource, start: Start) -> None:
        self.settings, self._source = settings, source
        self.step, self.version, self.highest = start.step, -1, start.highest_version
        self.resumed_step = start.step if start.step else -1
        self._first_prompt = start.next_prompt - start.step * settings.prompts_per_step
        """Of a batch 0 of the size in force: the batches that are still to come begin right after the last trained."""
        totals = Totals.model_validate(start.state.get("totals", {}))
        totals.first_token_at = start.first_token_at
        self.tokens_at_start = totals.tokens_generated
        self.registry = Registry()
        self.sampling = Sampling(settings=settings, totals=totals)
        self.trainers = Trainers(settings)
        self.evaluations = Evaluations(settings.evaluation, source, start.step, start.state.get("evaluation"))
        self.figures = Figures(totals, settings.minibatches, start.state.get("figures", {}))
        self.batches: dict[int, Batch] = {}
        self.max_version_lag = settings.max_version_lag
        self.last_checkpoint_step: int | None = start.step or None
        self.applied_revision = 0
        self.finishing = Outcome.NONE
        """How the job shall end, once what is under way is over."""
        self.message = ""
        self.cause: Cause | None = None
        self.silent: list[str] = []
        """Pods of rollout and reward workers that have not been heard of for long."""
        self.absent: list[Absent] = []
        """Ranks that nobody has registered for within `settings.startup_s`."""
        self._started_at: float | None = None
        """Time of the first tick."""
        self.stopping = False
        """Everybody is told to stop."""
        self._drain_deadline: float | None = None
        self._effects: list[Effect] = [Journalled(record=record) for record in start.records]

    # What the shell fetches after every event.

    def take_effects(self) -> list[Effect]:
        """What is to be done now, in order; journal records before any answer leaves."""
        effects, self._effects = self._effects, []
        garbage = self.sampling.collect_garbage()
        if garbage:
            effects.append(Discarded(keys=garbage))
        return effects

    @property
    def stopped(self) -> bool:
        """Told to stop, and nobody is left."""
        return self.stopping and not len(self.registry)

    def fail(self, message: str, worker: Worker | None = None, outcome: Outcome = Outcome.FAILED) -> None:
        """End the job now; the first cause stays."""
        if self.stopping:
            return
        if worker is not None:
            self.cause = Cause(role=str(worker.role), pod=worker.pod, rank=worker.rank, message=bounded(message))
        self.finishing, self.message = outcome, bounded(message)
        self._stop()

    def _advance(self, now: float) -> None:
        """What follows from the state: called after every event."""
        if self.stopping:
            return
        for result, batch in self.evaluations.finished():
            self._effects.append(EvaluationLogged(metrics=result.metrics()))
            self.sampling.retire(batch)
        if self.finishing is Outcome.NONE and self.evaluations.target_reached():
            self.finishing, self.message = Outcome.TARGET_REACHED, "evaluation.targetExactMatch is reached"
            self.evaluations.decide()
        if self.finishing is Outcome.NONE and self.step >= self.settings.steps:
            self.finishing, self.message = Outcome.STEPS_DONE, f"all {self.settings.steps} steps are done"
        if not self.trainers.complete and self.finishing is not Outcome.DRAINED:
            return
        self._serve()
        self._admit()
        self._command(now)

    def _serve(self) -> None:
        """Move rollouts to the newest version, unless an evaluation of the older one is still to be handed out."""
        sampling = self.sampling
        if self.version > sampling.serving and not sampling.evaluation.undispatched:
            sampling.serve(self.version)
        if self.evaluations.due and sampling.serving == self.version >= 0:
            sampling.admit(self.evaluations.start(self.version))

    def _admit(self) -> None:
        """Hand out batches as far ahead as the lag bound allows."""
        if self.finishing is not Outcome.NONE or self.version < 0:
            return
        last = last_admissible_batch(
            step=self.step,
            version=self.version,
            serving=self.sampling.serving,
            max_version_lag=self.max_version_lag,
        )
        for index in range(self.step, min(last, self.settings.steps - 1) + 1):
            if index not in self.batches:
                prompts = [self._source.training(i) for i in self._prompts_of(index)]
                batch = Batch(index=index, prompts=prompts, unscored=len(prompts) * self.settings.group_size)
                self.batches[index] = batch
                self.sampling.admit(batch)

    def _prompts_of(self, batch: int) -> range:
        size = self.settings.prompts_per_step
        first = self._first_prompt + batch * size
        return range(first, first + size)

    def _command(self, now: float) -> None:
        """Give the trainers their next command when they have none."""
        if self.trainers.current is not None:
            return
        if self.version < 0:
            if self.finishing is Outcome.DRAINED:
                self._stop()
            else:
                self.trainers.issue(
                    Command(kind=TrainCommand.PUBLISH, step=self.step, version=self._issue_version(), issued_at=now)
                )
        elif self.finishing is Outcome.NONE:
            self._train(now)
        else:
            self._finish(now)

    def _train(self, now: float) -> None:
        batch = self.batches.get(self.step)
        if batch is None or not batch.scored or not self._may_publish():
            return
        step, settings = self.step + 1, self.settings
        version = self._issue_version()
        known = self.figures.consumed(batch, self.version)
        checkpoint = step % settings.checkpoint_every == 0 or step == settings.steps
        command = Command(
            kind=TrainCommand.TRAIN,
            step=step,
            version=version,
            batch=batch,
            checkpoint_after=checkpoint,
            state=self._state(step, known) if checkpoint else {},
            issued_at=now,
        )
        self.trainers.issue(command)

    def _may_publish(self) -> bool:
        """The store keeps two versions: the next one pushes out what nobody may need any more."""
        behind = any(w.pulling is not None and w.pulling < self.version for w in self.registry.of(Role.ROLLOUT))
        return self.sampling.serving == self.version and not self.evaluations.due and not behind

    def _finish(self, now: float) -> None:
        """Evaluate once more, write the last checkpoint, then stop."""
        if self.finishing is not Outcome.DRAINED and self.evaluations.want_final(self.step, self.version):
            self._serve()
        elif self.trainers.checkpoint_pending is None:
            if self.step and self.last_checkpoint_step != self.step:
                state = self._state(self.step, self.figures.last)
                self.trainers.issue(
                    Command(kind=TrainCommand.CHECKPOINT, step=self.step, version=self.version, state=state)
                )
            else:
                self._stop()

    def _stop(self) -> None:
        self.stopping = True
        self.trainers.issue(Command(kind=TrainCommand.STOP, step=self.step))
        record = {"kind": "end", "outcome": str(self.finishing), "step": self.step}
        self._effects.append(Journalled(record=record))

    def _issue_version(self) -> int:
        """The next policy version, on disk before anybody hears of it."""
        self.highest += 1
        self._effects.append(Journalled(record={"kind": "version", "version": self.highest, "step": self.step}))
        return self.highest

    def _state(self, step: int, last: LastStep) -> dict[str, Any]:
        """The coordinator's part of the checkpoint of `step`, whose figures are `last`; in_flight: prompts admitted but
        not trained by then, for people; a resume issues them again. Step and version are in meta.json."""
        ahead = sorted(index for index in self.batches if index >= step)
        return {
            "format_major": STATE_MAJOR,
            "next_prompt": self._prompts_of(step).start,
            "in_flight": [[self._prompts_of(i).start, self._prompts_of(i).stop] for i in ahead],
            "totals": self.sampling.totals.model_dump(mode="json"),
            "figures": self.figures.state(last),
            "evaluation": self.evaluations.state(),
        }
