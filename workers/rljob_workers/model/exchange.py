"""Exchange of rows inside an expert-parallel group, with gradients that travel the same way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from rljob_workers.model.functions import apply


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sends: list[int], receives: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.sends, ctx.receives, ctx.group = sends, receives, group
        return _all_to_all(rows, sends, receives, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _all_to_all(grad, ctx.receives, ctx.sends, ctx.group), None, None, None


def _all_to_all(rows: Tensor, sends: list[int], receives: list[int], group: dist.ProcessGroup) -> Tensor:
    out = rows.new_empty((sum(receives), *rows.shape[1:]))
    dist.all_to_all_single(out, rows.contiguous(), receives, sends, group=group)
    return out


def exchange(rows: Tensor, sends: Sequence[int], receives: Sequence[int], group: dist.ProcessGroup) -> Tensor:
    """Send sends[r] consecutive rows to each rank r; returns receives[r] rows of each rank, in rank order."""
    return apply(_AllToAll, rows, list(sends), list(receives), group)


def exchange_counts(counts: Tensor, group: dist.ProcessGroup) -> Tensor:
    """counts: [ranks, n] integers, row r for rank r; returns what each rank has for this one, [ranks, n]."""
    out = torch.empty_like(counts)
    dist.all_to_all_single(out, counts.contiguous(), group=group)
    return out
