"""One training step of one rank: minibatches, forward and backward in bounded micro-batches, update, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rljob_core.api.algorithm import Algorithm
from rljob_workers.model import Policy, RoutingCounts
from rljob_workers.trainer import losses
from rljob_workers.trainer.batch import Batch
from rljob_workers.trainer.gap import Gap, WeightHistory
from rljob_workers.trainer.host import Host
from rljob_workers.trainer.objective import Normalizer, Sum, grpo, trained_tokens
from rljob_workers.trainer.optimizer import Optimizer, learning_rate

MICROBATCH_TOKENS = 16384
"""Positions of one forward and backward pass; bounds activation memory, changes no result but rounding."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Metrics by name and expert load [MoE layer][expert], both over all ranks."""

    metrics: dict[str, float]
    expert_counts: list[list[int]]


class Learner:
    """The policy of one rank and what updates it.

    build: makes an empty policy of the same shard (for the reference and for older versions).
    """

    def __init__(
        self,
        policy: Policy,
        build: Callable[[], Policy],
        algorithm: Algorithm,
        *,
        temperature: float,
        max_version_lag: int,
        host: Host,
    ) -> None:
        self.policy, self.algorithm, self.host = policy, algorithm, host
        self.temperature = temperature
        self.optimizer = Optimizer(policy, algorithm.optimizer)
        self.history = WeightHistory(max_version_lag, build, host)
        self.device = next(policy.parameters()).device
        self._build = build
        self._reference: Policy | None = None

    def keep_reference(self, initial: Mapping[str, Tensor]) -> None:
        """Freeze the initial policy (whole tensors) for the KL term; nothing is kept when there is none."""
        if self.algorithm.kl_coefficient:
            self._reference = self._build().requires_grad_(False)
            self._reference.load_tensors(initial)

    @torch.no_grad()
    def _update_reference(self, step: int) -> None:
        """Every `referenceUpdateSteps` the policy becomes the reference: iterative GRPO, arXiv 2402.03300."""
        every = self.algorithm.reference_update_steps
        if self._reference is not None and every and step > 0 and step % every == 0:
            self.load_reference(self.policy.local_tensors())

    def reference_tensors(self) -> dict[str, Tensor]:
        """This rank's shard of a reference that changes; empty when none is kept or the initial policy stays it."""
        if self._reference is None or not self.algorithm.reference_update_steps:
            return {}
        return dict(self._reference.local_tensors())

    @torch.no_grad()
    def load_reference(self, local: Mapping[str, Tensor]) -> None:
        """Fill the reference from this rank's shard of another policy."""
        assert self._reference is not None, "no KL term, no reference"
        for name, tensor in self._reference.local_tensors().items():
            tensor.copy_(local[name])

    def train(self, minibatches: Sequence[Batch], step: int, version: int) -> StepResult:
        """Train step `step` (counted from 0) on this rank's rows, under weights `version`.

        All ranks call together, with the same number of minibatches and positions. One optimizer update a minibatch.
        """
        self._update_reference(step)
        sums = torch.zeros(len(Sum), dtype=torch.float64, device=self.device)
        counts, gap = RoutingCounts(self.policy.config, self.device), Gap(self.device)
        normalizers = self._normalizers(minibatches)
        minibatches = [batch.to(self.device) for batch in minibatches]
        references = self._reference_logprobs(minibatches)
        norms = []
        for number, (batch, normalizer) in enumerate(zip(minibatches, normalizers, strict=True)):
            if number == 0:
                self._older_gap(batch, gap)
                self.history.remember(version, self.policy)
            self.optimizer.gradients.zero()
            for at in _micro(len(batch), batch.inputs_BT.shape[1]):
                reference_BT = references[number][at] if references else None
                rows = batch.rows(at)
                logits_BTV = self.policy(rows.inputs_BT, counts.over(rows.fed_BT))
                logprobs_BTV = losses.vocabulary_logprobs(logits_BTV, self.temperature)
                if number == 0:  # before the first update: rows of this very version
                    gap.add(logprobs_BTV, rows, rows.versions_B == version)
                loss = grpo(logprobs_BTV, reference_BT, rows, self.algorithm, normalizer, sums)
                loss.backward()  # type: ignore[no-untyped-call]
            norms.append(self.optimizer.update(step))
        metrics = self._metrics(self.host.sum_(sums.cpu()), len(minibatches))
        metrics |= gap.metrics(self.host) | {
            "grad_norm": sum(norms) / len(norms),
            "learning_rate": learning_rate(self.algorithm.optimizer, step),
        }
        return StepResult(metrics=metrics, expert_counts=self.host.sum_(counts.counts_LE.cpu()).tolist())

    def _normalizers(self, minibatches: Sequence[Batch]) -> list[Normalizer]:
        """Global counts of every minibatch, in one exchange."""
        masks = [trained_tokens(batch) for batch in minibatches]
        local = torch.tensor([[m.sum(), m.any(dim=1).sum()] for m in masks], dtype=torch.float64)
        return [Normalizer(tokens=t, sequences=s) for t, s in self.host.sum_(local).tolist()]

    @torch.no_grad()
    def _reference_logprobs(self, minibatches: Sequence[Batch]) -> tuple[Tensor, ...]:
        """[B, T] of every minibatch, from passes over all of them at once; nothing without a reference."""
        if self._reference is None:
            return ()
        inputs_BT = torch.cat([batch.inputs_BT for batch in minibatches])
        targets_BT = torch.cat([batch.targets_BT for batch in minibatches])
        out_BT = []
        for at in _micro(*inputs_BT.shape):
            logprobs_BTV = losses.vocabulary_logprobs(self._reference(inputs_BT[at]), self.temperature)
            out_BT.append(losses.taken_logprobs(logprobs_BTV, targets_BT[at]))
        return torch.split(torch.cat(out_BT), [len(batch) for batch in minibatches])

    @torch.no_grad()
    def _older_gap(self, batch: Batch, gap: Gap) -> None:
        found = self.history.rows_of_an_older_version(batch)
        if found is not None:
            policy, rows, same_B = found
            logprobs_BTV = losses.vocabulary_logprobs(policy(rows.inputs_BT), self.temperature)
            gap.add(logprobs_BTV, rows, same_B)

    def _metrics(self, sums: Tensor, minibatches: int) -> dict[str, float]:
        """Means over trained tokens."""
        total = dict(zip(Sum, sums.tolist(), strict=True))
        tokens = max(total[Sum.TOKENS], 1.0)
        return {
            "loss": total[Sum.LOSS] / minibatches,
            "clip_fraction": total[Sum.CLIPPED] / tokens,
            "importance_ratio_mean": total[Sum.RATIO] / tokens if total[Sum.TOKENS] else 1.0,
            "kl": total[Sum.KL] / tokens,
            "rollout_kl": total[Sum.ROLLOUT_KL] / tokens,
            "entropy": total[Sum.ENTROPY] / tokens,
        }


def _micro(rows: int, tokens: int) -> list[slice]:
    """Rows of each bounded pass."""
    bound = max(1, MICROBATCH_TOKENS // tokens)
    return [slice(low, low + bound) for low in range(0, rows, bound)]
