"""Gradients over the trainer ranks: summed where ranks share a parameter, and their global norm.

Losses are normalised over the whole minibatch of all ranks before the backward pass, so gradients are summed, never
averaged. A replicated parameter's gradient is summed over all ranks; an expert's over the ranks that hold the same
experts: inside an expert-parallel group the backward pass of the token exchange has summed it already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from rljob_core.layouts import Layout

BUCKET_BYTES = 64 << 20


class Gradients:
    """The gradients of one rank's parameters, kept in memory from step to step.

    by_name: parameter name -> gradient. experts: names of expert-parallel parameters. ep_group: the group of
    `layout.ep_group(rank)`. Every rank constructs it together.
    """

    def __init__(
        self,
        by_name: Mapping[str, Tensor],
        experts: frozenset[str],
        layout: Layout,
        rank: int,
        ep_group: dist.ProcessGroup | None,
    ) -> None:
        self._replicated = [g for n, g in by_name.items() if n not in experts]
        self._experts = [g for n, g in by_name.items() if n in experts]
        self._parallel = layout.world > 1
        self._ep_group = ep_group
        self._expert_replicas = _expert_replicas(layout, rank)

    def zero(self) -> None:
        """A parameter no token reaches keeps gradient 0: the same as on a rank where one does, never absent."""
        torch._foreach_zero_(self._replicated + self._experts)

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
        torch._foreach_mul_(self._replicated + self._experts, factor)


def _expert_replicas(layout: Layout, rank: int) -> dist.ProcessGroup | None:
    """The group of ranks that hold the same experts as this one; None when it is alone."""
    mine = None
    if layout.ep < layout.world:
        for first in range(layout.ep):
            ranks = list(range(first, layout.world, layout.ep))
            group = dist.new_group(ranks)
            mine = group if rank in ranks else mine
    return mine


def _squared(gradients: Sequence[Tensor]) -> Tensor:
    """[] float32 sum of squares."""
    return torch.stack([g.float().square().sum() for g in gradients]).sum()


def _sum(gradients: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
    """All-reduce in bounded concatenated buckets: few large messages, one bucket of extra memory."""
    for bucket in _buckets(gradients):
        flat = torch.cat([g.flatten() for g in bucket])
        dist.all_reduce(flat, group=group)
        for gradient, part in zip(bucket, torch.split(flat, [g.numel() for g in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and size + gradient.nbytes > BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket
