"""The Qwen3-MoE family (`transformers` Qwen3MoeForCausalLM): module, tensor names and layout on disk.

H hidden, V vocabulary, A query heads, K key-value heads, D head dimension, E experts, I expert width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rljob_core.layouts import TensorKind, TensorSpec
from rljob_workers.model.attention import Attention
from rljob_workers.model.config import ModelConfig, Reader, key_path
from rljob_workers.model.experts import Experts
from rljob_workers.model.family import Family, Piece
from rljob_workers.model.functions import rms_norm, rotary, rotary_table, swiglu
from rljob_workers.model.policy import Placement, Policy, RoutingCounts


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
        initializer_range=read.value("initializer_range", float, 0.02),
        tie_word_embeddings=read.value("tie_word_embeddings", bool, False),
        intermediate_size=read.count("intermediate_size", 6144),
        moe_intermediate_size=read.count("moe_intermediate_size", 768),
        norm_topk_prob=read.value("norm_topk_prob", bool, False),
        rms_norm_eps=read.value("rms_norm_eps", float, 1e-6),
        rope_theta=_rope_theta(raw, field),
        attention_bias=read.value("attention_bias", bool, False),
    )


def _rope_theta(raw: Mapping[str, Any], field: str) -> float:
    """`rope_parameters` (v5) or `rope_theta` (before); only the default rope type."""
    rope = raw.get("rope_parameters") or {"rope_theta": raw.get("rope_theta")}
    read = Reader(rope, key_path(field, "rope_parameters"))
    read.refuse_unless("rope_type", ("default", None))
    return read.value("rope_theta", float, 10000.0)


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


def pieces(spec: TensorSpec) -> list[Piece]:
    """How a tensor lies on disk: experts one by one, gate before up; everything else as it is."""
    if spec.kind is not TensorKind.EXPERT:
        return [Piece(name=spec.name, index=())]
    stem, leaf = spec.name.rsplit(".", 1)
    out = []
    for expert in range(spec.shape[0]):
        if leaf == "down_proj":
            out.append(Piece(name=f"{stem}.{expert}.down_proj.weight", index=(expert,)))
        else:
            half = spec.shape[1] // 2
            out.append(Piece(name=f"{stem}.{expert}.gate_proj.weight", index=(expert, slice(0, half))))
            out.append(Piece(name=f"{stem}.{expert}.up_proj.weight", index=(expert, slice(half, None))))
    return out


class _Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class _SelfAttention(nn.Module):
    def __init__(self, c: Qwen3MoeConfig) -> None:
        super().__init__()
        queries, keys = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.head_dim = c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, queries, bias=c.attention_bias)
        self.k_proj = nn.Linear(c.hidden_size, keys, bias=c.attention_bias)
        self.v_proj = nn.Linear(c.hidden_size, keys, bias=c.attention_bias)
        self.o_proj = nn.Linear(queries, c.hidden_size, bias=c.attention_bias)
        self.q_norm = _Norm(c.head_dim, c.rms_norm_eps)
        self.k_norm = _Norm(c.head_dim, c.rms_norm_eps)

    def forward(self, x_BTH: Tensor, layer: int, cos: Tensor, sin: Tensor, attention: Attention) -> Tensor:
        heads = (-1, self.head_dim)
        q = rotary(self.q_norm(self.q_proj(x_BTH).unflatten(-1, heads)), cos, sin)
        k = rotary(self.k_norm(self.k_proj(x_BTH).unflatten(-1, heads)), cos, sin)
        out: Tensor = self.o_proj(attention(layer, q, k, self.v_proj(x_BTH).unflatten(-1, heads)))
        return out


class _DenseMLP(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor, counts: RoutingCounts | None) -> Tensor:
        out: Tensor = self.down_proj(swiglu(torch.cat((self.gate_proj(x), self.up_proj(x)), -1)))
        return out


class _Router(nn.Module):
    """Softmax over all experts in float32, the top few kept (and renormalised with norm_topk_prob)."""

    def __init__(self, c: Qwen3MoeConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c.num_experts, c.hidden_size))
        self.top, self.renormalise = c.num_experts_per_tok, c.norm_topk_prob

    def forward(self, x_NH: Tensor) -> tuple[Tensor, Tensor]:
        """Expert ids and weights, both [N, top]."""
        shares = F.softmax(F.linear(x_NH, self.weight), -1, dtype=torch.float32)
        weights, ids = shares.topk(self.top, -1)
        if self.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        return ids, weights.to(x_NH.dtype)


class _MoE(nn.Module):
    def __init__(self, c: Qwen3MoeConfig, layer: int, at: Placement) -> None:
        super().__init__()
        self.layer = c.moe_layers.index(layer)
        self.gate = _Router(c)
        self.experts = Experts(
            at.experts(self.layer, c.num_experts),
            at.layout.ep_rank(at.rank),
            c.hidden_size,
            c.moe_intermediate_size,
            group=at.ep_group,
            batched=at.deterministic,
        )

    def forward(self, x_BTH: Tensor, counts: RoutingCounts | None) -> Tensor:
        x_NH = x_BTH.reshape(-1, x_BTH.shape[-1])
        ids, weights = self.gate(x_NH)
        if counts is not None:
            counts.add(self.layer, ids)
        return self.experts(x_NH, ids, weights).view(x_BTH.shape)  # type: ignore[no-any-return]


class _Layer(nn.Module):
    def __init__(self, c: Qwen3MoeConfig, layer: int, at: Placement) -> None:
        super().__init__()
        self.layer = layer
        self.self_attn = _SelfAttention(c)
        self.mlp = _MoE(c, layer, at) if layer in c.moe_layers else _DenseMLP(c.hidden_size, c.intermediate_size)
        self.input_layernorm = _Norm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = _Norm(c.hidden_size, c.rms_norm_eps)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, attention: Attention, counts: RoutingCounts | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), self.layer, cos, sin, attention)
        return x + self.mlp(self.post_attention_layernorm(x), counts)  # type: ignore[no-any-return]


class _Backbone(nn.Module):
    inverse_frequencies: Tensor

    def __init__(self, c: Qwen3MoeConfig, at: Placement) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(_Layer(c, n, at) for n in range(c.num_hidden_layers))
        self.norm = _Norm(c.hidden_size, c.rms_norm_eps)
        exponents = torch.arange(0, c.head_dim, 2, dtype=torch.float32) / c.head_dim
        self.register_buffer("inverse_frequencies", 1.0 / c.rope_theta**exponents, persistent=False)


class Qwen3MoePolicy(Policy):
    """Qwen3MoeForCausalLM, the shard of one rank."""

    config: Qwen3MoeConfig

    def __init__(self, config: ModelConfig, placement: Placement) -> None:
        super().__init__()
        assert isinstance(config, Qwen3MoeConfig)
        self.config, self.placement, self.specs = config, placement, specs(config)
        self.model = _Backbone(config, placement)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def hidden(
        self, ids_BT: Tensor, positions: Tensor, attention: Attention, counts: RoutingCounts | None = None
    ) -> Tensor:
        model = self.model
        x = model.embed_tokens(ids_BT)
        angles = (positions.unsqueeze(-1).float() * model.inverse_frequencies.float()).unsqueeze(-2)
        cos, sin = (table.to(x.dtype) for table in rotary_table(angles))
        for layer in model.layers:
            x = layer(x, cos, sin, attention, counts)
        out: Tensor = model.norm(x)
        return out

    def head(self, hidden: Tensor) -> Tensor:
        weight = self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight
        return F.linear(hidden, weight)


FAMILY = Family(model_type="qwen3_moe", architecture="Qwen3MoeForCausalLM", parse=parse, specs=specs,
                pieces=pieces, build=Qwen3MoePolicy)  # fmt: skip
