"""Advantages against hand-computed numbers and a naive loop (rl.md 43, 54)."""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from rljob_core.api.algorithm import AdvantageNormalization
from rljob_workers.trainer.advantages import STD_FLOOR, advantages, group_std, varied

GROUP_STD, MEAN_ONLY = AdvantageNormalization.GROUP_STD, AdvantageNormalization.MEAN_ONLY


def of(rewards: list[list[float]], normalization: AdvantageNormalization) -> list[float]:
    """Advantages of every sample of every group, in order."""
    rewards_GS = torch.tensor(rewards, dtype=torch.float64)
    groups_B = torch.arange(len(rewards)).repeat_interleave(len(rewards[0]))
    return advantages(rewards_GS.flatten(), groups_B, rewards_GS, normalization).tolist()


def test_mean_only_by_hand() -> None:
    assert of([[0.0, 1.0, 1.0, 0.0]], MEAN_ONLY) == [-0.5, 0.5, 0.5, -0.5]


def test_group_std_by_hand() -> None:
    # mean 2, deviations -1 0 1, variance 2/3
    std = math.sqrt(2 / 3)
    assert of([[1.0, 2.0, 3.0]], GROUP_STD) == pytest.approx([-1 / (std + 1e-6), 0.0, 1 / (std + 1e-6)], abs=1e-15)


def test_groups_do_not_mix_and_match_a_naive_loop() -> None:
    rewards = torch.rand(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).tolist()
    naive = []
    for group in rewards:
        mean, std = statistics.fmean(group), statistics.pstdev(group)
        naive += [(r - mean) / (std + STD_FLOOR) for r in group]
    assert of(rewards, GROUP_STD) == pytest.approx(naive, abs=1e-12)


def test_rows_of_a_group_on_other_ranks_count_in_its_statistics() -> None:
    rewards_GS = torch.tensor([[0.0, 4.0], [1.0, 3.0]], dtype=torch.float64)
    here = advantages(torch.tensor([3.0, 0.0], dtype=torch.float64), torch.tensor([1, 0]), rewards_GS, MEAN_ONLY)
    assert here.tolist() == [1.0, -2.0]


@pytest.mark.parametrize("normalization", [GROUP_STD, MEAN_ONLY])
@pytest.mark.parametrize("reward", [0.0, 0.1, 0.7, 1.0 / 3.0])
def test_equal_rewards_give_exactly_zero(normalization: AdvantageNormalization, reward: float) -> None:
    """rl.md 43, 54: rounding of the mean, divided by the floor of the standard deviation, would be noise."""
    assert of([[reward] * 7], normalization) == [0.0] * 7


def test_varied_groups_are_found_exactly() -> None:
    rewards_GS = torch.tensor([[0.1, 0.1, 0.1], [0.1, 0.1, 0.1 + 1e-12]], dtype=torch.float64)
    assert varied(rewards_GS).tolist() == [False, True]


def test_a_group_of_one_has_no_advantage() -> None:
    assert of([[0.4]], GROUP_STD) == [0.0]
    assert group_std(torch.tensor([[0.4]])).tolist() == [0.0]
