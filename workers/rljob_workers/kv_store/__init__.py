"""MooncakeStore as workers see it: bytes under keys of one job, hard-pinned, within a byte budget per use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rljob_workers.context import Context
    from rljob_workers.seams import KVStore


def open_store(context: Context, budgets: Mapping[str, int]) -> KVStore:
    """The job's store as a pure client (no segment of its own).

    budgets: use (first part of a key: `kv`, `queue`, `weights`) -> bytes this process may keep there; a use that is
    not listed may be read and removed, not written. Blocks until the master answers; StoreError when it does not.
    """
    from rljob_workers.kv_store.mooncake import SEE_LOG, MooncakeStore

    external = context.spec.kv_store.external is not None
    return MooncakeStore(
        uid=context.job.metadata.uid,
        master=context.store_master,
        local_ip=context.pod_ip,
        protocol=context.spec.kv_store.protocol,
        budgets=budgets,
        remedy="correct spec.kvStore.external.masterAddress, or start that store" if external else SEE_LOG,
    )
