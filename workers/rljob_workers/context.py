"""What one worker process knows of itself and its job: read once from the environment, then passed on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rljob_core import names
from rljob_core.api.spec import RLJob, RLJobSpec
from rljob_core.errors import InvalidInputError
from rljob_core.names import Role


@dataclass(frozen=True, kw_only=True)
class Context:
    """Identity, addresses and directories of one worker process; the same on both substrates.

    Addresses are `host:port`, empty where a role needs none. Times are unix seconds.
    """

    job: RLJob
    role: Role
    pod_name: str = ""
    pod_uid: str = ""
    """Unique per process incarnation of the pod: tells a replaced pod from its predecessor."""
    pod_index: int = 0
    """Index of the pod inside its role."""
    attempt: int = 0
    devices_per_pod: int = 1
    local_rank: int = 0
    device: str = "cpu"
    """cpu, npu or cuda."""
    threads: int = 1
    """Compute threads of this process."""
    token: str = field(default="", repr=False)
    coordinator: str = ""
    listen: str = ""
    """What the coordinator (or the store master) binds."""
    rendezvous: str = ""
    """torch.distributed rank 0 of this role's world (rollout: of this group)."""
    store_master: str = ""
    store_metrics_port: int = names.PORT_STORE_METRICS
    pod_ip: str = "127.0.0.1"
    """Address at which other pods reach this one."""
    run_dir: Path | None = None
    checkpoint_dir: Path | None = None
    checkpoint_durable: bool = False
    """The checkpoint directory outlives the pods: resume is promised."""
    termination_log: Path = Path(names.TERMINATION_LOG)
    started_at: float = 0.0
    """When the job's workloads were first wanted."""

    @property
    def spec(self) -> RLJobSpec:
        return self.job.spec

    @property
    def rank(self) -> int:
        """Global rank inside the role."""
        return self.pod_index * self.devices_per_pod + self.local_rank

    @property
    def group_ranks(self) -> int:
        """Ranks of one rollout group; of other roles, of the whole role."""
        if self.role is Role.ROLLOUT:
            layout = self.spec.rollout.layout
            return layout.dp * layout.tp
        return self.world

    @property
    def world(self) -> int:
        """Ranks of the role."""
        spec = self.spec
        if self.role is Role.TRAINER:
            return spec.trainer.replicas * spec.trainer.devices_per_pod
        if self.role is Role.ROLLOUT:
            return spec.rollout.groups * spec.rollout.layout.dp * spec.rollout.layout.tp
        if self.role is Role.REWARD:
            return spec.reward.replicas
        store = spec.kv_store.managed_store
        if self.role is Role.STORE and store is not None:
            return store.segments
        return 1

    @property
    def group(self) -> int:
        """Rollout group; 0 for other roles."""
        return self.rank // self.group_ranks if self.role is Role.ROLLOUT else 0

    @property
    def group_rank(self) -> int:
        """Rank inside the group (other roles: inside the role)."""
        return self.rank % self.group_ranks

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Context:
        """Read `RLJOB_*` and the files they name; InvalidInputError for what is missing or unreadable."""
        return cls(
            job=_read_job(Path(_required(environ, names.ENV_JOB_FILE))),
            role=_role(_required(environ, names.ENV_ROLE)),
            pod_name=environ.get(names.ENV_POD_NAME, ""),
            pod_uid=environ.get(names.ENV_POD_UID, ""),
            pod_index=_integer(environ, names.ENV_POD_INDEX, 0),
            attempt=_integer(environ, names.ENV_ATTEMPT, 0),
            devices_per_pod=_integer(environ, names.ENV_DEVICES_PER_POD, 1),
            local_rank=_integer(environ, names.ENV_LOCAL_RANK, 0),
            device=environ.get(names.ENV_DEVICE, "cpu"),
            threads=_integer(environ, names.ENV_THREADS, 1),
            token=_read_token(environ.get(names.ENV_TOKEN_FILE, "")),
            coordinator=environ.get(names.ENV_COORDINATOR, ""),
            listen=environ.get(names.ENV_LISTEN, ""),
            rendezvous=environ.get(names.ENV_RENDEZVOUS, ""),
            store_master=environ.get(names.ENV_STORE_MASTER, ""),
            store_metrics_port=_integer(environ, names.ENV_STORE_METRICS_PORT, names.PORT_STORE_METRICS),
            pod_ip=environ.get(names.ENV_POD_IP, "127.0.0.1"),
            run_dir=_path(environ, names.ENV_RUN_DIR),
            checkpoint_dir=_path(environ, names.ENV_CHECKPOINT_DIR),
            checkpoint_durable=environ.get(names.ENV_CHECKPOINT_DURABLE, "") == "true",
            termination_log=_path(environ, names.ENV_TERMINATION_LOG) or Path(names.TERMINATION_LOG),
            started_at=float(environ.get(names.ENV_STARTED_AT) or 0.0),
        )


def split_address(address: str) -> tuple[str, int]:
    """`host:port` apart; an IPv6 host may stand in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise InvalidInputError(name, value, "is not set", "start workers through `rljob run` or the operator")
    return value


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError as error:
        raise InvalidInputError(name, text, "is not a whole number", "set a whole number") from error


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError as error:
        raise InvalidInputError(names.ENV_ROLE, text, "is no role", f"use one of {', '.join(Role)}") from error


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name, "")
    return Path(text) if text else None


def _read_token(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip() if path else ""


def _read_job(path: Path) -> RLJob:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = f"cannot be read: {error}"
        raise InvalidInputError(names.ENV_JOB_FILE, str(path), problem, "write the RLJob there") from error
    return RLJob.from_object(body)
