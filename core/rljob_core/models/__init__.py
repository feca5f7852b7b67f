"""Supported model families as configs and tensor names: what can be checked and planned without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rljob_core.errors import InvalidInputError
from rljob_core.layouts import TensorSpec
from rljob_core.models import qwen3_moe
from rljob_core.models.config import CONFIG_FIELD, ModelConfig, check_layout, key_path

__all__ = [
    "CONFIG_FIELD",
    "FAMILIES",
    "FamilyDescription",
    "ModelConfig",
    "check_layout",
    "describe",
    "key_path",
    "parse_config",
    "tensor_specs",
]


@dataclass(frozen=True, kw_only=True)
class FamilyDescription:
    """The functions a family's description exports."""

    parse: Callable[[Mapping[str, Any], str], ModelConfig]
    """(config.json, path of it as the user wrote it) -> checked config; raises InvalidInputError."""
    specs: Callable[[ModelConfig], list[TensorSpec]]
    """Every parameter and persistent buffer of the whole model, under its in-memory name."""


FAMILIES: Mapping[str, FamilyDescription] = {
    "qwen3_moe": FamilyDescription(parse=qwen3_moe.parse, specs=qwen3_moe.specs)
}
"""By `model_type` of config.json."""


def describe(config: Mapping[str, Any], field: str = CONFIG_FIELD) -> FamilyDescription:
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
    return describe(config, field).parse(config, field)


def tensor_specs(config: Mapping[str, Any], dtype: str = "float32") -> list[TensorSpec]:
    """Every parameter and persistent buffer of the whole model under its in-memory name."""
    family = describe(config)
    return [
        TensorSpec(name=s.name, shape=s.shape, dtype=dtype, kind=s.kind, layer=s.layer)
        for s in family.specs(family.parse(config, CONFIG_FIELD))
    ]
