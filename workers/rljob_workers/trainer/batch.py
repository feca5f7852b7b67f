"""One rank's share of a minibatch as right-padded tensors.

Suffix letters: B rows, T positions. Row b holds prompt and response; position t holds token t and predicts token t + 1,
so the last token of a sequence is a target only and is never fed (nor counted in expert load: verl#7075). Padding
stands on the right and under a causal mask no token sees it. Masks come from lengths, never from ids (trl#7039).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rljob_workers.packs import Sample


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows ordered by (prompt, sample)."""

    inputs_BT: Tensor
    """int64 token ids, 0 where fed_BT is False."""
    targets_BT: Tensor
    """int64 next token ids."""
    fed_BT: Tensor
    """bool: a token that predicts another of its sequence."""
    response_BT: Tensor
    """bool: the target is a response token."""
    rollout_logprobs_BT: Tensor
    """float32 log-probability of the target when it was sampled; 0 outside response_BT."""
    advantages_B: Tensor
    """float32."""
    trained_B: Tensor
    """bool: the row takes part in the loss (False in masked groups)."""
    versions_B: Tensor
    """int64 policy version of the oldest token."""

    def __len__(self) -> int:
        return self.inputs_BT.shape[0]

    def rows(self, at: slice) -> Batch:
        """Some consecutive rows, as views."""
        return Batch(**{name: tensor[at] for name, tensor in vars(self).items()})

    def to(self, device: torch.device) -> Batch:
        return Batch(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def select(self, index_N: Tensor) -> Batch:
        """The rows of an index, copied."""
        return Batch(**{name: tensor[index_N] for name, tensor in vars(self).items()})


def collate(
    samples: Sequence[Sample], advantages_B: Tensor, trained_B: Tensor, versions_B: Sequence[int], positions: int
) -> Batch:
    """Pad to `positions` = longest sequence - 1 or more, the same on all ranks."""
    rows = len(samples)
    prompt_B = np.fromiter((len(s.prompt_ids) for s in samples), np.int64, rows)
    length_B = prompt_B + np.fromiter((len(s.response_ids) for s in samples), np.int64, rows)
    tokens = np.zeros((rows, positions + 1), np.int64)
    logprobs = np.zeros((rows, positions + 1), np.float32)
    for b, sample in enumerate(samples):
        prompt, length = prompt_B[b], length_B[b]
        tokens[b, :prompt] = sample.prompt_ids
        tokens[b, prompt:length] = sample.response_ids
        logprobs[b, prompt:length] = sample.logprobs
    target_T = np.arange(1, positions + 1)
    fed = target_T < length_B[:, None]
    return Batch(
        inputs_BT=torch.from_numpy(np.where(fed, tokens[:, :-1], 0)),
        targets_BT=torch.from_numpy(tokens[:, 1:].copy()),
        fed_BT=torch.from_numpy(fed),
        response_BT=torch.from_numpy(fed & (target_T >= prompt_B[:, None])),
        rollout_logprobs_BT=torch.from_numpy(logprobs[:, 1:].copy()),
        advantages_B=advantages_B.float(),
        trained_B=trained_B,
        versions_B=torch.tensor(list(versions_B), dtype=torch.int64),
    )


def longest(samples: Sequence[Sample]) -> int:
    """Tokens of the longest sequence."""
    return max((len(s.prompt_ids) + len(s.response_ids) for s in samples), default=0)
