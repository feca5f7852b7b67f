"""The process group in which one copy of the experts is spread."""

from __future__ import annotations

import torch.distributed as dist

from rljob_core.layouts import Layout


def expert_parallel_group(layout: Layout, rank: int) -> dist.ProcessGroup | None:
    """This rank's group; None where ep is 1. Collective over the initialised world (of the trainer, or of one
    rollout group): every rank calls it, and makes every group in the same order."""
    mine = None
    for first in range(0, layout.world, layout.ep):
        ranks = layout.ep_group(first)
        if len(ranks) > 1:
            group = dist.new_group(list(ranks))
            mine = group if rank in ranks else mine
    return mine
