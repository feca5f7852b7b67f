"""Random weights: a function of (seed, tensor name, expert) alone, so that no layout changes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rljob_core.layouts import TensorKind, TensorSpec
from rljob_core.models import CONFIG_FIELD, parse_config, tensor_specs
from rljob_workers.model.policy import DTYPES


def initial_tensors(config: Mapping[str, Any], seed: int, dtype: str = "float32") -> dict[str, Tensor]:
    """Whole tensors as `transformers` initialises the family: matrices normal with standard deviation
    `initializer_range`, norms 1, biases 0 (the numbers differ: the generator is Philox)."""
    std = parse_config(config, CONFIG_FIELD).initializer_range
    return {s.name: _initial(s, seed, std).to(DTYPES[dtype]) for s in tensor_specs(config)}


def _initial(spec: TensorSpec, seed: int, std: float) -> Tensor:
    if spec.name.endswith(".bias"):
        return torch.zeros(spec.shape)
    if len(spec.shape) == 1:
        return torch.ones(spec.shape)
    if spec.kind is TensorKind.EXPERT:
        return torch.stack([_normal(spec.shape[1:], std, seed, spec.name, e) for e in range(spec.shape[0])])
    return _normal(spec.shape, std, seed, spec.name, 0)


def _normal(shape: tuple[int, ...], std: float, seed: int, name: str, expert: int) -> Tensor:
    digest = hashlib.sha256(f"{seed}/{name}/{expert}".encode()).digest()
    philox = np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64))
    values = np.random.Generator(philox).standard_normal(shape, dtype=np.float32)
    return torch.from_numpy(values * np.float32(std))
