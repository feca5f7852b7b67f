"""Group-relative advantages of GRPO.

Suffix letters: G groups (prompts), S samples of a group, B rows of a batch.

Sources: GRPO, arXiv 2402.03300, section 4.1.2 (outcome supervision); Dr. GRPO, arXiv 2503.20783 (no division by the
standard deviation); zero-variance groups: DAPO, arXiv 2503.14476 (they carry no signal), huggingface/trl#7068 (what
they do must be a choice). All in float64: rewards are few and their differences small.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rljob_core.api.algorithm import AdvantageNormalization

STD_FLOOR = 1e-6


def varied(rewards_GS: Tensor) -> Tensor:
    """[G] bool: the group's rewards differ. Compared exactly: a mean of equal floats may differ from each of them."""
    return rewards_GS.amax(dim=1) > rewards_GS.amin(dim=1)


def centred(rewards_B: Tensor, groups_B: Tensor, rewards_GS: Tensor) -> Tensor:
    """[B] reward minus its group's mean; exactly 0 in a group without variance."""
    difference_B = rewards_B - rewards_GS.mean(dim=1)[groups_B]
    return torch.where(varied(rewards_GS)[groups_B], difference_B, torch.zeros_like(difference_B))


def group_std(rewards_GS: Tensor) -> Tensor:
    """[G] standard deviation over the group itself (divided by S, as the paper's std over the set of rewards).

    Deviation: trl and verl divide by S - 1, which is undefined for a group of one.
    """
    return rewards_GS.std(dim=1, correction=0)


def advantages(
    rewards_B: Tensor, groups_B: Tensor, rewards_GS: Tensor, normalization: AdvantageNormalization
) -> Tensor:
    """[B] float64 advantage of each row.

    rewards_B: reward of each row. groups_B: index of its group. rewards_GS: rewards of every sample of each group, also
    of samples that other ranks train.
    """
    centred_B = centred(rewards_B, groups_B, rewards_GS)
    if normalization is AdvantageNormalization.MEAN_ONLY:
        return centred_B
    return centred_B / (group_std(rewards_GS)[groups_B] + STD_FLOOR)
