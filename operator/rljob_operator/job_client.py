"""HTTP client of a job's coordinator: one background task a job, outside the reconcile pass, which only reads results.

Long polls GET /v1/report and puts the directive in force. A coordinator that hangs costs its own task time, never a
pass (kubernetes.md B50): connect 2 s, PUT 2 s.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable

import aiohttp

from rljob_core.api.directive import Directive
from rljob_core.api.report import REPORT_LIMIT_BYTES, Report
from rljob_core.errors import ProtocolVersionError

CONNECT_S = 2.0
PUT_S = 2.0
POLL_WAIT_S = 10.0
FIRST_RETRY_S = 0.2
LONGEST_RETRY_S = 5.0


class CoordinatorRefusedError(Exception):
    """The coordinator answered, but not with what was asked for."""


class JobClient:
    """Latest report of one coordinator incarnation, and the last error.

    wake: called whenever there is something new to observe.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str, wake: Callable[[], None]) -> None:
        self._session, self._url, self._wake = session, url, wake
        self._headers = {"Authorization": f"Bearer {token}"}
        self._wanted: Directive | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.report: Report | None = None
        self.error = ""

    def start(self) -> None:
        """Begin to poll; needs a running event loop."""
        self._task = asyncio.create_task(self._run(), name=f"coordinator {self._url}")

    def direct(self, directive: Directive) -> None:
        """Say what shall hold; it is put until the coordinator took it."""
        if self._wanted != directive:
            self._wanted = directive
            self._changed.set()

    async def close(self) -> None:
        """Stop; the last report stays readable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll_forever())
            tasks.create_task(self._put_forever())

    async def _poll_forever(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            try:
                await self._poll()
                retry_s = FIRST_RETRY_S
            except (TimeoutError, aiohttp.ClientError, CoordinatorRefusedError, ProtocolVersionError) as error:
                self._failed(error)
                await asyncio.sleep(retry_s)
                retry_s = min(LONGEST_RETRY_S, retry_s * 2)

    async def _put_forever(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            await self._changed.wait()
            directive = self._wanted
            assert directive is not None
            try:
                await self._put(directive)
            except (TimeoutError, aiohttp.ClientError, CoordinatorRefusedError) as error:
                self._failed(error)
                await asyncio.sleep(retry_s)
                retry_s = min(LONGEST_RETRY_S, retry_s * 2)
                continue
            retry_s = FIRST_RETRY_S
            if directive is self._wanted:
                self._changed.clear()

    async def _poll(self) -> None:
        after = self.report.sequence if self.report else -1
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, total=POLL_WAIT_S + CONNECT_S + PUT_S)
        params = {"after": str(after), "wait": str(POLL_WAIT_S)}
        url = f"{self._url}/v1/report"
        async with self._session.get(url, params=params, headers=self._headers, timeout=timeout) as response:
            body = await _read(response)
        report = _parse(body, url)
        news = self.report is None or report.sequence != self.report.sequence
        self.report = report
        self.error = ""
        if news:
            self._wake()

    async def _put(self, directive: Directive) -> None:
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_S, total=PUT_S)
        url = f"{self._url}/v1/directive"
        async with self._session.put(url, json=directive.to_wire(), headers=self._headers, timeout=timeout) as response:
            await _read(response)

    def _failed(self, error: Exception) -> None:
        refused = isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno == errno.ECONNREFUSED
        text = "it is still starting, nothing listens yet" if refused else str(error) or type(error).__name__
        if text != self.error:
            self.error = text
            self._wake()


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body of a 2xx answer, bounded; anything else is an error that quotes the coordinator."""
    body = b""
    while len(body) <= REPORT_LIMIT_BYTES and (piece := await response.content.readany()):
        body += piece
    if response.status // 100 != 2:
        words = body[:300].decode(errors="replace")
        raise CoordinatorRefusedError(f"{response.method} {response.url.path}: HTTP {response.status}: {words}")
    if len(body) > REPORT_LIMIT_BYTES:
        raise CoordinatorRefusedError(f"{response.method} {response.url.path}: over {REPORT_LIMIT_BYTES} bytes")
    return body


def _parse(body: bytes, url: str) -> Report:
    """The version is looked at first: another major may look quite different."""
    try:
        value = json.loads(body)
        if isinstance(value, dict):
            Report.check_version(value)
        return Report.model_validate(value)
    except ValueError as error:
        raise CoordinatorRefusedError(f"GET {url}: not a Report: {str(error)[:300]}") from error
