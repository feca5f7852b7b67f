"""How the job's store is divided: bytes a use may take, and this process's part of them.

Uses are kept apart so that none can push out another; a tenth stays free, because the store looks for room slowly when
it is nearly full.
"""

from __future__ import annotations

from collections.abc import Sequence

from rljob_core.api.placement import KVStore
from rljob_core.layouts import Layout, TensorSpec
from rljob_workers.context import Context

SHARES = {"kv": 0.40, "queue": 0.15, "weights": 0.35}
EVEN = 0.10
"""Part of the weights' share that is the same for all ranks: each writes a manifest, whatever else it publishes."""
EXTERNAL_BYTES = 64 << 30
"""What a job may take of a store whose size it does not know."""


def store_bytes(store: KVStore) -> int:
    """Bytes of the pool."""
    managed = store.managed_store
    return EXTERNAL_BYTES if managed is None else managed.segments * managed.segment_bytes


def rollout_budgets(context: Context) -> dict[str, int]:
    """Use -> bytes this rank may keep there. All ranks prefill; the first of a group commits the samples of all."""
    total = store_bytes(context.spec.kv_store)
    out = {"kv": int(total * SHARES["kv"]) // context.world}
    if context.group_rank == 0:
        out["queue"] = int(total * SHARES["queue"]) // context.spec.rollout.groups
    return out


def trainer_budgets(context: Context, layout: Layout, tensors: Sequence[TensorSpec]) -> dict[str, int]:
    """Use -> bytes this rank may keep there: by what it publishes, which differs (experts that data parallel ranks
    hold alike are published by the first of them). So one rank is out of room only where all together would be."""
    total = int(store_bytes(context.spec.kv_store) * SHARES["weights"])
    published = layout.published_elements(tensors)
    even = int(total * EVEN)
    return {"weights": even // layout.world + (total - even) * published[context.rank] // sum(published)}
