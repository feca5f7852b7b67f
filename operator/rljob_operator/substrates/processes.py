"""Local processes in place of pods: the same entry point, the same environment, on loopback.

Every process gets a session of its own (a Ctrl-C in the terminal is the supervisor's business) and asks the kernel to
be killed with its parent, so that nothing outlives a killed supervisor.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from rljob_core import names
from rljob_core.api.spec import RLJob
from rljob_core.api.status import Reason
from rljob_core.lifecycle.model import ApplyError, ObservedWorkload, Workload
from rljob_core.names import Role
from rljob_core.worker_env import Endpoints, rendezvous_index, worker_env
from rljob_operator.reward_path import reward_python_path
from rljob_operator.substrates.child import Child
from rljob_operator.substrates.ports import LOOPBACK, Ports

ENTRY_POINT = (sys.executable, "-P", "-m", "rljob_workers")
THREADS = 1


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a run keeps things. words: termination messages, one file a process."""

    run: Path
    checkpoints: Path
    logs: Path
    words: Path
    job_file: Path
    token_file: Path
    code: Path
    """Folder of the RLJob file: the user's own reward modules are found there."""


class ProcessSubstrate:
    """Implements substrates.base.Substrate for one job.

    parent_pid: the process that starts the workers. started_at: of the job, by its first command. environ: what they
    inherit. wake: called when one ended. command: what is started for a workload. clock: unix seconds.
    """

    def __init__(
        self,
        *,
        places: Places,
        environ: Mapping[str, str],
        parent_pid: int,
        started_at: float,
        clock: Callable[[], float],
        wake: Callable[[], None],
        rng: random.Random,
        command: Sequence[str] = ENTRY_POINT,
    ) -> None:
        self._places, self._parent_pid, self._started_at = places, parent_pid, started_at
        self._environ = {k: v for k, v in environ.items() if not k.startswith("RLJOB_")}
        self._clock, self._wake, self._command = clock, wake, tuple(command)
        self._ports = Ports(rng)
        self._children: dict[str, Child] = {}
        self._attempt = 0

    async def observe(self, job: RLJob) -> tuple[ObservedWorkload, ...]:
        """See Substrate. A deleted process is forgotten once it has ended."""
        gone = [name for name, child in self._children.items() if child.deleting and not child.live]
        for name in gone:
            del self._children[name]
        return tuple(child.observe() for child in self._children.values())

    async def prepare(self, job: RLJob) -> tuple[ApplyError, ...]:
        """See Substrate. The run directory holds the job document and the token already."""
        for folder in (self._places.logs, self._places.words, self._places.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        return ()

    async def create(self, job: RLJob, workload: Workload) -> ApplyError | None:
        """See Substrate."""
        if workload.name in self._children:
            return None
        self._attempt = workload.attempt
        uid = uuid4().hex
        words = self._places.words / f"{workload.name}.json"
        words.unlink(missing_ok=True)
        child = Child(workload, uid, self._places.logs / f"{workload.name}.log", words, self._clock, self._wake)
        try:
            await child.start(self._command, self._environment(job, workload, uid, words), self._places.run)
        except OSError as error:
            return ApplyError(action="create", name=workload.name, reason=Reason.CREATE_FAILED, message=str(error))
        self._children[workload.name] = child
        self._wake()
        return None

    async def delete(self, job: RLJob, name: str, grace_s: float) -> ApplyError | None:
        """See Substrate. Returns at once; the end is observed."""
        child = self._children.get(name)
        if child is None:
            return None
        if child.live:
            child.stop(grace_s)
        else:
            del self._children[name]
        return None

    def coordinator_url(self, job: RLJob) -> str | None:
        """See Substrate."""
        return f"http://{self._ports.address(f'coordinator/{self._attempt}')}"

    def log(self, name: str) -> Path:
        """Log file of a workload."""
        return self._places.logs / f"{name}.log"

    def pids(self) -> list[int]:
        """Processes started here that still run (their own children not included)."""
        return [child.pid for child in self._children.values() if child.live]

    async def kill(self) -> None:
        """SIGKILL to everything, and wait until it is gone."""
        live = [child for child in self._children.values() if child.live]
        for child in live:
            child.kill()
        await asyncio.gather(*(child.ended() for child in live))

    def _environment(self, job: RLJob, workload: Workload, uid: str, words: Path) -> dict[str, str]:
        own = {names.ENV_PARENT_PID: str(self._parent_pid), "PYTHONUNBUFFERED": "1"}
        if workload.role is Role.REWARD:
            inherited = self._environ.get("PYTHONPATH", "")
            own["PYTHONPATH"] = os.pathsep.join(reward_python_path(inherited, self._places.code))
        return self._environ | own | worker_env(job, workload, self._endpoints(job, workload, uid, words), THREADS)

    def _endpoints(self, job: RLJob, workload: Workload, uid: str, words: Path) -> Endpoints:
        """Ports are new with every attempt (and replacement), so that no late process of an old one is met."""
        attempt = workload.attempt
        coordinator = self._ports.address(f"coordinator/{attempt}")
        master = self._ports.address(f"store-master/{attempt}")
        first = rendezvous_index(job, workload.role, workload.index)
        listen = {Role.COORDINATOR: coordinator, Role.STORE_MASTER: master}
        return Endpoints(
            coordinator=coordinator,
            rendezvous=self._ports.address(f"{workload.role}/{first}/{attempt}/{workload.replacement}"),
            store_master=master,
            listen=listen.get(workload.role, ""),
            store_metrics_port=self._ports.of(f"store-metrics/{attempt}"),
            pod_ip=LOOPBACK,
            pod_uid=uid,
            job_file=str(self._places.job_file),
            token_file=str(self._places.token_file),
            termination_log=str(words),
            run_dir=str(self._places.run),
            checkpoint_dir=str(self._places.checkpoints),
            checkpoint_durable=True,
            started_at=self._started_at,
        )
