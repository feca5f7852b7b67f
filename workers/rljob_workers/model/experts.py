"""Routed experts of one rank: a SwiGLU MLP each, stored as three-dimensional tensors (`transformers` v5 layout).

N tokens, K experts a token, E experts of the layer, S experts (slots) of this rank, H hidden, I expert width.
Two forms of the same sum: `eager` sorts rows by expert (fast); `batched` runs all experts over all tokens and
masks by weight 0, so that no shape depends on routing and a token's result not on its neighbours (deterministic).
Experts of other ranks are reached by all-to-all inside the expert-parallel group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from rljob_workers.model.exchange import exchange, exchange_counts
from rljob_workers.model.functions import apply, collect, reorder, spread, swiglu


class Experts(nn.Module):
    """The slots of this rank. placement: expert ids by rank of the group, in slot order."""

    position: Tensor
    """[E] place of an expert in rank-major slot order: the routing table."""

    def __init__(
        self,
        placement: Sequence[Sequence[int]],
        rank: int,
        hidden: int,
        width: int,
        *,
        group: dist.ProcessGroup | None,
        batched: bool,
    ) -> None:
        super().__init__()
        slots = len(placement[rank])
        self.gate_up_proj = nn.Parameter(torch.empty(slots, 2 * width, hidden))
        self.down_proj = nn.Parameter(torch.empty(slots, hidden, width))
        self.ranks, self.group, self.batched = len(placement), group, batched
        order = [expert for ids in placement for expert in ids]
        position = torch.empty(len(order), dtype=torch.int64)
        position[torch.tensor(order)] = torch.arange(len(order))
        self.register_buffer("position", position, persistent=False)

    def forward(self, x_NH: Tensor, ids_NK: Tensor, weights_NK: Tensor) -> Tensor:
        """Weighted sum of the chosen experts' outputs, [N, H]."""
        places_NK = self.position[ids_NK]
        if self.batched:
            return self._batched(x_NH, places_NK, weights_NK)
        return self._eager(x_NH, places_NK, weights_NK)

    def _eager(self, x_NH: Tensor, places_NK: Tensor, weights_NK: Tensor) -> Tensor:
        copies = places_NK.shape[1]
        order, inverse = _sorting(places_NK.flatten())
        counts_E = torch.bincount(places_NK.flatten(), minlength=self.position.numel())
        rows = spread(x_NH, order, inverse, copies)
        if self.group is None:
            out = _grouped(rows, counts_E.tolist(), self.gate_up_proj, self.down_proj)
        else:
            out = self._elsewhere(rows, counts_E, self.group)
        return collect(out, weights_NK, order, inverse)

    def _elsewhere(self, rows: Tensor, counts_E: Tensor, group: dist.ProcessGroup) -> Tensor:
        """rows: sorted by place. Each goes to its expert's rank and comes back."""
        counts_RS = counts_E.view(self.ranks, -1)
        arriving_RS = exchange_counts(counts_RS, group)
        sends, receives = counts_RS.sum(1).tolist(), arriving_RS.sum(1).tolist()
        arrived = exchange(rows, sends, receives, group)
        slots = torch.arange(arriving_RS.shape[1], device=rows.device).repeat(self.ranks)
        order, inverse = _sorting(slots.repeat_interleave(arriving_RS.flatten()))
        done = _grouped(
            reorder(arrived, order, inverse), arriving_RS.sum(0).tolist(), self.gate_up_proj, self.down_proj
        )
        return exchange(reorder(done, inverse, order), receives, sends, group)

    def _batched(self, x_NH: Tensor, places_NK: Tensor, weights_NK: Tensor) -> Tensor:
        tokens, hidden = x_NH.shape
        weights_NE = weights_NK.new_zeros(tokens, self.position.numel()).scatter(1, places_NK, weights_NK)
        if self.group is None:
            return _masked(x_NH, weights_NE, self.gate_up_proj, self.down_proj)
        sizes = exchange_counts(torch.full((self.ranks, 1), tokens, device=x_NH.device), self.group).flatten().tolist()
        sends = [tokens] * self.ranks
        weights_RNS = weights_NE.view(tokens, self.ranks, -1).transpose(0, 1)
        letters = torch.cat((x_NH.expand(self.ranks, -1, -1), weights_RNS), -1).flatten(0, 1)
        arrived = exchange(letters, sends, sizes, self.group)
        done = _masked(arrived[:, :hidden], arrived[:, hidden:], self.gate_up_proj, self.down_proj)
        return exchange(done, sizes, sends, self.group).view(self.ranks, tokens, hidden).sum(0)


def _sorting(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Stable sorting permutation of integer keys, and its inverse."""
    order = keys.argsort(stable=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(order.numel(), device=order.device)
    return order, inverse


def _masked(x_NH: Tensor, weights_NS: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Sum over all slots of weight * expert(x): two large products, weight 0 where an expert was not chosen."""
    slots, hidden, width = down.shape
    hidden_NSI = swiglu(F.linear(x_NH, gate_up.flatten(0, 1)).view(-1, slots, 2 * width))
    return (hidden_NSI * weights_NS.unsqueeze(-1)).flatten(1) @ down.transpose(1, 2).reshape(slots * width, hidden)


class _Grouped(Function):
    """Rows sorted by slot through one linear map a slot: out[i] = weight[slot of i] @ rows[i]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int], weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.counts = counts
        out = rows.new_empty(rows.shape[0], weight.shape[1])
        for x, y, w in zip(rows.split_with_sizes(counts), out.split_with_sizes(counts), weight.unbind(), strict=True):
            torch.mm(x, w.t(), out=y)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor]:
        rows, weight = ctx.saved_tensors
        rows_grad, weight_grad = torch.empty_like(rows), torch.empty_like(weight)
        parts = (
            grad.split_with_sizes(ctx.counts),
            rows.split_with_sizes(ctx.counts),
            rows_grad.split_with_sizes(ctx.counts),
        )
        for g, x, dx, w, dw in zip(*parts, weight.unbind(), weight_grad.unbind(), strict=True):
            torch.mm(g, w, out=dx)
            torch.mm(g.t(), x, out=dw)
        return rows_grad, None, weight_grad


def _grouped(rows: Tensor, counts: list[int], gate_up: Tensor, down: Tensor) -> Tensor:
    hidden = swiglu(apply(_Grouped, rows, counts, gate_up))
    return apply(_Grouped, hidden, counts, down)
