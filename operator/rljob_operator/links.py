"""One JobClient a job: which coordinator incarnation is listened to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp

from rljob_core.api.directive import Directive
from rljob_core.api.report import Report
from rljob_core.api.spec import RLJob
from rljob_core.tokens import job_token
from rljob_operator.job_client import JobClient


class JobLinks:
    """Implements reconcile.Links over HTTP.

    wake: called with a job's uid when there is something new to observe.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        install_key: bytes,
        wake: Callable[[str], None],
    ) -> None:
        self._session, self._key, self._wake = session, install_key, wake
        self._clients: dict[str, tuple[int, str, JobClient]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def attend(self, job: RLJob, attempt: int, url: str | None) -> None:
        """See reconcile.Links."""
        uid = job.metadata.uid
        known = self._clients.get(uid)
        if known is not None and known[:2] == (attempt, url):
            return
        self.forget(uid)
        if url is None:
            return
        token = job_token(self._key, uid)
        client = JobClient(self._session, url, token, lambda: self._wake(uid))
        client.start()
        self._clients[uid] = (attempt, url, client)

    def latest(self, job: RLJob) -> tuple[Report | None, str]:
        """See reconcile.Links."""
        known = self._clients.get(job.metadata.uid)
        return (known[2].report, known[2].error) if known else (None, "")

    def direct(self, job: RLJob, directive: Directive) -> None:
        """See reconcile.Links."""
        known = self._clients.get(job.metadata.uid)
        if known is not None:
            known[2].direct(directive)

    def forget(self, uid: str) -> None:
        """The job, or this incarnation of its coordinator, is gone."""
        known = self._clients.pop(uid, None)
        if known is not None:
            task = asyncio.create_task(known[2].close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop all clients."""
        for uid in list(self._clients):
            self.forget(uid)
        await asyncio.gather(*self._closing)
