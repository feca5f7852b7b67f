"""GRPO of one batch: the loss to differentiate and the sums its metrics are made of.

Deviations from the papers are those of `losses`; a masked group (`zeroVariance: Mask`) leaves loss and normaliser.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto

import torch
from torch import Tensor

from rljob_core.api.algorithm import Algorithm, LossReduction
from rljob_workers.trainer import losses
from rljob_workers.trainer.batch import Batch


class Sum(IntEnum):
    """Places in a vector of sums over tokens, added up over micro-batches, minibatches and ranks."""

    LOSS = 0
    TOKENS = auto()
    CLIPPED = auto()
    RATIO = auto()
    KL = auto()
    ROLLOUT_KL = auto()
    ENTROPY = auto()


@dataclass(frozen=True, kw_only=True)
class Normalizer:
    """Response tokens and sequences of one minibatch that take part in the loss, over all ranks."""

    tokens: float
    sequences: float


def trained_tokens(batch: Batch) -> Tensor:
    """[B, T] bool: positions that take part in the loss."""
    return batch.response_BT & batch.trained_B.unsqueeze(1)


def token_weights(mask_BT: Tensor, reduction: LossReduction, normalizer: Normalizer) -> Tensor:
    """[B, T] weight of each token in the minibatch's loss."""
    if reduction is LossReduction.TOKEN:
        return losses.token_mean_weights(mask_BT, normalizer.tokens)
    return losses.sequence_mean_weights(mask_BT, normalizer.sequences)


def grpo(
    logprobs_BTV: Tensor,
    reference_BT: Tensor | None,
    batch: Batch,
    algorithm: Algorithm,
    normalizer: Normalizer,
    sums: Tensor,
) -> Tensor:
    """[] this batch's share of the minibatch's loss; adds to `sums` [len(Sum)], float64.

    reference_BT: log-probabilities of the targets under the reference policy, when there is a KL term.
    """
    mask_BT = trained_tokens(batch)
    weights_BT = token_weights(mask_BT, algorithm.loss_reduction, normalizer)
    logprobs_BT = losses.masked(losses.taken_logprobs(logprobs_BTV, batch.targets_BT), mask_BT)
    rollout_BT = losses.masked(batch.rollout_logprobs_BT, mask_BT)
    ratio_BT = losses.importance_ratio(logprobs_BT, rollout_BT)
    clip = (algorithm.clip_low, algorithm.clip_high)
    loss_BT = losses.clipped_surrogate(ratio_BT, batch.advantages_B, *clip)
    kl_BT = torch.zeros_like(loss_BT)
    if reference_BT is not None:
        kl_BT = losses.k3_kl(logprobs_BT, losses.masked(reference_BT, mask_BT))
        loss_BT = loss_BT + algorithm.kl_coefficient * kl_BT
    loss = (loss_BT * weights_BT).sum()
    with torch.no_grad():
        clipped_BT = losses.clipped_tokens(ratio_BT, batch.advantages_B, *clip)
        by_place: dict[Sum, Tensor] = {
            Sum.LOSS: loss,
            Sum.TOKENS: mask_BT.sum(),
            Sum.CLIPPED: (clipped_BT & mask_BT).sum(),
            Sum.RATIO: losses.masked(ratio_BT, mask_BT).sum(),
            Sum.KL: kl_BT.sum(),
            Sum.ROLLOUT_KL: losses.k3_kl(logprobs_BT, rollout_BT).sum(),
            Sum.ENTROPY: losses.masked(losses.entropy(logprobs_BTV), mask_BT).sum(),
        }
        for place, value in by_place.items():
            sums[place] += value
    return loss
