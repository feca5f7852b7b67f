"""Grouped-query attention against what the caller chose: the sequence itself, or a cache.

B rows, T tokens, A query heads, K key-value heads, G = A / K, D head dimension, L cached positions.
The three attentions share one signature, so that a family's file does not know which phase it runs in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

SHORT_TOKENS = 128
"""Longest row whose scores are materialised: below it, the fused kernel's backward costs twice as much on CPU."""


class Attention(Protocol):
    """softmax(q k^T / sqrt(D)) v for one layer."""

    def __call__(self, layer: int, q_BTAD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        """Returns [B, T, A x D]."""
        ...


class Causal:
    """Each token sees itself and what precedes it in its row; padding to the right is never seen."""

    def __call__(self, layer: int, q_BTAD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        rows, tokens, heads, dim = q_BTAD.shape
        if tokens > SHORT_TOKENS:
            q, k, v = (x.transpose(1, 2) for x in (q_BTAD, k_BTKD, v_BTKD))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return out.transpose(1, 2).reshape(rows, tokens, heads * dim)
        kv_heads = k_BTKD.shape[2]
        group = heads // kv_heads
        q = q_BTAD.view(rows, tokens, kv_heads, group, dim).permute(0, 2, 3, 1, 4).reshape(-1, group * tokens, dim)
        k, v = (x.transpose(1, 2).reshape(-1, tokens, dim) for x in (k_BTKD, v_BTKD))
        unseen = q.new_full((tokens, tokens), float("-inf")).tril_(-1).repeat(1, group)
        # Keys by queries: the softmax runs over the outer dimension, which vectorises for short rows.
        scores = torch.baddbmm(unseen, k, q.transpose(1, 2), alpha=dim**-0.5)
        out = torch.bmm(_softmax(scores, 1).transpose(1, 2), v)
        out_BTAD = out.view(rows, kv_heads, group, tokens, dim).permute(0, 3, 1, 2, 4)
        return out_BTAD.reshape(rows, tokens, heads * dim)


@dataclass
class Recorded:
    """Causal attention that keeps keys (rotated) and values of every layer, for a prefill."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    _causal: Causal = field(default_factory=Causal)

    def __call__(self, layer: int, q_BTAD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        self.keys.append(k_BTKD)
        self.values.append(v_BTKD)
        return self._causal(layer, q_BTAD, k_BTKD, v_BTKD)


class Cached:
    """One new token a row against its cache; writes the token's key and value at the row's position.

    cache: [layers, 2, B, K, L, D] (a view: rows and positions in use). positions_B: index of the new token.
    """

    def __init__(self, cache: Tensor, positions_B: Tensor) -> None:
        self.cache, self.positions = cache, positions_B
        self.rows = torch.arange(positions_B.numel(), device=cache.device)
        places = torch.arange(cache.shape[4], device=cache.device)
        self.unseen = (places > positions_B.unsqueeze(1)).view(-1, 1, 1, places.numel())

    def __call__(self, layer: int, q_BTAD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        rows, _, heads, dim = q_BTAD.shape
        keys, values = self.cache[layer, 0], self.cache[layer, 1]
        keys[self.rows, :, self.positions] = k_BTKD.squeeze(1)
        values[self.rows, :, self.positions] = v_BTKD.squeeze(1)
        q_BKGD = q_BTAD.view(rows, keys.shape[1], heads // keys.shape[1], dim)
        scores = (q_BKGD @ keys.transpose(2, 3)).mul_(dim**-0.5).masked_fill_(self.unseen, float("-inf"))
        return (_softmax(scores, -1) @ values).view(rows, 1, heads * dim)


def _softmax(scores: Tensor, dim: int) -> Tensor:
    return F.softmax(scores, dim, dtype=torch.float32).to(scores.dtype)
