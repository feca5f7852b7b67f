"""HTTP for the operator and WebSockets for workers, on one port, behind one token."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import msgpack
from aiohttp import WSMsgType, web
from pydantic import ValidationError

from rljob_core.api.directive import PROTOCOL_MAJOR, Directive
from rljob_core.api.messages import Register, Registered
from rljob_core.errors import ProtocolVersionError, QueueError
from rljob_core.session import HEARTBEAT_S
from rljob_workers.coordinator.desk import Desk
from rljob_workers.coordinator.peer import Peer, RequestFailedError, error_frame, parse
from rljob_workers.frames import FRAME_LIMIT_BYTES, PING_S, WORKER_PATH

BODY_LIMIT_BYTES = 64 * 1024
HEALTH_PATH = "/healthz"
RECONNECT_S = 3.0
"""A worker whose connection ended and did not come back within this is lost, without waiting for heartbeats."""
FIRST_FRAME_S = 10.0
_UTF8 = partial(json.dumps, ensure_ascii=False)
"""The Report is bounded in bytes of UTF-8; escapes would take up to six a character."""
_log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Requests to a Desk. instance: of this coordinator."""

    def __init__(self, desk: Desk, *, token: str, instance: str) -> None:
        self._desk, self._token = desk, token
        self._instance = instance
        self._peers: dict[int, Peer] = {}
        self._fault: RequestFailedError | None = None

    def application(self) -> web.Application:
        app = web.Application(client_max_size=BODY_LIMIT_BYTES, middlewares=[self._authorize])
        app.add_routes(
            [
                web.get(HEALTH_PATH, self._health),
                web.get("/v1/report", self._report),
                web.get("/v1/statistics/experts", self._experts),
                web.put("/v1/directive", self._directive),
                web.get(WORKER_PATH, self._worker),
            ]
        )
        return app

    async def tick(self) -> None:
        """Once a second: time passes, connections that ended are given up. Raises what broke a request."""
        if self._fault is not None:
            raise self._fault
        now = asyncio.get_running_loop().time()
        for peer in list(self._peers.values()):
            if peer.left_at is not None and now - peer.left_at > RECONNECT_S:
                await self._desk.lost(peer.worker, "its connection ended")
        await self._desk.tick()
        await self._forget()

    async def close(self) -> None:
        for peer in self._peers.values():
            await peer.close()

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Constant-time comparison; probes need no token."""
        given = request.headers.get("Authorization", "")
        if request.path != HEALTH_PATH and not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise web.HTTPUnauthorized(text="a valid job token is required\n")
        return await handler(request)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _report(self, request: web.Request) -> web.Response:
        after, wait_s = _number(request, "after", -1.0), _number(request, "wait", 0.0)
        report = await self._desk.report(int(after), wait_s)
        return web.json_response(report.to_wire(), dumps=_UTF8)

    async def _experts(self, request: web.Request) -> web.Response:
        """Tokens routed in the newest step, by MoE layer and expert."""
        session = self._desk.session
        return web.json_response({"step": session.step, "counts": session.figures.expert_counts})

    async def _directive(self, request: web.Request) -> web.Response:
        try:
            body = await request.json()
            if not isinstance(body, dict):
                raise ValueError("not a JSON object")
            Directive.check_version(body)
            directive = Directive.model_validate(body)
        except ProtocolVersionError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        except (ValidationError, json.JSONDecodeError, UnicodeDecodeError, ValueError) as error:
            raise web.HTTPBadRequest(text=f"not a Directive: {error}\n") from error
        return web.json_response({"appliedRevision": await self._desk.direct(directive)})

    async def _worker(self, request: web.Request) -> web.StreamResponse:
        """A worker's connection: Register, then any number of requests at once, until it ends."""
        socket = web.WebSocketResponse(max_msg_size=FRAME_LIMIT_BYTES, heartbeat=PING_S)
        await socket.prepare(request)
        peer = await self._registered(socket)
        if peer is None:
            await socket.close()
            return socket
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    await peer.handle(message.data)
        finally:
            peer.detach(socket)
        return socket

    async def _registered(self, socket: web.WebSocketResponse) -> Peer | None:
        """The peer of the first frame; None when it is no acceptable Register."""
        try:
            data = await socket.receive_bytes(timeout=FIRST_FRAME_S)
        except (TimeoutError, TypeError):
            return None  # the connection ended, or nothing came
        try:
            first = parse(msgpack.unpackb(data))
            if not isinstance(first, Register):
                raise QueueError("the first request must be Register")
            if first.protocol_major != PROTOCOL_MAJOR:
                raise QueueError(f"protocol {first.protocol_major} is not supported; this side speaks {PROTOCOL_MAJOR}")
            worker = await self._desk.register(first)
        except (QueueError, ValueError) as error:
            _log.warning("worker refused: %s", error)
            await socket.send_bytes(error_frame(0, str(error)))
            return None
        except Exception as error:
            self._broken(RequestFailedError("Register", "a new worker", error))
            return None
        if worker.worker_id not in self._peers:
            self._peers[worker.worker_id] = Peer(worker, self._desk.answer, self._broken)
        peer = self._peers[worker.worker_id]
        await self._forget()
        reply = Registered(worker_id=worker.worker_id, heartbeat_s=HEARTBEAT_S, instance=self._instance)
        await socket.send_bytes(msgpack.packb({"id": 0, "body": reply.model_dump()}))
        await peer.attach(socket)
        return peer

    def _broken(self, error: RequestFailedError) -> None:
        """The next tick ends the process: nothing may go on, and nobody shall wait for an answer that never comes."""
        self._fault = self._fault or error

    async def _forget(self) -> None:
        """Drop the peers of workers that are lost or were replaced."""
        registry = self._desk.session.registry
        for worker_id in [i for i in self._peers if registry.get(i) is None]:
            await self._peers.pop(worker_id).close()


def _number(request: web.Request, name: str, default: float) -> float:
    text = request.query.get(name)
    try:
        return default if text is None else float(text)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name}={text!r} is not a number\n") from error
