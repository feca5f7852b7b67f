"""Hugging Face directories: what is read back, and what is wrong with a directory, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rljob_core.errors import InvalidInputError
from rljob_workers.model import read_directory, write_directory

DOWN = "model.layers.0.mlp.experts.5.down_proj.weight"


@pytest.fixture
def directory(config: dict[str, Any], tensors: dict[str, Tensor], tmp_path: Path) -> Path:
    write_directory(tmp_path, config, tensors, {}, eos_ids=[1], pad_id=1)
    return tmp_path


def rewrite(directory: Path, **changes: Tensor | None) -> None:
    """Replace (or, with None, remove) tensors of the weights file."""
    stored: dict[str, Tensor | None] = {**load_file(directory / "model.safetensors"), **changes}
    kept = {name: tensor for name, tensor in stored.items() if tensor is not None}
    save_file(kept, directory / "model.safetensors", metadata={"format": "pt"})


def test_reads_back_what_was_written(directory: Path, tensors: dict[str, Tensor]) -> None:
    _, back = read_directory(directory)
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def test_experts_lie_one_by_one(directory: Path, tensors: dict[str, Tensor]) -> None:
    stored = load_file(directory / "model.safetensors")
    fused = tensors["model.layers.0.mlp.experts.gate_up_proj"]
    width = fused.shape[1] // 2
    assert torch.equal(stored["model.layers.0.mlp.experts.3.gate_proj.weight"], fused[3, :width])
    assert torch.equal(stored["model.layers.0.mlp.experts.3.up_proj.weight"], fused[3, width:])
    assert torch.equal(stored[DOWN], tensors["model.layers.0.mlp.experts.down_proj"][5])
    assert not any(name.endswith("gate_up_proj") for name in stored)


def test_fused_names_are_read_too(directory: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, directory / "model.safetensors")
    _, back = read_directory(directory)
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def test_reads_another_element_type(directory: Path) -> None:
    _, back = read_directory(directory, "bfloat16")
    assert {t.dtype for t in back.values()} == {torch.bfloat16}


def test_missing_tensor_is_named(directory: Path) -> None:
    rewrite(directory, **{DOWN: None})
    with pytest.raises(InvalidInputError, match=rf"lacks tensor {DOWN}"):
        read_directory(directory)


def test_wrong_shape_is_named(directory: Path) -> None:
    rewrite(directory, **{DOWN: torch.zeros(64, 63)})
    with pytest.raises(InvalidInputError, match=rf"{DOWN}: \[64, 63\] should be \[64, 64\]"):
        read_directory(directory)


def test_tensors_of_another_model_are_refused(directory: Path) -> None:
    rewrite(directory, **{"model.layers.0.mlp.shared_expert.weight": torch.zeros(2)})
    with pytest.raises(InvalidInputError, match="shared_expert"):
        read_directory(directory)


def test_file_cut_short(directory: Path) -> None:
    whole = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInputError, match=r"model\.safetensors.*header says"):
        read_directory(directory)


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "has no config.json"), ("{", "is not JSON"), ("[]", "is not a JSON object")]
)
def test_config_file(directory: Path, content: str | None, problem: str) -> None:
    (directory / "config.json").unlink()
    if content is not None:
        (directory / "config.json").write_text(content)
    with pytest.raises(InvalidInputError, match=problem):
        read_directory(directory)


def test_shard_of_the_index_is_missing(directory: Path) -> None:
    index = {"weight_map": {DOWN: "model-00001-of-00002.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidInputError, match="model-00001-of-00002"):
        read_directory(directory)


def test_config_of_a_file_is_named_with_its_path(directory: Path, config: dict[str, Any]) -> None:
    (directory / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 3}))
    with pytest.raises(InvalidInputError) as caught:
        read_directory(directory)
    assert caught.value.field == f"{directory}/config.json num_key_value_heads"
