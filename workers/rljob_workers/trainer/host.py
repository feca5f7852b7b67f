"""What trainer ranks exchange on the host, over gloo whatever the device's backend is: counts, decisions, tensors.

One rank takes no collective at all. Gradients travel in `gradients`, over the device's own backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rljob_core.layouts import Layout, TensorKind
from rljob_workers.model import Policy

Value = TypeVar("Value")


class Host:
    """All trainer ranks, as this rank sees them. Every rank constructs it, after torch.distributed is initialised."""

    def __init__(self, layout: Layout, rank: int) -> None:
        self.layout, self.rank, self.world = layout, rank, layout.world
        self._group = dist.new_group(backend="gloo") if self.world > 1 else None

    def sum_(self, values: Tensor) -> Tensor:
        """Sum of a host tensor over all ranks, in place."""
        if self._group is not None:
            dist.all_reduce(values, group=self._group)
        return values

    def max_(self, values: Tensor) -> Tensor:
        """Elementwise largest of a host tensor over all ranks, in place."""
        if self._group is not None:
            dist.all_reduce(values, op=dist.ReduceOp.MAX, group=self._group)
        return values

    def largest(self, value: int) -> int:
        """Largest of the ranks' values."""
        return int(self.max_(torch.tensor(value)))

    def from_rank_0(self, decide: Callable[[], Value]) -> Value:
        """Rank 0's decision, on every rank."""
        if self._group is None:
            return decide()
        box: list[Value | None] = [decide() if self.rank == 0 else None]
        dist.broadcast_object_list(box, src=0, group=self._group)
        value: Value = box[0]  # type: ignore[assignment]
        return value

    def barrier(self) -> None:
        if self._group is not None:
            dist.barrier(self._group)

    def whole_tensors(self, policy: Policy) -> dict[str, Tensor]:
        """Every tensor of the model on the host, put together on rank 0 (elsewhere: empty). All ranks call together.

        Peak host memory of rank 0: the whole model.
        """
        local = policy.local_tensors()
        out = {}
        for spec in policy.specs:
            tensor = local[spec.name].cpu()
            if spec.kind is TensorKind.EXPERT and self.layout.ep > 1:
                tensor = self._all_experts(tensor)
            if self.rank == 0:
                out[spec.name] = tensor
        return out

    def _all_experts(self, shard: Tensor) -> Tensor:
        """[E, ...] on rank 0: the shards of ranks 0 to ep - 1, which hold each expert once, in expert order."""
        if self.rank == 0:
            shards = [shard] + [torch.empty_like(shard) for _ in range(1, self.layout.ep)]
            for source in range(1, self.layout.ep):
                dist.recv(shards[source], src=source, group=self._group)
            return torch.cat(shards)
        if self.rank < self.layout.ep:
            dist.send(shard.contiguous(), dst=0, group=self._group)
        return shard
