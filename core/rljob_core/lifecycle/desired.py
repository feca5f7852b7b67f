"""Which workloads a job wants: one gang, every slot (role, index) once."""

from __future__ import annotations

from rljob_core.api.spec import RLJob
from rljob_core.lifecycle.model import Memory, Workload
from rljob_core.names import Role, pod_name


def slot(role: Role, index: int) -> str:
    """Key of a slot in Memory.replacements."""
    return f"{role}/{index}"


def replicas(job: RLJob) -> dict[Role, int]:
    """Pods of each role, in the order they are started; roles the job does not have are left out."""
    spec = job.spec
    store = spec.kv_store.managed_store
    segments = store.segments if store else 0
    group_ranks = spec.rollout.layout.dp * spec.rollout.layout.tp
    counts = {
        Role.STORE_MASTER: 1 if segments else 0,
        Role.STORE: segments,
        Role.COORDINATOR: 1,
        Role.TRAINER: spec.trainer.replicas,
        Role.ROLLOUT: spec.rollout.groups * group_ranks // spec.rollout.devices_per_pod,
        Role.REWARD: spec.reward.replicas,
    }
    return {role: count for role, count in counts.items() if count}


def devices(job: RLJob, role: Role) -> int:
    """Device processes in a pod of the role."""
    return {Role.TRAINER: job.spec.trainer.devices_per_pod, Role.ROLLOUT: job.spec.rollout.devices_per_pod}.get(role, 0)


def desired(job: RLJob, memory: Memory) -> tuple[Workload, ...]:
    """The gang of the current attempt, under the names it has now."""
    out = []
    for role, count in replicas(job).items():
        for index in range(count):
            replacement = memory.replacements.get(slot(role, index), 0)
            name = pod_name(job.metadata.name, role, index, memory.attempt + replacement)
            out.append(
                Workload(
                    name=name,
                    role=role,
                    index=index,
                    attempt=memory.attempt,
                    replacement=replacement,
                    devices=devices(job, role),
                    job_started_at=memory.start_time or 0.0,
                )
            )
    return tuple(out)
