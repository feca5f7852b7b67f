"""The GRPO loss, one formula a function.

Suffix letters: B rows, T target positions, V vocabulary. Position t of a row predicts its token t + 1; every [B, T]
tensor here is indexed by the position that predicts. Values outside a mask never reach a result (AReaL#1346), and
masks come from lengths, never from token ids (trl#7039).

Sources: surrogate and k3 estimate: GRPO, arXiv 2402.03300, equations 3 and 4; separate clip ranges and the token mean:
DAPO, arXiv 2503.14476, equations 8 and 10. Deviations: the old policy's log-probabilities are those the rollout
sampled with (no second forward under the old weights: "bypass" in verl's docs/algo/rollout_corr.md); the exponent of
the ratio is bounded by 20 on both sides, as there; log-probabilities are taken at the sampling temperature.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0


def vocabulary_logprobs(logits_BTV: Tensor, temperature: float) -> Tensor:
    """[B, T, V] float32 log-probabilities under the full-vocabulary softmax at the sampling temperature."""
    return torch.log_softmax(logits_BTV.float() / temperature, dim=-1)


def taken_logprobs(logprobs_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """[B, T] log-probability of each target."""
    return logprobs_BTV.gather(-1, targets_BT.unsqueeze(-1)).squeeze(-1)


def entropy(logprobs_BTV: Tensor) -> Tensor:
    """[B, T] entropy in nats of the distribution that was sampled from."""
    return -(logprobs_BTV.exp() * logprobs_BTV).sum(dim=-1)


def importance_ratio(logprobs_BT: Tensor, rollout_logprobs_BT: Tensor) -> Tensor:
    """[B, T] pi(token) / pi_rollout(token)."""
    return (logprobs_BT - rollout_logprobs_BT).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def clipped_surrogate(ratio_BT: Tensor, advantages_B: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """[B, T] -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)."""
    advantages_B1 = advantages_B.unsqueeze(1)
    clipped_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio_BT * advantages_B1, clipped_BT * advantages_B1)


def clipped_tokens(ratio_BT: Tensor, advantages_B: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """[B, T] bool: the clip is active, so that the token passes no gradient."""
    advantages_B1 = advantages_B.unsqueeze(1)
    too_high = (ratio_BT > 1.0 + clip_high) & (advantages_B1 > 0)
    too_low = (ratio_BT < 1.0 - clip_low) & (advantages_B1 < 0)
    return too_high | too_low


def k3_kl(logprobs_BT: Tensor, reference_logprobs_BT: Tensor) -> Tensor:
    """[B, T] unbiased, never negative estimate of KL(pi || reference): exp(d) - d - 1 with d = log ref - log pi."""
    d_BT = reference_logprobs_BT - logprobs_BT
    return d_BT.exp() - d_BT - 1.0


def token_mean_weights(mask_BT: Tensor, tokens: float) -> Tensor:
    """[B, T] weights whose sum over all ranks is 1: every response token of the minibatch counts the same.

    tokens: response tokens of the whole minibatch, over all ranks.
    """
    return mask_BT.float() / max(tokens, 1.0)


def sequence_mean_weights(mask_BT: Tensor, sequences: float) -> Tensor:
    """[B, T] weights whose sum over all ranks is 1: mean over a sequence's tokens, then over sequences.

    sequences: sequences with at least one response token in the whole minibatch, over all ranks.
    """
    lengths_B1 = mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    return mask_BT.float() / lengths_B1 / max(sequences, 1.0)


def masked(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """[B, T] the values inside the mask, 0 outside: what stands there, even NaN, has no value and no gradient."""
    return torch.where(mask_BT, values_BT, torch.zeros_like(values_BT))
