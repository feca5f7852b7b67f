"""What the probes say: a small server, up before the Lease, and the beats of the watches it judges by.

Live: every watch that was announced gave a sign of life within its limit; a standby has announced none and is live.
A broken stream is replaced well before that, so what remains is a watch that nothing revives.
Ready: the operator leads with full caches, or stands by for another that does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a watch may be silent, from how long one of its streams lives."""

    stream_s: int = 60
    """The server ends a stream after this: a healthy one proves itself at least so often, bookmarks or not."""

    @property
    def silence_s(self) -> float:
        """Longer than a stream lives: only a dead connection is silent for so long. It is replaced."""
        return 1.25 * self.stream_s

    @property
    def limit_s(self) -> float:
        """Two replacements came to nothing: the process is not live."""
        return 2 * self.silence_s


class Health:
    """clock: monotonic seconds. limit_s: longest silence of a watch."""

    def __init__(self, clock: Callable[[], float], limit_s: float) -> None:
        self._clock, self._limit_s = clock, limit_s
        self._beats: dict[str, float] = {}
        self.ready: Callable[[], bool] = lambda: False

    def beat(self, watch: str) -> None:
        """A sign of life of a watch; the first one announces it."""
        self._beats[watch] = self._clock()

    def silent(self) -> list[str]:
        """Watches whose last sign of life is too long ago."""
        now = self._clock()
        return [watch for watch, beat in self._beats.items() if now - beat > self._limit_s]


@asynccontextmanager
async def probes(health: Health, port: int) -> AsyncIterator[None]:
    """Serve /healthz and /readyz on all addresses."""

    async def healthz(_request: web.Request) -> web.Response:
        silent = health.silent()
        return web.Response(text=f"silent: {', '.join(silent)}" if silent else "ok", status=500 if silent else 200)

    async def readyz(_request: web.Request) -> web.Response:
        ready = health.ready()
        return web.Response(text="ok" if ready else "starting", status=200 if ready else 503)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await asyncio.shield(runner.cleanup())
