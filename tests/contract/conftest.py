"""Stores under contract: in memory, and a real MooncakeStore on loopback started the way a job starts it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rljob_core import names
from rljob_core.api.placement import StoreProtocol
from rljob_workers.kv_store.base import BaseStore
from rljob_workers.kv_store.health import service_ready
from rljob_workers.kv_store.memory import MemoryPool, MemoryStore

SEGMENT_BYTES = 64 << 20
BUDGETS = {"kv": 1 << 30, "queue": 1 << 30, "weights": 1 << 30}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Cluster:
    """A master and its segments as processes of their own."""

    directory: Path
    segment_bytes: int = SEGMENT_BYTES
    port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, role: names.Role) -> subprocess.Popen[bytes]:
        job = self.directory / "job.json"
        spec: dict[str, Any] = {
            "model": {"init": {"config": {}}},
            "data": {"generator": {"task": "copy-digits"}},
            "reward": {"exactMatch": {}},
            "algorithm": {},
            "kvStore": {"managed": {"segmentBytes": self.segment_bytes}},
        }
        job.write_text(json.dumps({"metadata": {"name": "j", "uid": "u"}, "spec": spec}))
        environment = {
            names.ENV_JOB_FILE: str(job),
            names.ENV_ROLE: str(role),
            names.ENV_TERMINATION_LOG: str(self.directory / "last-words.json"),
            names.ENV_LISTEN: self.address,
            names.ENV_STORE_MASTER: self.address,
            names.ENV_STORE_METRICS_PORT: str(self.metrics_port),
            names.ENV_POD_IP: "127.0.0.1",
        }
        with (self.directory / f"{role}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "rljob_workers"], env=os.environ | environment, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def up(self, segments: int = 1) -> Cluster:
        self.start(names.Role.STORE_MASTER)
        self.wait_until(self.ready)
        for _ in range(segments):
            self.start(names.Role.STORE)
        self.wait_until(lambda: self.segments() == segments)
        return self

    def segments(self) -> int:
        import urllib.request

        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/get_all_segments", timeout=5) as reply:
            return len(reply.read().split())

    @staticmethod
    def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def ready(self) -> bool:
        return service_ready("127.0.0.1", self.metrics_port)

    def client(self, uid: str = "u", **options: Any) -> BaseStore:
        from rljob_workers.kv_store.mooncake import MooncakeStore

        return MooncakeStore(
            uid=uid,
            master=self.address,
            local_ip="127.0.0.1",
            protocol=StoreProtocol.TCP,
            **{"budgets": BUDGETS, "wait_s": 10.0, **options},
        )

    def down(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(20)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One running store for the whole session; tests keep apart by uid."""
    running = Cluster(tmp_path_factory.mktemp("store")).up()
    yield running
    running.down()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A store of one test, which may break it; not started yet."""
    running = Cluster(tmp_path)
    yield running
    for process in running.processes:
        process.kill()
        process.wait()


StoreFactory = Callable[..., BaseStore]


@pytest.fixture(scope="session")
def plain_client(cluster: Cluster) -> Iterator[BaseStore]:
    """A client without special options: connecting and closing take a second, so the tests share it."""
    client = cluster.client("job")
    yield client
    client.close()


@pytest.fixture(params=["memory", pytest.param("mooncake", marks=pytest.mark.processes)])
def open_store(request: pytest.FixtureRequest) -> Iterator[StoreFactory]:
    """Makes clients of one pool of SEGMENT_BYTES; closes them, and leaves the pool empty."""
    stores: list[BaseStore] = []
    pool = MemoryPool(capacity=SEGMENT_BYTES)
    running: Cluster | None = request.getfixturevalue("cluster") if request.param == "mooncake" else None
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
