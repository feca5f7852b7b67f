"""What a rank holds: by value, never by shape; and how many tokens each expert saw."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from rljob_core.layouts import Layout, TensorKind
from rljob_workers.model import (
    Placement,
    RoutingCounts,
    build_policy,
    initial_tensors,
    parse_config,
    routed_mask,
    tensor_specs,
)

EP2 = Layout(dp=2, ep=2)
SWAPPED = [[[7, 1, 3, 5], [0, 2, 4, 6]]] * 2
GROUP = mock.sentinel.group


@pytest.mark.parametrize(
    ("expert_map", "rank", "held"),
    [(None, 0, [0, 1, 2, 3]), (None, 1, [4, 5, 6, 7]), (SWAPPED, 0, [7, 1, 3, 5]), (SWAPPED, 1, [0, 2, 4, 6])],
    ids=["rank 0", "rank 1", "mapped rank 0", "mapped rank 1"],
)
def test_expert_slices_by_value(
    config: dict[str, Any], tensors: dict[str, Tensor], expert_map: Any, rank: int, held: list[int]
) -> None:
    """rl.md 17: rank r holds its experts' values, in slot order."""
    placement = Placement(layout=EP2, rank=rank, ep_group=GROUP, expert_map=expert_map)
    policy = build_policy(config, placement)
    policy.load_tensors(tensors)
    local = policy.local_tensors()
    for spec in tensor_specs(config):
        whole = tensors[spec.name]
        assert torch.equal(local[spec.name], whole[held] if spec.kind is TensorKind.EXPERT else whole), spec.name


def test_local_tensors_share_memory(make_policy: Any) -> None:
    policy = make_policy()
    policy.local_tensors()["model.norm.weight"].fill_(7)
    assert (policy.model.norm.weight == 7).all()


def test_persistent_buffers_are_synced_and_computed_ones_are_not(make_policy: Any) -> None:
    """rl.md 11: a buffer that is part of the weights belongs to every sync."""
    policy: nn.Module = make_policy()
    policy.register_buffer("correction", torch.ones(3))
    names = set(policy.local_tensors())  # type: ignore[operator]
    assert "correction" in names
    assert not any("frequencies" in n or "position" in n for n in names)


def test_tied_head_is_one_tensor(config: dict[str, Any], make_policy: Any) -> None:
    """rl.md 15: a tied head cannot go stale, there is only the embedding."""
    tied = config["tie_word_embeddings"]
    assert ("lm_head.weight" in make_policy().local_tensors()) is not tied
    assert ("lm_head.weight" in {s.name for s in tensor_specs(config)}) is not tied


def test_moe_layers_are_numbered_without_dense_ones(config: dict[str, Any]) -> None:
    layers = {s.layer for s in tensor_specs(config) if s.kind is TensorKind.EXPERT}
    assert layers == {0, 1}
    assert parse_config(config).moe_layers == ((0, 2) if "mlp_only_layers" in config else (0, 1))


def test_initial_tensors_depend_on_seed_and_name_only(config: dict[str, Any]) -> None:
    first, again, other = (initial_tensors(config, seed) for seed in (3, 3, 4))
    deeper = initial_tensors(config | {"num_hidden_layers": 4}, 3)
    gate_up, down = "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj"
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert all(torch.equal(first[name], deeper[name]) for name in first)
    assert not torch.equal(first[down], other[down])
    assert not torch.equal(first[down][0], first[down][1])
    assert first[gate_up].std().item() == pytest.approx(0.1, rel=0.02)
    assert (first["model.norm.weight"] == 1).all()


def test_expert_counts_leave_out_the_last_token(make_policy: Any, config: dict[str, Any]) -> None:
    """rl.md 46: the last sampled token is never routed; padding is not either."""
    policy = make_policy()
    ids = torch.randint(0, 16, (5, 6), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([6, 1, 2, 4, 3])
    counts = RoutingCounts(policy.config, ids.device)
    with torch.no_grad():
        for _ in range(2):
            policy(ids, counts.over(routed_mask(lengths, 6)))
        alone = RoutingCounts(policy.config, ids.device)
        for row, length in zip(ids, lengths.tolist(), strict=True):
            if length > 1:
                fed = row[None, : length - 1]
                policy(fed, alone.over(torch.ones_like(fed, dtype=torch.bool)))
    routed = int((lengths - 1).sum()) * config["num_experts_per_tok"]
    assert counts.counts_LE.sum(1).tolist() == [2 * routed] * 2
    assert torch.equal(counts.counts_LE, 2 * alone.counts_LE)
