"""Supported families, and building one rank's policy from a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rljob_core.models import CONFIG_FIELD, check_layout, describe, parse_config
from rljob_workers.model import qwen3_moe
from rljob_workers.model.family import Family
from rljob_workers.model.policy import DTYPES, Placement, Policy

FAMILIES: Mapping[str, Family] = {f.model_type: f for f in (qwen3_moe.FAMILY,)}


def family_of(config: Mapping[str, Any], field: str = CONFIG_FIELD) -> Family:
    """The family of a config.json; InvalidInputError lists those supported."""
    describe(config, field)
    return FAMILIES[config["model_type"]]


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
    family, parsed = family_of(config, field), parse_config(config, field)
    check_layout(parsed, placement.layout, layout_field)
    assert placement.layout.ep == 1 or placement.ep_group is not None, "expert parallelism needs a process group"
    return family.build(parsed, placement).to(device=device, dtype=DTYPES[dtype])
