"""A config the formulas cannot honour is refused with its path."""

from __future__ import annotations

from typing import Any

import pytest

from rljob_core.errors import InvalidInputError
from rljob_core.layouts import Layout
from rljob_core.models import FAMILIES as DESCRIBED
from rljob_workers.model import Placement, build_policy, parse_config
from rljob_workers.model.registry import FAMILIES


def test_unknown_family_lists_those_supported() -> None:
    with pytest.raises(InvalidInputError, match=r"config\.model_type: 'mamba' is not a supported family.*qwen3_moe"):
        parse_config({"model_type": "mamba"})


def test_validate_knows_the_same_families() -> None:
    assert set(FAMILIES) == set(DESCRIBED)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"vocab_size": None}, "vocab_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"head_dim": 15}, "head_dim"),
        ({"head_dim": None, "hidden_size": 66}, "num_attention_heads"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"attention_dropout": 0.1}, "attention_dropout"),
        ({"rope_scaling": {"type": "yarn"}}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_parameters.rope_type"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_value_is_named(config: dict[str, Any], change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_config(config | change, "here")
    assert caught.value.field == f"here.{field}"


@pytest.mark.parametrize(
    ("layout", "field"),
    [(Layout(dp=3, ep=3), "spec.rollout.layout.ep"), (Layout(tp=2), "spec.rollout.layout.tp")],
    ids=["ep", "tp"],
)
def test_layout_the_model_cannot_take(config: dict[str, Any], layout: Layout, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        build_policy(config, Placement(layout=layout), layout_field="spec.rollout.layout")
    assert caught.value.field == field
