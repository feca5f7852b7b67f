"""Stores under contract: in memory, and a real MooncakeStore on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from store_processes import BUDGETS, SEGMENT_BYTES, StoreProcesses

from rljob_workers.kv_store.base import BaseStore
from rljob_workers.kv_store.memory import MemoryPool, MemoryStore


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcesses]:
    """One running store for the whole session; tests keep apart by uid."""
    running = StoreProcesses(tmp_path_factory.mktemp("store")).up()
    yield running
    running.down()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[StoreProcesses]:
    """A store of one test, which may break it; not started yet."""
    running = StoreProcesses(tmp_path)
    yield running
    running.kill()


StoreFactory = Callable[..., BaseStore]


@pytest.fixture(scope="session")
def plain_client(cluster: StoreProcesses) -> Iterator[BaseStore]:
    """A client without special options: connecting and closing take a second, so the tests share it."""
    client = cluster.client("job")
    yield client
    client.close()


@pytest.fixture(params=["memory", pytest.param("mooncake", marks=pytest.mark.processes)])
def open_store(request: pytest.FixtureRequest) -> Iterator[StoreFactory]:
    """Makes clients of one pool of SEGMENT_BYTES; closes them, and leaves the pool empty."""
    stores: list[BaseStore] = []
    pool = MemoryPool(capacity=SEGMENT_BYTES)
    running: StoreProcesses | None = request.getfixturevalue("cluster") if request.param == "mooncake" else None
    plain: BaseStore | None = request.getfixturevalue("plain_client") if running else None

    def make(uid: str = "job", **options: Any) -> BaseStore:
        if running is None:
            stores.append(MemoryStore(uid=uid, pool=pool, **{"budgets": BUDGETS, **options}))
        elif plain and uid == "job" and not options and plain not in stores:
            stores.append(plain)
        else:
            stores.append(running.client(uid, **options))
        return stores[-1]

    yield make
    for store in stores:
        if store._open:
            store.sweep("")
    for store in stores:
        if store is not plain:
            store.close()
