"""Running figures of a job: what Report, metrics.jsonl and summary.json are made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from rljob_core.api.base import Document
from rljob_core.api.directive import StageName
from rljob_core.api.messages import Span
from rljob_core.api.report import ExpertCounters
from rljob_core.session.records import Batch
from rljob_core.session.totals import Totals
from rljob_core.session.training import Command
from rljob_core.staleness import lag, updates_behind

RATE_STEPS = 8
"""Steps over which tokens a second are counted: sampling runs ahead of training in bursts."""

TOKEN_BYTES, LOGPROB_BYTES, LENGTHS_BYTES = 4, 4, 8


class LastStep(Document):
    """Figures of the newest trained step."""

    model_config = Document.model_config | {"extra": "ignore"}
    reward_mean: float = 0.0
    lag_newest: int = 0
    lag_oldest: int = 0
    tokens_per_second: float = 0.0
    response_tokens_mean: float = 0.0
    loss: float = 0.0
    grad_norm: float = 0.0
    clip_fraction: float = 0.0
    kl: float = 0.0
    importance_ratio_mean: float = 1.0


class Figures:
    """Counts as things happen. Times are arguments. state: of the checkpoint gone on from, empty without."""

    def __init__(self, totals: Totals, minibatches: int, state: Mapping[str, Any]) -> None:
        self.totals, self._minibatches = totals, minibatches
        self.last = LastStep.model_validate(state.get("last_step", {}))
        self.experts = ExpertCounters.model_validate(state.get("experts", {}))
        self.expert_counts: list[list[int]] = []
        """[MoE layer][expert] routed tokens of the newest step."""
        self._pull_seconds: dict[int, float] = {}
        self._steps: deque[tuple[float, int]] = deque(maxlen=RATE_STEPS)
        """(unix seconds, tokens generated) at the ends of the newest steps."""
        self._tokens_before = totals.tokens_generated

    def state(self, last: LastStep) -> dict[str, Any]:
        """For a checkpoint: what is known of the newest step is not empty after a resume."""
        return {"last_step": last.model_dump(), "experts": self.experts.model_dump()}

    def consumed(self, batch: Batch, consumed_at: int) -> LastStep:
        """A step is about to be trained: count its batch now, so that a checkpoint of the step knows it. `_known`."""
        known = self._known(batch, consumed_at)
        self._pad(batch)
        self.totals.max_version_lag_seen = max(self.totals.max_version_lag_seen, known.lag_oldest)
        return known

    def _known(self, batch: Batch, consumed_at: int) -> LastStep:
        """Before the training: rewards and lags of the step's batch; the rest is still the step's before."""
        samples = batch.ordered()
        responses = [s.response_tokens for s in samples]
        return self.last.model_copy(
            update={
                "reward_mean": sum(s.reward or 0.0 for s in samples) / len(samples),
                "lag_newest": max(lag(consumed_at, s.last_version) for s in samples),
                "lag_oldest": max(lag(consumed_at, s.first_version) for s in samples),
                "response_tokens_mean": sum(responses) / len(responses),
            }
        )

    def add_spans(self, role: str, spans: Sequence[Span]) -> None:
        stages = self.totals.stage_seconds.setdefault(role, {})
        for span in spans:
            stage = StageName(span.stage)
            stages[stage] = stages.get(stage, 0.0) + span.end - span.start

    def published(self, command: Command) -> None:
        """Seconds of a version are those of its slowest rank, and of its slowest pull."""
        weights = self.totals.weights
        self.totals.weights = weights.model_copy(
            update={
                "bytes": weights.bytes + command.publish_bytes,
                "seconds": weights.seconds + command.publish_seconds,
                "publishes": weights.publishes + 1,
            }
        )
        self._pull_seconds = {v: s for v, s in self._pull_seconds.items() if v >= command.version - 2}

    def pulled(self, version: int, size: int, seconds: float) -> None:
        before = self._pull_seconds.get(version, 0.0)
        self._pull_seconds[version] = max(before, seconds)
        weights = self.totals.weights
        self.totals.weights = weights.model_copy(
            update={
                "bytes": weights.bytes + size,
                "seconds": weights.seconds + self._pull_seconds[version] - before,
                "pulls": weights.pulls + 1,
            }
        )

    def trained(self, command: Command, batch: Batch, consumed_at: int, now: float) -> dict[str, float]:
        """One step is over; consumed_at: version it started from. Returns its line of metrics.jsonl."""
        samples, metrics, known = batch.ordered(), command.metrics, self._known(batch, consumed_at)
        rewards = [s.reward or 0.0 for s in samples]
        if "logprob_gap" in metrics:
            self.totals.logprob_gap = max(self.totals.logprob_gap or 0.0, metrics["logprob_gap"])
        seconds = now - (self._steps[-1][0] if self._steps else command.issued_at)
        since, tokens_before = self._steps[0] if self._steps else (command.issued_at, self._tokens_before)
        generated = self.totals.tokens_generated - tokens_before
        self._steps.append((now, self.totals.tokens_generated))
        rate = generated / (now - since) if now > since else 0.0
        from_trainer = {k: v for k, v in metrics.items() if k in _FROM_TRAINER}
        self.last = known.model_copy(update={"tokens_per_second": rate, **from_trainer})
        if command.expert_counts:
            self.expert_counts = command.expert_counts
            self.experts = ExpertCounters(max_over_mean=max_over_mean(command.expert_counts))
        return {
            **metrics,
            **self.last.model_dump(),
            "step": command.step,
            "version": command.version,
            "seconds": seconds,
            "train_seconds": now - command.issued_at,
            "reward_std": (sum((r - known.reward_mean) ** 2 for r in rewards) / len(rewards)) ** 0.5,
            "exact_match": sum(s.exact for s in samples) / len(samples),
            "no_eos_share": sum(s.finish_reason != "eos" for s in samples) / len(samples),
            "response_tokens_max": max(s.response_tokens for s in samples),
            "lag_updates": updates_behind(known.lag_oldest, self._minibatches),
            "experts_max_over_mean": self.experts.max_over_mean,
        }

    def _pad(self, batch: Batch) -> None:
        """Bytes the batch would take as two rectangles (token ids, log-probabilities of responses) and its lengths."""
        samples = batch.samples.values()
        prompt, response = max(s.prompt_tokens for s in samples), max(s.response_tokens for s in samples)
        row = (prompt + response) * TOKEN_BYTES + response * LOGPROB_BYTES + LENGTHS_BYTES
        queue = self.totals.queue
        self.totals.queue = queue.model_copy(update={"padded_bytes": queue.padded_bytes + len(samples) * row})


_FROM_TRAINER = {"loss", "grad_norm", "clip_fraction", "kl", "importance_ratio_mean"}


def max_over_mean(counts: Sequence[Sequence[int]]) -> float:
    """Expert load: per layer max / mean over experts, averaged over the layers that saw tokens (placement.md P5)."""
    ratios = [max(layer) * len(layer) / sum(layer) for layer in counts if sum(layer)]
    return sum(ratios) / len(ratios) if ratios else 0.0
