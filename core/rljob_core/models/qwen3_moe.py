"""The Qwen3-MoE family described (`transformers` Qwen3MoeForCausalLM): config, tensor names and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rljob_core.layouts import TensorKind, TensorSpec
from rljob_core.models.config import ModelConfig, Reader, key_path


@dataclass(frozen=True, kw_only=True)
class Qwen3MoeConfig(ModelConfig):
    """What the formulas read; the defaults are those of `transformers`."""

    intermediate_size: int
    moe_intermediate_size: int
    norm_topk_prob: bool
    rms_norm_eps: float
    rope_theta: float
    attention_bias: bool


def parse(raw: Mapping[str, Any], field: str) -> Qwen3MoeConfig:
    """Read and check a config.json. field: where the user wrote it. InvalidInputError names the key."""
    read = Reader(raw, field)
    read.refuse_unless("hidden_act", ("silu", None))
    read.refuse_unless("use_sliding_window", (False, None))
    read.refuse_unless("attention_dropout", (0, 0.0, None))
    read.refuse_unless("rope_scaling", (None,))
    read.refuse_unless("quantization_config", (None,))
    hidden, heads = read.count("hidden_size"), read.count("num_attention_heads")
    kv_heads, layers = read.count("num_key_value_heads", 4), read.count("num_hidden_layers")
    experts = read.count("num_experts", read.value("num_local_experts", int, 128))
    top = read.count("num_experts_per_tok", 8)
    if heads % kv_heads:
        raise read.fail("num_key_value_heads", f"does not divide num_attention_heads = {heads}", "use a divisor of it")
    if raw.get("head_dim") is None and hidden % heads:
        raise read.fail("num_attention_heads", f"does not divide hidden_size = {hidden}", "set head_dim")
    head_dim = read.count("head_dim", max(1, hidden // heads))
    if head_dim % 2:
        raise read.fail("head_dim", "is odd, which rotary embeddings cannot halve", "use an even number")
    if top > experts:
        raise read.fail("num_experts_per_tok", f"is above num_experts = {experts}", f"use at most {experts}")
    step, dense = read.count("decoder_sparse_step", 1), raw.get("mlp_only_layers") or []
    return Qwen3MoeConfig(
        vocab_size=read.count("vocab_size"),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        num_experts=experts,
        num_experts_per_tok=top,
        moe_layers=tuple(n for n in range(layers) if n not in dense and (n + 1) % step == 0),
        max_position_embeddings=read.count("max_position_embeddings", 32768),
        initializer_range=read.positive("initializer_range", 0.02),
        tie_word_embeddings=read.value("tie_word_embeddings", bool, False),
        intermediate_size=read.count("intermediate_size", 6144),
        moe_intermediate_size=read.count("moe_intermediate_size", 768),
        norm_topk_prob=read.value("norm_topk_prob", bool, False),
        rms_norm_eps=read.positive("rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(raw, field),
        attention_bias=read.value("attention_bias", bool, False),
    )


def _rope_theta(raw: Mapping[str, Any], field: str) -> float:
    """`rope_parameters` (v5) or `rope_theta` (before); only the default rope type."""
    rope = raw.get("rope_parameters") or {"rope_theta": raw.get("rope_theta")}
    read = Reader(rope, key_path(field, "rope_parameters"))
    read.refuse_unless("rope_type", ("default", None))
    return read.positive("rope_theta", 10000.0)


def specs(config: ModelConfig) -> list[TensorSpec]:
    """Every parameter of the whole model (the family has no persistent buffers)."""
    assert isinstance(config, Qwen3MoeConfig)
    return [
        TensorSpec(
            name=name,
            shape=shape,
            dtype="float32",
            kind=TensorKind.EXPERT if ".experts." in name else TensorKind.REPLICATED,
            layer=config.moe_layers.index(int(name.split(".")[2])) if ".experts." in name else -1,
        )
        for name, shape in _shapes(config)
    ]


def _shapes(c: Qwen3MoeConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, queries, keys = c.hidden_size, c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    yield "model.embed_tokens.weight", (c.vocab_size, hidden)
    for n in range(c.num_hidden_layers):
        at = f"model.layers.{n}"
        for name, size in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{at}.self_attn.{name}_proj.weight", (size, hidden)
            if c.attention_bias:
                yield f"{at}.self_attn.{name}_proj.bias", (size,)
        yield f"{at}.self_attn.o_proj.weight", (hidden, queries)
        if c.attention_bias:
            yield f"{at}.self_attn.o_proj.bias", (hidden,)
        yield f"{at}.self_attn.q_norm.weight", (c.head_dim,)
        yield f"{at}.self_attn.k_norm.weight", (c.head_dim,)
        if n in c.moe_layers:
            yield f"{at}.mlp.gate.weight", (c.num_experts, hidden)
            yield f"{at}.mlp.experts.gate_up_proj", (c.num_experts, 2 * c.moe_intermediate_size, hidden)
            yield f"{at}.mlp.experts.down_proj", (c.num_experts, hidden, c.moe_intermediate_size)
        else:
            yield f"{at}.mlp.gate_proj.weight", (c.intermediate_size, hidden)
            yield f"{at}.mlp.up_proj.weight", (c.intermediate_size, hidden)
            yield f"{at}.mlp.down_proj.weight", (hidden, c.intermediate_size)
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not c.tie_word_embeddings:
        yield "lm_head.weight", (c.vocab_size, hidden)
