"""Loss formulas against hand-computed numbers and a naive loop (rl.md 52, 54, 55)."""

from __future__ import annotations

import math

import pytest
import torch

from rljob_workers.trainer import losses


def row(*values: float) -> torch.Tensor:
    return torch.tensor([list(values)])


def test_log_probability_at_temperature_by_hand() -> None:
    # softmax(log [1, 3] / 0.5) = [1, 9] / 10
    logits_BTV = torch.tensor([[[0.0, math.log(3.0)]]])
    logprobs_BTV = losses.vocabulary_logprobs(logits_BTV, temperature=0.5)
    taken_BT = losses.taken_logprobs(logprobs_BTV, torch.tensor([[1]]))
    assert taken_BT.item() == pytest.approx(math.log(0.9), abs=1e-6)


def test_entropy_of_a_uniform_distribution() -> None:
    logprobs_BTV = losses.vocabulary_logprobs(torch.zeros(1, 1, 8), temperature=1.0)
    assert losses.entropy(logprobs_BTV).item() == pytest.approx(math.log(8), abs=1e-6)


def test_ratio_by_hand_and_bounded() -> None:
    ratio_BT = losses.importance_ratio(row(-1.0, 0.0), row(-1.0 - math.log(2.0), -1000.0))
    assert ratio_BT[0, 0].item() == pytest.approx(2.0)
    assert ratio_BT[0, 1].item() == pytest.approx(math.exp(20.0))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 2.0, -2.6, True),  # min(3, 1.3 x 2)
        (1.5, -2.0, 3.0, False),  # min(-3, -2.6): the pessimistic side
        (0.5, 2.0, -1.0, False),
        (0.5, -2.0, 1.6, True),  # min(-1, 0.8 x -2)
    ],
)
def test_surrogate_by_hand(ratio: float, advantage: float, loss: float, clipped: bool) -> None:
    advantages_B = torch.tensor([advantage])
    got = losses.clipped_surrogate(row(ratio), advantages_B, clip_low=0.2, clip_high=0.3)
    assert got.item() == pytest.approx(loss, abs=1e-6)
    assert losses.clipped_tokens(row(ratio), advantages_B, clip_low=0.2, clip_high=0.3).item() is clipped


def test_a_clipped_token_passes_no_gradient() -> None:
    ratio_BT = row(1.5, 1.1).requires_grad_()
    losses.clipped_surrogate(ratio_BT, torch.tensor([1.0]), 0.2, 0.2).sum().backward()
    assert ratio_BT.grad is not None
    assert ratio_BT.grad.tolist() == [[0.0, -1.0]]


def test_k3_by_hand() -> None:
    d = math.log(2.0)
    assert losses.k3_kl(row(-1.0), row(-1.0 + d)).item() == pytest.approx(2.0 - d - 1.0, abs=1e-6)
    assert losses.k3_kl(row(-0.7), row(-0.7)).item() == 0.0


def test_k3_is_unbiased_and_never_negative() -> None:
    """Its mean over samples of pi is KL(pi || reference), computed exactly over a small vocabulary."""
    logits = torch.randn(2, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    policy, reference = logits.log_softmax(-1)
    k3 = losses.k3_kl(policy, reference)
    assert (k3 >= 0).all()
    exact = (policy.exp() * (policy - reference)).sum()
    assert (policy.exp() * k3).sum().item() == pytest.approx(exact.item(), abs=1e-12)


MASK_BT = torch.tensor([[True, True, True, True], [True, False, False, False], [False, False, False, False]])


def test_token_weights_by_hand() -> None:
    weights_BT = losses.token_mean_weights(MASK_BT, tokens=10)
    assert weights_BT[0].tolist() == pytest.approx([0.1] * 4)
    assert weights_BT[1].tolist() == pytest.approx([0.1, 0, 0, 0])
    assert weights_BT[2].tolist() == [0.0] * 4


def test_sequence_weights_by_hand() -> None:
    weights_BT = losses.sequence_mean_weights(MASK_BT, sequences=2)
    assert weights_BT[0].tolist() == pytest.approx([0.125] * 4)
    assert weights_BT[1].tolist() == pytest.approx([0.5, 0, 0, 0])


def test_reductions_match_a_naive_loop_over_two_ranks() -> None:
    values_BT = torch.randn(6, 5, generator=torch.Generator().manual_seed(2))
    lengths = [5, 1, 3, 2, 4, 1]
    mask_BT = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
    rows = [[values_BT[b, t].item() for t in range(n)] for b, n in enumerate(lengths)]
    by_token = sum(map(sum, rows)) / sum(lengths)
    by_sequence = sum(sum(r) / len(r) for r in rows) / len(rows)
    ranks = [slice(0, 2), slice(2, 6)]
    token = sum((values_BT[r] * losses.token_mean_weights(mask_BT[r], sum(lengths))).sum().item() for r in ranks)
    sequence = sum((values_BT[r] * losses.sequence_mean_weights(mask_BT[r], 6)).sum().item() for r in ranks)
    assert token == pytest.approx(by_token, abs=1e-6)
    assert sequence == pytest.approx(by_sequence, abs=1e-6)


def test_an_empty_minibatch_has_loss_zero_not_nan() -> None:
    nothing_BT = torch.zeros(2, 3, dtype=torch.bool)
    assert losses.token_mean_weights(nothing_BT, 0).sum().item() == 0.0
    assert losses.sequence_mean_weights(nothing_BT, 0).sum().item() == 0.0


def test_masked_positions_have_no_value_and_no_gradient() -> None:
    """rl.md 52."""
    values_BT = torch.tensor([[1.0, float("nan")]], requires_grad=True)
    out_BT = losses.masked(values_BT, torch.tensor([[True, False]]))
    assert out_BT.tolist() == [[1.0, 0.0]]
    out_BT.sum().backward()
    assert values_BT.grad is not None
    assert values_BT.grad.tolist() == [[1.0, 0.0]]
