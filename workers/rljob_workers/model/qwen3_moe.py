"""The Qwen3-MoE family (`transformers` Qwen3MoeForCausalLM): module, tensor names and layout on disk.

H hidden, V vocabulary, A query heads, K key-value heads, D head dimension, E experts, I expert width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rljob_core.layouts import TensorKind, TensorSpec
from rljob_core.models.config import ModelConfig
from rljob_core.models.qwen3_moe import Qwen3MoeConfig, specs
from rljob_workers.model.attention import Attention
from rljob_workers.model.experts import Experts
from rljob_workers.model.family import Family, Piece
from rljob_workers.model.functions import rms_norm, rotary, rotary_table, swiglu
from rljob_workers.model.policy import Placement, Policy, RoutingCounts


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


FAMILY = Family(model_type="qwen3_moe", architecture="Qwen3MoeForCausalLM", pieces=pieces, build=Qwen3MoePolicy)
