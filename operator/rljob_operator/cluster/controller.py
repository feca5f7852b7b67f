"""The loop that drives passes: one task a job, wake-ups that coalesce, a bound on passes at once.

Whatever happens (an event of the RLJob, of a pod, a report, time) only wakes the job; the pass looks at everything
anew. A pass that failed is repeated with a growing delay and never holds up another job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import ValidationError

from rljob_core.api.spec import RLJob, drop_nulls
from rljob_core.api.status import Condition, ConditionStatus, ConditionType, Reason, RLJobStatus
from rljob_core.lifecycle import backoff
from rljob_core.lifecycle.text import rfc3339
from rljob_operator.cluster.api import ApiError, NotLeaderError, Object
from rljob_operator.cluster.store import ConfigMapMemories, MemoryUnreadableError, NameTakenError, StatusPatcher
from rljob_operator.links import JobLinks
from rljob_operator.pods.builder import durable
from rljob_operator.reconcile import Circumstances, Reconciler
from rljob_operator.substrates.kubernetes import JobGoneError, KubernetesSubstrate

LONGEST_RETRY_S = 30.0

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Job:
    """One served RLJob: the newest body seen, and its wake-up."""

    body: Object
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    failures: int = 0


@dataclass(kw_only=True)
class Parts:
    """What a pass is made of; each keeps a little per job that goes with the job."""

    reconciler: Reconciler
    substrate: KubernetesSubstrate
    memories: ConfigMapMemories
    statuses: StatusPatcher
    links: JobLinks


class Jobs:
    """The RLJobs that are served, by uid. `parts` is set before the first one is seen. clock: unix seconds."""

    def __init__(self, concurrency: int, clock: Callable[[], float]) -> None:
        self._turn = asyncio.Semaphore(concurrency)
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self.parts: Parts | None = None

    def seen(self, body: Object) -> None:
        """A body from the watch; one that is not newer than what is known changes nothing."""
        metadata = body["metadata"]
        if "deletionTimestamp" in metadata:
            self.gone(metadata["uid"])
            return
        job = self._jobs.get(metadata["uid"])
        if job is None:
            job = self._jobs[metadata["uid"]] = _Job(body=body)
            job.task = asyncio.create_task(self._serve(job), name=f"rljob {metadata['namespace']}/{metadata['name']}")
        elif int(metadata["resourceVersion"]) > int(job.body["metadata"]["resourceVersion"]):
            job.body = body
        else:
            return
        job.wake.set()

    def wrote(self, body: Object) -> None:
        """The object as our own status write left it. It wakes the job only if it brings a spec not seen before."""
        job = self._jobs.get(body["metadata"]["uid"])
        if job is not None and int(body["metadata"]["resourceVersion"]) > int(job.body["metadata"]["resourceVersion"]):
            if body["metadata"]["generation"] != job.body["metadata"]["generation"]:
                job.wake.set()
            job.body = body

    def wake(self, uid: str) -> None:
        """Something about the job may have changed."""
        if job := self._jobs.get(uid):
            job.wake.set()

    def gone(self, uid: str) -> None:
        """The RLJob is deleted: stop; its children go by garbage collection."""
        job = self._jobs.pop(uid, None)
        if job is None:
            return
        self._forget(uid)
        if job.task is not None and job.task is not asyncio.current_task():
            job.task.cancel()

    def status(self, uid: str) -> Object:
        """Status of the newest body, as JSON."""
        job = self._jobs.get(uid)
        status: Object = drop_nulls((job.body.get("status") if job else None) or {})
        return status

    async def close(self) -> None:
        """Stop every job's task; nothing is written afterwards."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, uid: str) -> None:
        assert self.parts is not None
        self.parts.reconciler.forget(uid)
        self.parts.substrate.forget(uid)
        self.parts.memories.forget(uid)
        self.parts.links.forget(uid)

    async def _serve(self, job: _Job) -> None:
        requeue_s: float | None = None
        uid = job.body["metadata"]["uid"]
        while uid in self._jobs:
            try:
                async with asyncio.timeout(requeue_s):
                    await job.wake.wait()
            except TimeoutError:
                pass
            job.wake.clear()
            async with self._turn:
                requeue_s = await self._pass(job)

    async def _pass(self, job: _Job) -> float | None:
        """One pass; seconds until the next without a wake-up."""
        metadata = job.body["metadata"]
        uid, where = metadata["uid"], f"{metadata['namespace']}/{metadata['name']}"
        assert self.parts is not None
        try:
            requeue_s = await self._reconcile(job)
        except (JobGoneError, NotLeaderError) as error:
            logger.info("%s: %s", where, error)
            self.gone(uid)
            return None
        except ApiError as error:
            if error.not_found and error.resource.startswith("rljobs"):
                self.gone(uid)
                return None
            if error.conflict:
                self.parts.reconciler.forget(uid)
            logger.warning("%s: %s", where, error)
            if error.verb_forbidden:
                message = f"the operator may not {error.verb} {error.resource}: {error.message}"
                await self._try_to_show(job, Reason.CREATE_FAILED, message)
            return self._later(job, error.retry_after_s)
        except (NameTakenError, MemoryUnreadableError) as error:
            await self._try_to_show(job, error.reason, str(error))
            return self._later(job)
        except Exception:
            logger.exception("%s: the pass failed and will be repeated", where)
            return self._later(job)
        job.failures = 0
        return requeue_s

    async def _reconcile(self, job: _Job) -> float | None:
        assert self.parts is not None
        try:
            parsed = RLJob.from_object(job.body)
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(str(part) for part in first["loc"])
            await self._show(job, Reason.INVALID_SPEC, f"{path}: {first['msg']}")
            return None
        status = RLJobStatus.model_validate(self.status(parsed.metadata.uid))
        created_at = datetime.fromisoformat(job.body["metadata"]["creationTimestamp"]).timestamp()
        circumstances = Circumstances(created_at=created_at, durable_checkpoints=durable(parsed))
        return (await self.parts.reconciler.reconcile(parsed, status, circumstances)).requeue_after

    def _later(self, job: _Job, at_least_s: float | None = None) -> float:
        job.failures += 1
        return max(min(backoff.delay(job.failures), LONGEST_RETRY_S), at_least_s or 0.0)

    async def _try_to_show(self, job: _Job, reason: Reason, message: str) -> None:
        """The pass is repeated in any case, and this with it."""
        metadata = job.body["metadata"]
        try:
            await self._show(job, reason, message)
        except (ApiError, NotLeaderError) as error:
            logger.warning("%s/%s: status was not written: %s", metadata["namespace"], metadata["name"], error)

    async def _show(self, job: _Job, reason: Reason, message: str) -> None:
        """Say in the status what keeps the passes from getting through: PodsCreated is False (B6, B60)."""
        assert self.parts is not None
        metadata = job.body["metadata"]
        status = RLJobStatus.model_validate(self.status(metadata["uid"]))
        kind = ConditionType.PODS_CREATED
        old = next((c for c in status.conditions if c.type is kind), None)
        still_false = old is not None and old.status is ConditionStatus.FALSE
        condition = Condition(
            type=kind,
            status=ConditionStatus.FALSE,
            reason=reason,
            message=message,
            last_transition_time=old.last_transition_time if old and still_false else rfc3339(self._clock()),
            observed_generation=metadata["generation"],
        )
        others = [c for c in status.conditions if c.type is not kind]
        update = {
            "conditions": [*others, condition],
            "message": message,
            "observed_generation": metadata["generation"],
        }
        shown = status.model_copy(update=update)
        await self.parts.statuses.write_to(metadata["namespace"], metadata["name"], metadata["uid"], shown)
