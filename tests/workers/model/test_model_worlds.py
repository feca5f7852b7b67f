"""Two ranks, data or expert parallel, give the logits of `transformers`, and gradients and tokens of one rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from rljob_core.layouts import Layout, TensorKind
from rljob_workers.model import Placement, Policy, build_policy, initial_tensors
from rljob_workers.rollout.engine import EngineLimits, TorchEngine

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

SCRIPT = Path(__file__).with_name("world.py")
LAYOUTS = ("dp2", "ep2", "ep2 mapped", "ep2 batched")
EXPERT_MAP = [[[7, 1, 3, 5], [0, 2, 4, 6]], [[0, 3, 1, 2], [6, 5, 4, 7]]]
PROMPTS = [[2, 3, 4], [5, 6, 7, 8, 9], [2, 3, 4], [10], [11, 12]]
IDS = torch.randint(0, 16, (8, 7), generator=torch.Generator().manual_seed(5))
"""Rank 0 takes five rows, rank 1 three."""
CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "vocab_size": 16,
    "hidden_size": 32,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "initializer_range": 0.2,
}
MODELS = {
    head: (config, initial_tensors(config, 0))
    for head, config in (("untied", CONFIG), ("tied", CONFIG | {"tie_word_embeddings": True}))
}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes computed, all heads and layouts in one start."""
    at = tmp_path_factory.mktemp("world")
    inputs = {
        "models": MODELS,
        "ids": IDS,
        "map": EXPERT_MAP,
        "prompts": PROMPTS,
    }
    torch.save(inputs, at / "in")
    arguments = [str(at / "rendezvous"), str(at / "in")]
    processes = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(rank), "2", *arguments, str(at / f"out{rank}")])
        for rank in range(2)
    ]
    try:
        assert [p.wait(90) for p in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [torch.load(at / f"out{rank}") for rank in range(2)]


@pytest.fixture(scope="module", params=list(MODELS))
def head(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def ranks(worlds: list[dict[str, Any]], head: str) -> list[dict[str, Any]]:
    """What each rank computed of one model."""
    return [world[head] for world in worlds]


@pytest.fixture(scope="module")
def reference(head: str) -> Qwen3MoeForCausalLM:
    config, tensors = MODELS[head]
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**config)).eval()
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def alone(head: str) -> Policy:
    """One process holding everything, with the gradient of all rows."""
    config, tensors = MODELS[head]
    policy = build_policy(config, Placement())
    policy.load_tensors(tensors)
    (-policy(IDS).log_softmax(-1)[:, :-1].gather(-1, IDS[:, 1:, None])).sum().backward()
    return policy


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_are_those_of_transformers(
    ranks: list[dict[str, Any]], reference: Qwen3MoeForCausalLM, layout: str
) -> None:
    together = torch.cat([rank[layout]["logits"] for rank in ranks])
    with torch.no_grad():
        assert (together - reference(IDS).logits).abs().max() <= 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients(ranks: list[dict[str, Any]], alone: Policy, layout: str) -> None:
    """Replicated parameters sum over ranks; a rank's experts have the tokens of both ranks already."""
    kinds = {s.name: s.kind for s in alone.specs}
    for name, parameter in alone.named_parameters():
        parts = [rank[layout]["gradients"][name] for rank in ranks]
        if kinds[name] is TensorKind.EXPERT and layout != "dp2":
            whole = torch.empty_like(parameter)
            for rank, part in enumerate(parts):
                whole[held(alone, name, layout, rank)] = part
        else:
            whole = parts[0] + parts[1]
        torch.testing.assert_close(whole, parameter.grad, atol=2e-5, rtol=1e-4, msg=name)


def held(alone: Policy, name: str, layout: str, rank: int) -> list[int]:
    layer = next(s.layer for s in alone.specs if s.name == name)
    expert_map = EXPERT_MAP if layout == "ep2 mapped" else None
    return list(Layout(dp=2, ep=2).experts(rank, layer, 8, expert_map))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_experts_held_by_value(ranks: list[dict[str, Any]], head: str, layout: str) -> None:
    """rl.md 17: every rank its own experts."""
    name = "model.layers.1.mlp.experts.down_proj"
    whole = MODELS[head][1][name]
    for number, rank in enumerate(ranks):
        expected: Tensor = whole
        if layout != "dp2":
            expert_map = EXPERT_MAP if layout == "ep2 mapped" else None
            expected = whole[list(Layout(dp=2, ep=2).experts(number, 1, 8, expert_map))]
        assert torch.equal(rank[layout]["held"][name], expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_group_decodes_as_one_rank_does(ranks: list[dict[str, Any]], alone: Policy, layout: str) -> None:
    """One rank decodes, the other has no sequence and only serves its experts."""
    limits = EngineLimits(max_sequences=8, max_prompt_tokens=6, max_response_tokens=5)
    engine = TorchEngine(alone, limits, eos_ids=[1])
    engine.load(4)
    engine.ready(4)
    for slot, prompt in enumerate(PROMPTS):
        engine.admit(slot, prompt, None, max_tokens=5, greedy=False, seed=slot)
    expected = []
    while engine.in_flight:
        expected += engine.step()
    expected.sort(key=lambda f: f.slot)
    found = ranks[0][f"{layout} engine"]
    assert ranks[1][f"{layout} engine"] == []
    assert [(f[0], f[1], f[3]) for f in found] == [(f.slot, f.token_ids, f.finish_reason) for f in expected]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_engine_logprobs_are_those_of_transformers(
    ranks: list[dict[str, Any]], reference: Qwen3MoeForCausalLM, layout: str
) -> None:
    """Prefill, KV blocks and single-token steps of a group, against one forward over the whole sequence."""
    for slot, response, logprobs, _ in ranks[0][f"{layout} engine"]:
        ids = torch.tensor([PROMPTS[slot] + response])
        with torch.no_grad():
            every = reference(ids).logits[0].log_softmax(-1)
        expected = every[len(PROMPTS[slot]) - 1 : -1].gather(-1, torch.tensor(response)[:, None])[:, 0]
        assert (torch.tensor(logprobs) - expected).abs().max() <= 1e-5
