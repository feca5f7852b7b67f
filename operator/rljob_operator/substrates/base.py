"""The seam between decisions and what runs them."""

from __future__ import annotations

from typing import Protocol

from rljob_core.api.spec import RLJob
from rljob_core.lifecycle.model import ApplyError, ObservedWorkload, Workload


class Substrate(Protocol):
    """Creates, watches and removes workloads of one kind (pods or processes)."""

    async def observe(self, job: RLJob) -> tuple[ObservedWorkload, ...]:
        """Every workload of the job that exists or has ended and was not deleted, from cache, cheap."""
        ...

    async def prepare(self, job: RLJob) -> tuple[ApplyError, ...]:
        """Make sure that what workloads lean on exists (services, job document, token)."""
        ...

    async def create(self, job: RLJob, workload: Workload) -> ApplyError | None:
        """Start one workload. It already being there, and ours, is success."""
        ...

    async def delete(self, job: RLJob, name: str, grace_s: float) -> ApplyError | None:
        """Stop one workload and forget it. It being gone is success; logs are kept."""
        ...

    def coordinator_url(self, job: RLJob) -> str | None:
        """Base URL of the coordinator's HTTP API, None while unknown."""
        ...
