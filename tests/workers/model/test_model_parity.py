"""The formulas are those of `transformers`: logits, gradients, and files both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from rljob_workers.model import Placement, Policy, build_policy, read_directory, write_directory


@pytest.fixture
def reference(config: dict[str, Any], tensors: dict[str, Tensor]) -> Qwen3MoeForCausalLM:
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**config)).eval()
    model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    return model


def token_ids(rows: int, tokens: int) -> Tensor:
    return torch.randint(0, 16, (rows, tokens), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("deterministic", [False, True], ids=["eager", "batched"])
@pytest.mark.parametrize("tokens", [9, 140], ids=["materialised scores", "fused attention"])
def test_logits(make_policy: Any, reference: Qwen3MoeForCausalLM, deterministic: bool, tokens: int) -> None:
    ids = token_ids(4, tokens)
    with torch.no_grad():
        difference = make_policy(deterministic=deterministic)(ids) - reference(ids).logits
    assert difference.abs().max() <= 1e-5


@pytest.mark.parametrize("deterministic", [False, True], ids=["eager", "batched"])
def test_gradients(make_policy: Any, reference: Qwen3MoeForCausalLM, deterministic: bool) -> None:
    policy: Policy = make_policy(deterministic=deterministic)
    ids = token_ids(6, 8)
    for model in (policy, reference):
        out = model(ids)
        logits = out if isinstance(out, Tensor) else out.logits
        logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).mean().backward()
    expected = dict(reference.named_parameters())
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, atol=1e-6, rtol=1e-4, msg=name)


def test_written_directory_loads_in_transformers(
    config: dict[str, Any], tensors: dict[str, Tensor], make_policy: Any, tmp_path: Path
) -> None:
    write_directory(tmp_path, config, tensors, {"tokenizer.json": b"{}"}, eos_ids=[1, 3], pad_id=0)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = token_ids(3, 9)
    with torch.no_grad():
        assert (model(ids).logits - make_policy()(ids)).abs().max() <= 1e-5
    assert model.generation_config.eos_token_id == [1, 3]
    assert model.generation_config.pad_token_id == 0
    assert model.dtype is torch.float32
    assert (tmp_path / "tokenizer.json").read_bytes() == b"{}"
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["architectures"] == ["Qwen3MoeForCausalLM"]


@pytest.mark.parametrize("shard", ["1GB", "60KB"], ids=["one file", "sharded"])
def test_reads_what_transformers_writes(reference: Qwen3MoeForCausalLM, tmp_path: Path, shard: str) -> None:
    reference.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "60KB")
    config, tensors = read_directory(tmp_path)
    policy = build_policy(config, Placement())
    policy.load_tensors(tensors)
    ids = token_ids(2, 7)
    with torch.no_grad():
        assert (policy(ids) - reference(ids).logits).abs().max() <= 1e-5
