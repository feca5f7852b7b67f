"""An HTTP proxy in front of an API server that can fall silent, as a connection whose other end is gone, or refuse.

What is silenced stays open: no byte passes in either direction, new requests are taken and not answered. Once it flows
again, what was held goes on. A stranded connection never flows again, while new ones do. What is refused is answered
with 500 and never reaches the server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import weakref
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

EVERYTHING = "*"
HOP_BY_HOP = ("Connection", "Host", "Keep-Alive", "Transfer-Encoding")


class FaultyProxy:
    """In front of the server that `kubeconfig` names; `config` is the same file for clients of this proxy.

    One plural at a time is silenced: its lists and watches, not its writes; or EVERYTHING.
    """

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self._given: dict[str, Any] = json.loads(kubeconfig.read_text())
        self._cluster: dict[str, str] = self._given["clusters"][0]["cluster"]
        self._target = self._cluster["server"]
        self._silenced = ""
        self._flows = asyncio.Event()
        self._flows.set()
        self._connections: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._stranded: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._refused_plural, self._refusals = "", 0
        self.config = folder / "through-the-proxy.json"

    async def __aenter__(self) -> FaultyProxy:
        trusted = ssl.create_default_context(cafile=self._cluster["certificate-authority"])
        connector = aiohttp.TCPConnector(ssl=trusted, limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=1 << 22)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        clusters = [{"name": "test", "cluster": {"server": f"http://{host}:{port}"}}]
        self.config.write_text(json.dumps(self._given | {"clusters": clusters}))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def silence(self, plural: str) -> None:
        self._silenced = plural
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def strand(self) -> int:
        """All connections of now, used or idle; how many. As a NAT gateway does that lost its table."""
        self._stranded.update(c for c in self._connections if not c.is_closing())
        return len(self._stranded)

    def refuse_deletions(self, plural: str, times: int) -> None:
        """Of the next `times` DELETE requests."""
        self._refused_plural, self._refusals = plural, times

    @property
    def refusals_left(self) -> int:
        return self._refusals

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        self._connections.add(request.transport)
        body = await request.read()
        if self._refusals and request.method == "DELETE" and f"/{self._refused_plural}/" in request.path:
            self._refusals -= 1
            return web.json_response({"kind": "Status", "message": "not now", "code": 500}, status=500)
        await self._gate(request)
        kept = {key: value for key, value in request.headers.items() if key not in HOP_BY_HOP}
        url = self._target + request.raw_path
        async with self._session.request(request.method, url, headers=kept, data=body or None) as answer:
            kept = {key: value for key, value in answer.headers.items() if key not in HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await self._gate(request)
            try:
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await self._gate(request)
                    await response.write(chunk)
                await self._gate(request)
                await response.write_eof()
            except ConnectionError:
                pass  # the client gave up while it was held
            return response

    async def _gate(self, request: web.Request) -> None:
        if request.transport in self._stranded:
            await asyncio.Event().wait()
        if self._silenced == EVERYTHING or (request.method == "GET" and request.path.endswith(f"/{self._silenced}")):
            await self._flows.wait()
