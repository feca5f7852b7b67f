"""Gradients over the trainer ranks: summed where ranks share a parameter, and their global norm.

Losses are normalised over the whole minibatch of all ranks before the backward pass, so gradients are summed, never
averaged. A replicated parameter's gradient is summed over all ranks; an expert's over the ranks that hold the same
experts: inside an expert-parallel group the backward pass of the token exchange has summed it already.
Every gradient is a view into one flat buffer of its kind, which is zeroed, summed and scaled as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rljob_core.layouts import Layout

BUCKET_BYTES = 64 << 20
ALIGN_ELEMENTS = 64
"""Every gradient begins at a multiple of this many elements: vector loads stay aligned."""


class Gradients:
    """The gradients of one rank's parameters, kept in memory from step to step; sets `grad` of each.

    parameters: by name. experts: names of expert-parallel parameters. ep_group: the group of `layout.ep_group(rank)`.
    Every rank constructs it together.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        experts: frozenset[str],
        layout: Layout,
        rank: int,
        ep_group: dist.ProcessGroup | None,
    ) -> None:
        self._replicated = _flat([p for n, p in parameters.items() if n not in experts])
        self._experts = _flat([p for n, p in parameters.items() if n in experts])
        self._parallel = layout.world > 1
        self._ep_group = ep_group
        self._expert_replicas = _expert_replicas(layout, rank)

    def zero(self) -> None:
        """A parameter no token reaches keeps gradient 0: the same as on a rank where one does, never absent."""
        for flat in self._replicated + self._experts:
            flat.zero_()

    def sum_over_ranks(self) -> None:
        if self._parallel:
            _sum(self._replicated, None)
        if self._expert_replicas is not None:
            _sum(self._experts, self._expert_replicas)

    def norm(self) -> float:
        """L2 norm over the whole model, every expert once, equal on all ranks. After `sum_over_ranks`."""
        squared = _squared(self._replicated)
        if self._experts:
            experts = _squared(self._experts)
            if self._ep_group is not None:
                dist.all_reduce(experts, group=self._ep_group)
            squared = squared + experts
        return squared.sqrt().item()

    def scale(self, factor: float) -> None:
        for flat in self._replicated + self._experts:
            flat.mul_(factor)


def _flat(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """One buffer a type, of whose parts the parameters' gradients are made."""
    out = []
    for dtype in sorted({p.dtype for p in parameters}, key=str):
        mine = [p for p in parameters if p.dtype is dtype]
        sizes = [-(-p.numel() // ALIGN_ELEMENTS) * ALIGN_ELEMENTS for p in mine]
        flat = mine[0].new_zeros(sum(sizes), requires_grad=False)
        for parameter, part in zip(mine, torch.split(flat, sizes), strict=True):
            parameter.grad = part[: parameter.numel()].view_as(parameter)
        out.append(flat)
    return out


def _expert_replicas(layout: Layout, rank: int) -> dist.ProcessGroup | None:
    """The group of ranks that hold the same experts as this one; None when it is alone."""
    mine = None
    if layout.ep < layout.world:
        for first in range(layout.ep):
            ranks = list(range(first, layout.world, layout.ep))
            group = dist.new_group(ranks)
            mine = group if rank in ranks else mine
    return mine


def _squared(flats: Sequence[Tensor]) -> Tensor:
    """[] float32 sum of squares."""
    norms = [torch.linalg.vector_norm(flat, dtype=torch.float32) for flat in flats]
    return torch.stack(norms).square().sum()


def _sum(flats: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
    """All-reduce in place, in buckets: few large messages of bounded size."""
    for flat in flats:
        for bucket in torch.split(flat, BUCKET_BYTES // flat.element_size()):
            dist.all_reduce(bucket, group=group)
