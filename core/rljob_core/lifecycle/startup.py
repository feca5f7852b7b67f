"""Start-up policy: a worker that runs but was never heard of is lost, like one that fell silent.

The coordinator names ranks that have been without a worker for `lifecycle.startupDeadlineSeconds`; their pods are lost
once they have run for so long themselves: a pod that waited for a node, or replaced another, gets its own time.
"""

from __future__ import annotations

from rljob_core.api.report import Report
from rljob_core.api.spec import RLJob
from rljob_core.lifecycle.model import ObservedWorkload, Workload, WorkloadPhase


def seconds_left(
    job: RLJob, workload: Workload, pod: ObservedWorkload, report: Report | None, now: float
) -> float | None:
    """Until the pod has taken too long to register; None where the coordinator does not miss it."""
    if report is None or pod.phase is not WorkloadPhase.RUNNING or pod.started_at is None:
        return None
    devices = max(1, workload.devices)
    ranks = range(workload.index * devices, (workload.index + 1) * devices)
    if not any(absent.role == workload.role and absent.rank in ranks for absent in report.absent):
        return None
    return pod.started_at + job.spec.lifecycle.startup_deadline_seconds - now


def message(job: RLJob) -> str:
    """What is said of a pod that is lost so."""
    limit = job.spec.lifecycle.startup_deadline_seconds
    return f"it runs, but did not register with the coordinator within {limit} s (lifecycle.startupDeadlineSeconds)"
