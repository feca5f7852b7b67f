"""The ranks of one rollout group: rank 0 talks to the coordinator, all ranks compute together.

A group of one rank takes no collective at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from rljob_core.api.messages import RolloutWork
from rljob_core.layouts import Layout
from rljob_workers import device
from rljob_workers.context import Context
from rljob_workers.model import expert_parallel_group

COLLECTIVE_TIMEOUT_S = 600.0
COLUMNS = ("rows", "attempts", "prompt_ids", "sample_indices", "prompts", "kv_keys")
Value = TypeVar("Value")


class Group:
    """This rank's view of its group. host: gloo group of all its ranks, ep_group: those that share one set of experts;
    both None for one rank."""

    def __init__(
        self,
        layout: Layout,
        rank: int,
        host: dist.ProcessGroup | None = None,
        ep_group: dist.ProcessGroup | None = None,
    ) -> None:
        self.layout, self.rank, self.size = layout, rank, layout.world
        self.host, self.ep_group = host, ep_group

    @property
    def leads(self) -> bool:
        """This rank talks to the coordinator."""
        return self.rank == 0

    def share(self, value: Value | None) -> Value:
        """Rank 0's value, on every rank."""
        box = [value]
        if self.host is not None:
            dist.broadcast_object_list(box, group_src=0, group=self.host)
        shared = box[0]
        assert shared is not None
        return shared

    def gather(self, value: Value) -> list[Value]:
        """Every rank's value in rank order, on rank 0; empty elsewhere."""
        if self.host is None:
            return [value]
        box: list[Value | None] | None = [None] * self.size if self.leads else None
        dist.gather_object(value, box, group_dst=0, group=self.host)
        return [v for v in box or [] if v is not None]


@contextmanager
def open_group(context: Context) -> Iterator[Group]:
    """torch.distributed over the group's ranks, where there is more than one. All of them call together."""
    layout = Layout(**context.spec.rollout.layout.model_dump())
    if layout.world == 1:
        yield Group(layout, 0)
        return
    dist.init_process_group(
        device.backend(context.device),
        init_method=f"tcp://{context.rendezvous}",
        rank=context.group_rank,
        world_size=layout.world,
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )
    try:
        host = dist.new_group(backend="gloo")
        yield Group(layout, context.group_rank, host, expert_parallel_group(layout, context.group_rank))
    finally:
        dist.destroy_process_group()


def part(work: RolloutWork, indices: Sequence[int]) -> RolloutWork:
    """The work's rows at some indices."""
    columns = {name: getattr(work, name) for name in COLUMNS}
    return work.model_copy(update={name: [c[i] for i in indices] for name, c in columns.items() if c})


def spread(count: int, held: Sequence[int]) -> list[list[int]]:
    """Indices 0 to count - 1 over ranks that hold `held` units already, each to the one with fewest."""
    out: list[list[int]] = [[] for _ in held]
    for index in range(count):
        rank = min(range(len(held)), key=lambda r: (held[r] + len(out[r]), r))
        out[rank].append(index)
    return out
