"""How the job's store is divided: bytes a use may take, and this process's part of them.

Uses are kept apart so that none can push out another; a tenth stays free, because the store looks for room slowly when
it is nearly full.
"""

from __future__ import annotations

from rljob_core.api.placement import KVStore
from rljob_core.names import Role
from rljob_workers.context import Context

SHARES = {"kv": 0.40, "queue": 0.15, "weights": 0.35}
WRITERS = {Role.ROLLOUT: ("kv", "queue"), Role.TRAINER: ("weights",)}
EXTERNAL_BYTES = 64 << 30
"""What a job may take of a store whose size it does not know."""


def store_bytes(store: KVStore) -> int:
    """Bytes of the pool."""
    managed = store.managed_store
    return EXTERNAL_BYTES if managed is None else managed.segments * managed.segment_bytes


def budgets(context: Context) -> dict[str, int]:
    """Use -> bytes this process may keep there; empty for roles that only read."""
    total = store_bytes(context.spec.kv_store)
    return {use: int(total * SHARES[use]) // context.world for use in WRITERS.get(context.role, ())}
