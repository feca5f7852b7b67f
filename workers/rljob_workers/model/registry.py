"""Supported families, and building one rank's policy from a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rljob_core.errors import InvalidInputError
from rljob_core.layouts import TensorSpec
from rljob_workers.model import qwen3_moe
from rljob_workers.model.config import CONFIG_FIELD, ModelConfig, check_layout, key_path
from rljob_workers.model.family import Family
from rljob_workers.model.policy import DTYPES, Placement, Policy

FAMILIES: Mapping[str, Family] = {f.model_type: f for f in (qwen3_moe.FAMILY,)}


def family_of(config: Mapping[str, Any], field: str = CONFIG_FIELD) -> Family:
    """The family of a config.json; InvalidInputError lists those supported."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InvalidInputError(
            key_path(field, "model_type"),
            model_type,
            "is not a supported family",
            f"use one of {', '.join(sorted(FAMILIES))}",
        )
    return FAMILIES[model_type]


def parse_config(config: Mapping[str, Any], field: str = CONFIG_FIELD) -> ModelConfig:
    """Checked shapes of a config.json."""
    return family_of(config, field).parse(config, field)


def tensor_specs(config: Mapping[str, Any], dtype: str = "float32") -> list[TensorSpec]:
    """Every parameter and persistent buffer of the whole model under its in-memory name."""
    family = family_of(config)
    return [
        TensorSpec(name=s.name, shape=s.shape, dtype=dtype, kind=s.kind, layer=s.layer)
        for s in family.specs(family.parse(config, CONFIG_FIELD))
    ]


def build_policy(
    config: Mapping[str, Any],
    placement: Placement | None = None,
    *,
    dtype: str = "float32",
    device: torch.device | None = None,
    field: str = CONFIG_FIELD,
    layout_field: str = "spec.trainer.layout",
) -> Policy:
    """One rank's module, tensors not filled yet. InvalidInputError when config or layout are wrong."""
    placement = placement or Placement()
    family = family_of(config, field)
    parsed = family.parse(config, field)
    check_layout(parsed, placement.layout, layout_field)
    assert placement.layout.ep == 1 or placement.ep_group is not None, "expert parallelism needs a process group"
    return family.build(parsed, placement).to(device=device, dtype=DTYPES[dtype])
