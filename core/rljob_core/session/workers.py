"""Who is registered, who is late, who replaced whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rljob_core.api.messages import Register
from rljob_core.names import Role

HEARTBEAT_S = 3.0
LOST_AFTER_S = 3 * HEARTBEAT_S
"""Three missed heartbeats: the worker is lost and its leases return."""
SILENT_AFTER_S = 30.0
"""A worker lost without a goodbye that has not come back within this: its pod is to be replaced, if it still runs."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """One registered process. version: what its weights prove; pulling: version it was told to pull."""

    worker_id: int
    role: Role
    pod: str
    pod_uid: str
    rank: int
    group: int
    last_seen: float
    version: int = -1
    pulling: int | None = None


class Registry:
    """Registered workers by id. An index that registers again under another uid replaces the old one."""

    def __init__(self) -> None:
        self._workers: dict[int, Worker] = {}
        self._last_id = 0
        self._missing: dict[tuple[Role, int], Worker] = {}
        """Lost without a goodbye and not back, by role and rank."""
        self._left: dict[tuple[Role, int], float] = {}
        """When a rank was last heard of that is not registered any more."""

    def register(self, message: Register, now: float) -> tuple[Worker, Worker | None]:
        """(the worker, the one it replaces). The same incarnation that connects again keeps its id and leases."""
        role = Role(message.role)
        self._missing.pop((role, message.rank), None)
        self._left.pop((role, message.rank), None)
        old = next((w for w in self._workers.values() if w.role is role and w.rank == message.rank), None)
        if old is not None and old.pod_uid == message.pod_uid and old.pod == message.pod:
            old.last_seen = now
            return old, None
        if old is not None:
            del self._workers[old.worker_id]
        self._last_id += 1
        worker = Worker(
            worker_id=self._last_id, role=role, pod=message.pod, pod_uid=message.pod_uid, rank=message.rank,
            group=message.group, last_seen=now,
        )  # fmt: skip
        self._workers[worker.worker_id] = worker
        return worker, old

    def get(self, worker_id: int) -> Worker | None:
        return self._workers.get(worker_id)

    def remove(self, worker_id: int) -> Worker | None:
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            self._left[(worker.role, worker.rank)] = worker.last_seen
        return worker

    def miss(self, worker: Worker) -> None:
        """It was lost, and nobody knows how."""
        self._missing[(worker.role, worker.rank)] = worker

    def silent(self, now: float) -> list[str]:
        """Pods whose workers have been missing for SILENT_AFTER_S: hung, stopped or cut off, where they still run."""
        return sorted({w.pod for w in self._missing.values() if now - w.last_seen > SILENT_AFTER_S})

    def absent(self, role: Role, ranks: int, before: float, started_at: float) -> list[int]:
        """Ranks below `ranks` that nobody has been registered for since `before`; started_at: of the coordinator."""
        here = {w.rank for w in self._workers.values() if w.role is role}
        if len(here) >= ranks:
            return []
        return [r for r in range(ranks) if r not in here and self._left.get((role, r), started_at) < before]

    def of(self, role: Role) -> list[Worker]:
        """Registered workers of a role, by rank."""
        return sorted((w for w in self._workers.values() if w.role is role), key=lambda w: w.rank)

    def overdue(self, now: float) -> list[Worker]:
        """Workers not heard of for too long."""
        return [w for w in self._workers.values() if now - w.last_seen > LOST_AFTER_S]

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers.values()))

    def __len__(self) -> int:
        return len(self._workers)
