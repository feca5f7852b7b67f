"""What the operator keeps in the cluster about a job: memory in a ConfigMap, status, events."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from rljob_core.api.spec import RLJob
from rljob_core.api.status import Reason, RLJobStatus
from rljob_core.errors import RLJobError
from rljob_core.lifecycle.model import Event, Memory
from rljob_core.names import API_VERSION, KIND, MANAGED_BY, memory_config_name
from rljob_operator.cluster.api import CONFIG_MAPS, EVENTS, RLJOBS, ApiError, KubeApi, Object
from rljob_operator.pods import objects

MEMORY_ENTRY = "memory.json"
NOTE_LIMIT = 1024
"""Longest note the API takes in an event."""

logger = logging.getLogger(__name__)


class NameTakenError(RLJobError):
    """An object under one of our names belongs to someone else."""

    reason = Reason.NAME_TAKEN


class MemoryUnreadableError(RLJobError):
    """The memory of a job is of another version's format, or damaged: acting without it would forget what was done."""

    reason = Reason.MEMORY_UNREADABLE


class ConfigMapMemories:
    """Memory in `<job>-memory`. Writes carry the version last seen: a second writer is a 409, never a lost update."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._versions: dict[str, str] = {}

    async def load(self, job: RLJob) -> Memory:
        """What was saved last; blank when there is nothing. NameTakenError when the ConfigMap is not this job's,
        MemoryUnreadableError when it does not hold a memory of this version's."""
        try:
            body = await self._api.get(CONFIG_MAPS, job.metadata.namespace, memory_config_name(job.metadata.name))
        except ApiError as error:
            if not error.not_found:
                raise
            self._versions.pop(job.metadata.uid, None)
            return Memory()
        where = f"configmaps {job.metadata.namespace}/{body['metadata']['name']}"
        if objects.owner_uid(body) != job.metadata.uid:
            raise NameTakenError(f"{where} belongs to another owner")
        try:
            memory = Memory.model_validate_json((body.get("data") or {}).get(MEMORY_ENTRY, ""))
        except ValidationError as error:
            first = error.errors()[0]
            problem = ".".join(map(str, (MEMORY_ENTRY, *first["loc"])))
            raise MemoryUnreadableError(f"{where} {problem}: {first['msg']}") from error
        self._versions[job.metadata.uid] = body["metadata"]["resourceVersion"]
        return memory

    async def save(self, job: RLJob, memory: Memory) -> None:
        """Create the ConfigMap, or patch exactly the version last seen; ApiError with `conflict` otherwise."""
        namespace, name, uid = job.metadata.namespace, memory_config_name(job.metadata.name), job.metadata.uid
        data = {MEMORY_ENTRY: memory.model_dump_json(by_alias=True, exclude_none=True)}
        version = self._versions.pop(uid, None)
        if version is None:
            body: Object = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": objects.metadata(job, name),
                "data": data,
            }
            saved = await self._api.create(CONFIG_MAPS, namespace, body)
        else:
            patch = {"metadata": {"resourceVersion": version}, "data": data}
            saved = await self._api.merge_patch(CONFIG_MAPS, namespace, name, patch)
        self._versions[uid] = saved["metadata"]["resourceVersion"]

    def forget(self, job_uid: str) -> None:
        self._versions.pop(job_uid, None)


class StatusPatcher:
    """Writes status as one merge patch of what differs.

    current: the status as last seen, JSON. written: called with the object as the server has it afterwards, so that
    the next pass sees its own write even before the watch does.
    """

    def __init__(self, api: KubeApi, current: Callable[[str], Object], written: Callable[[Object], None]) -> None:
        self._api, self._current, self._written = api, current, written

    async def write(self, job: RLJob, status: RLJobStatus) -> None:
        """Patch what changed; nothing changed, no request."""
        await self.write_to(job.metadata.namespace, job.metadata.name, job.metadata.uid, status)

    async def write_to(self, namespace: str, name: str, uid: str, status: RLJobStatus) -> None:
        """The same for an RLJob that could not be parsed."""
        patch = difference(self._current(uid), status.to_wire())
        if patch:
            body = {"metadata": {"uid": uid}, "status": patch}
            self._written(await self._api.merge_patch(RLJOBS, namespace, name, body, "status"))


def difference(old: Object, new: Object) -> Object:
    """The JSON merge patch (RFC 7386) that turns `old` into `new`."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if inner := difference(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


class ClusterEvents:
    """Posts events.k8s.io events. An event that is refused is logged: it must not hold up the job."""

    def __init__(self, api: KubeApi, instance: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._api, self._instance, self._now = api, instance, now

    async def post(self, job: RLJob, event: Event) -> None:
        meta = job.metadata
        body: Object = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{meta.name}.{secrets.token_hex(8)}", "namespace": meta.namespace},
            "eventTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": MANAGED_BY,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "type": event.type,
            "reason": event.reason,
            "note": event.message[:NOTE_LIMIT],
            "regarding": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
        }
        try:
            await self._api.create(EVENTS, meta.namespace, body)
        except ApiError as error:
            logger.warning("event %s of %s/%s was not posted: %s", event.reason, meta.namespace, meta.name, error)
