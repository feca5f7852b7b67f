"""The pods of all jobs: a paged list and a watch by label selector, kept as parsed workloads.

Server-side selection keeps memory flat whatever else runs in the cluster (kubernetes.md B42). The stream is replaced
when the server says 410, and when no event or bookmark came for too long (B40); the list then starts afresh.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import aiohttp

from rljob_core.lifecycle.model import ObservedWorkload
from rljob_core.names import LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY
from rljob_operator.cluster.api import PODS, ApiError, KubeApi, Object
from rljob_operator.cluster.health import Patience
from rljob_operator.pods.objects import owner_uid
from rljob_operator.pods.observed import observe_pod, pod_ip

SELECTOR = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
RETRY_S = 2.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Child:
    """One pod of ours."""

    namespace: str
    job: str
    """Name of its RLJob."""
    job_uid: str
    """uid of its controller: a label could be anyone's."""
    version: int
    workload: ObservedWorkload
    ip: str


class Children:
    """Cache of one namespace's pods (None: of all), by job.

    on_change: called with the job's uid after its pods changed. beat: called at every sign of life of the stream.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str | None,
        on_change: Callable[[str], None],
        beat: Callable[[], None],
        patience: Patience,
    ) -> None:
        self._api, self._namespace, self._on_change, self._beat = api, namespace, on_change, beat
        self._patience = patience
        self._jobs: dict[str, dict[str, Child]] = {}
        self._version = 0
        self.synced = asyncio.Event()
        """Set once the first list is complete."""

    def of(self, job_uid: str) -> dict[str, Child]:
        """Pods of a job by name."""
        return self._jobs.get(job_uid, {})

    def of_earlier(self, namespace: str, job: str, job_uid: str) -> list[str]:
        """Names of pods that still live and belong to another RLJob of this name."""
        mine = (namespace, job)
        others = (c for c in self._all() if (c.namespace, c.job) == mine and c.job_uid != job_uid)
        return sorted(child.workload.name for child in others if child.workload.live)

    def put(self, pod: Object) -> None:
        """Take in the answer of our own create, unless the stream has already been past it."""
        child = _parse(pod)
        if child is not None and child.version > self._version:
            self._store(child)

    async def run(self) -> None:
        """List and watch for ever."""
        while True:
            try:
                await self._list()
                while await self._stream():
                    pass
            except (ApiError, aiohttp.ClientError, TimeoutError, ConnectionError, json.JSONDecodeError) as error:
                logger.warning("watch of pods in %s: %s; listing again", self._namespace or "all namespaces", error)
            await asyncio.sleep(RETRY_S)

    async def _list(self) -> None:
        """Replace the cache by a full list, page by page."""
        found: list[Child] = []
        token = ""
        while True:
            page = await self._api.list_page(PODS, self._namespace, SELECTOR, token)
            self._beat()
            found += filter(None, map(_parse, page["items"]))
            token = page["metadata"].get("continue", "")
            if not token:
                break
        self._version = int(page["metadata"]["resourceVersion"])
        kept = {(child.job_uid, child.workload.name) for child in found}
        gone = [c for c in self._all() if c.version <= self._version and (c.job_uid, c.workload.name) not in kept]
        for child in gone:
            self._drop(child)
        for child in found:
            self._store(child)
        self.synced.set()
        for job_uid in {child.job_uid for child in [*gone, *found]}:
            self._on_change(job_uid)

    async def _stream(self) -> bool:
        """Follow one stream to its end. False: the version is too old (410), list again."""
        stream_s = self._patience.stream_s
        async with self._api.watch(PODS, self._namespace, SELECTOR, str(self._version), stream_s) as lines:
            self._beat()
            while True:
                async with asyncio.timeout(self._patience.silence_s):
                    event = await anext(lines, None)
                if event is None:
                    return True
                self._beat()
                if event["type"] == "ERROR":
                    if event["object"].get("code") == 410:
                        return False
                    raise ApiError("watch", str(PODS), "", event["object"].get("code", 500), event["object"])
                self._take(event["type"], event["object"])

    def _take(self, kind: str, pod: Object) -> None:
        self._version = int(pod["metadata"]["resourceVersion"])
        if kind == "BOOKMARK" or (child := _parse(pod)) is None:
            return
        if kind == "DELETED":
            self._drop(child)
        else:
            self._store(child)
        self._on_change(child.job_uid)

    def _store(self, child: Child) -> None:
        self._jobs.setdefault(child.job_uid, {})[child.workload.name] = child

    def _drop(self, child: Child) -> None:
        pods = self._jobs.get(child.job_uid, {})
        pods.pop(child.workload.name, None)
        if not pods:
            self._jobs.pop(child.job_uid, None)

    def _all(self) -> Iterator[Child]:
        for pods in self._jobs.values():
            yield from pods.values()


def _parse(pod: Object) -> Child | None:
    workload, job_uid = observe_pod(pod), owner_uid(pod)
    if workload is None or not job_uid:
        return None
    return Child(
        namespace=pod["metadata"]["namespace"],
        job=pod["metadata"]["labels"].get(LABEL_JOB, ""),
        job_uid=job_uid,
        version=int(pod["metadata"]["resourceVersion"]),
        workload=workload,
        ip=pod_ip(pod),
    )
