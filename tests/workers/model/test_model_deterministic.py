"""Deterministic form: a row's bits do not depend on its neighbours, at every batch size tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rljob_workers.model import Policy

SIZES = (2, 3, 7, 8, 33, 64, 128, 511, 512)
TOKENS, CACHED = 10, 6


def prefill(policy: Policy, ids_BT: Tensor) -> Tensor:
    with torch.no_grad():
        return policy.prefill(ids_BT, torch.full((ids_BT.shape[0],), TOKENS))[0]


def training(policy: Policy, ids_BT: Tensor) -> Tensor:
    return policy(ids_BT).log_softmax(-1).detach()  # type: ignore[no-any-return]


def decode(policy: Policy, ids_BT: Tensor) -> Tensor:
    """One step over a cache that is a function of each row alone."""
    c = policy.config
    rows = ids_BT.shape[0]
    shape = (rows, c.num_hidden_layers, 2, c.num_key_value_heads, TOKENS, c.head_dim)
    cache = torch.stack([torch.randn(shape[1:], generator=torch.Generator().manual_seed(int(r.sum()))) for r in ids_BT])
    with torch.no_grad():
        return policy.decode(ids_BT[:, 0], torch.full((rows,), CACHED), cache.permute(1, 2, 0, 3, 4, 5).contiguous())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("forward", [prefill, decode, training], ids=["prefill", "decode", "training"])
@pytest.mark.parametrize("config", [pytest.param("untied")], indirect=True)
def test_neighbours_do_not_change_a_bit(make_policy: Any, forward: Callable[..., Tensor], size: int) -> None:
    policy = make_policy(deterministic=True)
    ids = torch.randint(0, 16, (size, TOKENS), generator=torch.Generator().manual_seed(size))
    for row in {0, size // 2, size - 1}:
        others = torch.randint(0, 16, ids.shape, generator=torch.Generator().manual_seed(row + 1000))
        others[row] = ids[row]
        assert not torch.equal(others, ids)
        assert torch.equal(forward(policy, ids)[row], forward(policy, others)[row])
