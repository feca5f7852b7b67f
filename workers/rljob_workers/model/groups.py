"""Process groups of one layout, and the gradient sums they are for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from rljob_core.layouts import Layout, TensorKind
from torch import Tensor

from rljob_workers.model.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Groups this rank belongs to; None where it would be alone."""

    world: dist.ProcessGroup | None = None
    expert_parallel: dist.ProcessGroup | None = None
    """Ranks among which one copy of the experts is spread."""
    expert_replicas: dist.ProcessGroup | None = None
    """Ranks that hold the same experts."""

    @classmethod
    def create(cls, layout: Layout, rank: int) -> Groups:
        """Collective over the initialised world: every rank calls it once."""
        if layout.world == 1:
            return cls()
        assert dist.get_world_size() == layout.world, f"world is {dist.get_world_size()}, layout {layout}"
        ranks = range(layout.world)
        return cls(
            world=dist.group.WORLD,
            expert_parallel=_mine(rank, {layout.ep_group(r) for r in ranks}),
            expert_replicas=_mine(rank, {tuple(r for r in ranks if layout.ep_rank(r) == e) for e in range(layout.ep)}),
        )


def _mine(rank: int, parts: Iterable[tuple[int, ...]]) -> dist.ProcessGroup | None:
    """Make every part's group, in the same order on every rank; returns the one `rank` is in."""
    found = None
    for ranks in sorted(parts):
        if len(ranks) > 1:
            group = dist.new_group(list(ranks))
            found = group if rank in ranks else found
    return found


def sum_gradients(policy: Policy, groups: Groups) -> None:
    """Add gradients over the ranks that share a parameter, in one message a kind.

    Replicated parameters sum over the world; experts over their replicas (the tokens of all ranks of the
    expert-parallel group are in their gradients already). The loss must be divided by whole-batch counts.
    """
    experts = {s.name for s in policy.specs if s.kind is TensorKind.EXPERT}
    named = list(policy.named_parameters())
    _sum([_gradient(p) for n, p in named if n not in experts], groups.world)
    _sum([_gradient(p) for n, p in named if n in experts], groups.expert_replicas)


def squared_norm(policy: Policy, groups: Groups) -> Tensor:
    """Squared 2-norm of the whole model's gradient, each element counted once, the same on every rank.

    Call after `sum_gradients`.
    """
    experts = {s.name for s in policy.specs if s.kind is TensorKind.EXPERT}
    squares = {
        kind: torch.stack(
            [_gradient(p).float().square().sum() for n, p in policy.named_parameters() if (n in experts) is kind]
            or [torch.zeros(())]
        ).sum()
        for kind in (True, False)
    }
    if groups.expert_parallel is not None:
        dist.all_reduce(squares[True], group=groups.expert_parallel)
    return squares[True] + squares[False]


def _gradient(parameter: torch.nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _sum(gradients: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
    if group is None or not gradients:
        return
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat, group=group)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
