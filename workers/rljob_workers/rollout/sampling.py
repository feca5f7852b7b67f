"""Drawing one token a row: a token depends on its row's logits, seed and number alone, never on neighbours.

n rows, V vocabulary. The uniform number of token t of a sample is a hash of (seed, t), so that any group may decode
the sample, in any company, and a replacement continues as the first would have.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BELOW_ONE = 1.0 - 2.0**-23


def uniforms(seeds: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """[n] numbers in [0, 1) with 24 bits: `rljob_core.inputs.counter_rng.bits64(seed, number)`, vectorised."""
    state = _mix(_GOLDEN + seeds * _GOLDEN + _GOLDEN)
    state = _mix(state + numbers.astype(np.uint64) * _GOLDEN + _GOLDEN)
    return (state >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(logits_nV: Tensor, temperature: float, greedy_n: Tensor, uniforms_n: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids [n] and their log-probabilities [n] under softmax(logits / temperature) over the full vocabulary.

    Greedy rows take the largest logit, the others invert the cumulative distribution at their uniform number.
    """
    logprobs = torch.log_softmax(logits_nV.float() / temperature, -1)
    cumulative = logprobs.exp().cumsum(-1)
    target = uniforms_n.unsqueeze(1).clamp(max=_BELOW_ONE) * cumulative[:, -1:]
    sampled = (cumulative <= target).sum(-1)
    tokens = torch.where(greedy_n, logprobs.argmax(-1), sampled)
    return tokens, logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)
