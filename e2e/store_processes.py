"""A real MooncakeStore on loopback, for tests that share one or break one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rljob_core import names
from rljob_core.api.placement import StoreProtocol
from rljob_workers.kv_store.base import BaseStore
from rljob_workers.kv_store.health import service_ready
from rljob_workers.kv_store.mooncake import MooncakeStore

SEGMENT_BYTES = 64 << 20
BUDGETS = {"kv": 1 << 30, "queue": 1 << 30, "weights": 1 << 30}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class StoreProcesses:
    """A master and its segments, each a process started the way a job starts it."""

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

    def up(self, segments: int = 1) -> StoreProcesses:
        self.start(names.Role.STORE_MASTER)
        self.wait_until(self.ready)
        for _ in range(segments):
            self.start(names.Role.STORE)
        self.wait_until(lambda: self.segments() == segments)
        return self

    def segments(self) -> int:
        return len(self._asked("get_all_segments").split())

    def all_keys(self) -> list[str]:
        """Every key of every job."""
        return self._asked("get_all_keys").split()

    def metric(self, name: str) -> int:
        """One of the master's counters."""
        return next(int(line.split()[1]) for line in self._asked("metrics").splitlines() if line.startswith(f"{name} "))

    def _asked(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/{path}", timeout=5) as reply:
            return str(reply.read().decode())

    @staticmethod
    def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def ready(self) -> bool:
        return service_ready("127.0.0.1", self.metrics_port)

    def client(self, uid: str = "u", **options: Any) -> BaseStore:
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

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
