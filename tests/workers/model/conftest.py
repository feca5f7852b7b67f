"""Tiny Qwen3-MoE models: whole tensors that are far from their initial symmetry, and policies made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rljob_workers.model import Placement, Policy, build_policy, initial_tensors

UNTIED: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "vocab_size": 16,
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
    "tie_word_embeddings": False,
}
TIED = UNTIED | {
    "tie_word_embeddings": True,
    "attention_bias": True,
    "norm_topk_prob": False,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "mlp_only_layers": [1],
    "head_dim": 8,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}

MakePolicy = Callable[..., Policy]


def perturbed(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Initial tensors, with norms and biases moved off 1 and 0 so that a swapped one shows."""
    noise = torch.Generator().manual_seed(seed)
    tensors = initial_tensors(config, seed)
    return {n: t + 0.1 * torch.randn(t.shape, generator=noise) if t.dim() == 1 else t for n, t in tensors.items()}


CONFIGS = {"untied": UNTIED, "tied": TIED}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As the substrate sets it; tiny products only lose by more."""
    torch.set_num_threads(1)


@pytest.fixture(params=["untied", "tied"])
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return CONFIGS[request.param]


@pytest.fixture
def tensors(config: dict[str, Any]) -> dict[str, Tensor]:
    return perturbed(config)


@pytest.fixture
def make_policy(config: dict[str, Any], tensors: dict[str, Tensor]) -> MakePolicy:
    def make(**placement: Any) -> Policy:
        policy = build_policy(config, Placement(**placement))
        policy.load_tensors(tensors)
        return policy

    return make
