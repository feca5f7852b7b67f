"""What every family's config shares, and the reading of one value with a message that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rljob_core.errors import InvalidInputError
from rljob_core.layouts import Layout

T = TypeVar("T", int, float, bool)

CONFIG_FIELD = "spec.model.init.config"
"""Where a user wrote a config unless it comes from a directory."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shapes an engine needs of any family."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_experts: int
    num_experts_per_tok: int
    moe_layers: tuple[int, ...]
    """Decoder layers with experts, in order; their positions here are the MoE layer numbers."""
    max_position_embeddings: int
    initializer_range: float
    tie_word_embeddings: bool


def key_path(field: str, key: str) -> str:
    """`spec.model.init.config.hidden_size`, or `/models/m/config.json hidden_size`."""
    return f"{field} {key}" if field.endswith(".json") else f"{field}.{key}"


class Reader:
    """Typed access to a raw config; InvalidInputError names the path as the user wrote it."""

    def __init__(self, raw: Mapping[str, Any], field: str) -> None:
        self.raw, self.field = raw, field

    def fail(self, name: str, problem: str, remedy: str) -> InvalidInputError:
        return InvalidInputError(key_path(self.field, name), self.raw.get(name), problem, remedy)

    def value(self, name: str, kind: type[T], default: T | None = None) -> T:
        """One value; absent or null gives the default, or an error where there is none."""
        value = self.raw.get(name)
        if value is None:
            if default is None:
                raise self.fail(name, "is missing", f"add {name}, as in the model's config.json")
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return kind(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(name, f"is not of type {kind.__name__}", f"write one {kind.__name__}")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self.value(name, int, default)
        if value < 1:
            raise self.fail(name, "is below 1", "use 1 or more")
        return value

    def positive(self, name: str, default: float) -> float:
        """A number above 0."""
        value = self.value(name, float, default)
        if not value > 0:
            raise self.fail(name, "is not above 0", f"use a positive number, as {default:g}")
        return value

    def refuse_unless(self, name: str, allowed: tuple[object, ...]) -> None:
        """Options that would change the formulas and are not implemented."""
        if name in self.raw and self.raw[name] not in allowed:
            shown = " or ".join(repr(a) for a in allowed)
            raise self.fail(name, "is not supported", f"use {shown}")


def check_layout(config: ModelConfig, layout: Layout, field: str) -> None:
    """Refuse a layout the model cannot be cut to. field: `spec.trainer.layout` or `spec.rollout.layout`."""
    if config.moe_layers and config.num_experts % layout.ep:
        raise InvalidInputError(
            f"{field}.ep",
            layout.ep,
            f"does not divide the model's {config.num_experts} experts",
            "use a divisor of num_experts",
        )
    for name in ("tp", "pp"):
        if getattr(layout, name) != 1:
            raise InvalidInputError(f"{field}.{name}", getattr(layout, name), "is not yet supported", "use 1")
