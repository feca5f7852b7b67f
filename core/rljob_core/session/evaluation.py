"""Evaluations: held-out prompts decoded under one version, scored, never trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rljob_core.session.records import EVALUATION_BASE, Batch, PromptSource
from rljob_core.session.settings import EvaluationSettings


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """Figures of one evaluation, of the weights after `step` steps."""

    step: int
    version: int
    exact_match: float
    mean_reward: float

    def metrics(self) -> dict[str, float]:
        """Its line of metrics.jsonl."""
        return {
            "step": self.step,
            "version": self.version,
            "eval_exact_match": self.exact_match,
            "eval_mean_reward": self.mean_reward,
        }


@dataclass(frozen=True, kw_only=True)
class _Running:
    step: int
    version: int
    batch: Batch


class Evaluations:
    """When to evaluate, and what came out. One after another, each under the version it was due at."""

    def __init__(
        self,
        settings: EvaluationSettings | None,
        source: PromptSource,
        step: int = 0,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """step, state: of the checkpoint gone on from. An evaluation that was due there and did not come to its end is
        due again."""
        self._settings, self._source = settings, source
        self._started = 0
        self._running: list[_Running] = []
        self._due: int | None = None
        self.last = EvaluationResult(**state) if state else None
        self._decisive: EvaluationResult | None = None
        if step and (self.last is None or self.last.step != step):
            self.step_done(step)

    @property
    def due(self) -> bool:
        return self._due is not None

    @property
    def running(self) -> bool:
        return bool(self._running)

    def step_done(self, step: int) -> None:
        """Note what the cadence asks for after a step."""
        if self._settings is not None and step % self._settings.every_steps == 0:
            self._due = step

    def want_final(self, step: int, version: int) -> bool:
        """Make sure that the last version is evaluated; True while this is not over."""
        if self._settings is None:
            return False
        evaluated = [run.version for run in self._running]
        if self.last is not None:
            evaluated.append(self.last.version)
        if version not in evaluated:
            self._due = step
        return self.due or self.running

    def start(self, version: int) -> Batch:
        """The batch of the evaluation that is due, its rows under numbers of their own. No prompt comes twice."""
        assert self._settings is not None
        assert self._due is not None
        held_out = self._source.held_out
        size = self._settings.prompts if held_out is None else min(self._settings.prompts, held_out)
        prompts = [self._source.evaluation(i) for i in range(size)]
        for i, prompt in enumerate(prompts):
            prompt.prompt_id = EVALUATION_BASE + self._started * size + i
        batch = Batch(index=self._due, prompts=prompts, unscored=len(prompts))
        self._running.append(_Running(step=self._due, version=version, batch=batch))
        self._started, self._due = self._started + 1, None
        return batch

    def finished(self) -> list[tuple[EvaluationResult, Batch]]:
        """Evaluations whose samples are all scored, in order."""
        out = []
        while self._running and self._running[0].batch.scored:
            run = self._running.pop(0)
            samples = run.batch.ordered()
            self.last = EvaluationResult(
                step=run.step,
                version=run.version,
                exact_match=sum(s.exact for s in samples) / len(samples),
                mean_reward=sum(s.reward or 0.0 for s in samples) / len(samples),
            )
            out.append((self.last, run.batch))
        return out

    @property
    def shown(self) -> EvaluationResult | None:
        """The one that ended the job, else the newest."""
        return self._decisive or self.last

    def decide(self) -> None:
        """The newest one ends the job: whatever follows of newer weights does not take its place."""
        self._decisive = self.last

    def state(self) -> dict[str, Any] | None:
        """For a checkpoint."""
        return None if self.last is None else asdict(self.last)

    def target_reached(self) -> bool:
        target = self._settings.target_exact_match if self._settings is not None else None
        return target is not None and self.last is not None and self.last.exact_match >= target

    def abandon(self) -> None:
        """Drain: nothing more is started."""
        self._due = None
