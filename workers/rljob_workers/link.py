"""A worker's one connection to the coordinator: blocking calls from any thread over a WebSocket in the background.

The link heartbeats by itself, carries finished stages along, and reconnects for a bounded time. A request that was
open when the connection broke is sent again under its old id; the coordinator answers each id once, so nothing is
taken or completed twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgpack

from rljob_core.api.directive import StageName
from rljob_core.api.messages import Goodbye, Heartbeat, Message, Register, Registered, Span
from rljob_core.errors import CoordinatorGoneError, InvalidInputError, RefusedError, RLJobError
from rljob_core.names import Role
from rljob_workers.context import Context
from rljob_workers.frames import FRAME_LIMIT_BYTES, PING_S, WORKER_PATH, body_of, pack_frame, read_frame

Reply = TypeVar("Reply", bound=Message)

HANDSHAKE_S = 10.0
"""A coordinator that takes a connection and does not answer within this (it is stopped, or its node hangs)."""
RETRY_S = 0.1
LAST_WORDS_S = 3.0


def patience_s(role: Role) -> float:
    """How long a broken connection may take to come back. Trainers give up first: losing one starts everything anew,
    and a coordinator that is gone counts as one loss, not as one of each role."""
    return 20.0 if role is Role.TRAINER else 40.0


def register_message(context: Context, resumed_step: int = -1) -> Register:
    """The Register of this process."""
    return Register(
        role=str(context.role),
        pod=context.pod_name,
        pod_uid=context.pod_uid,
        rank=context.rank,
        group=context.group,
        resumed_step=resumed_step,
    )


class CoordinatorLink:
    """Typed calls to the coordinator. As a context manager it says goodbye, with the error if there is one.

    connect_s: how long the first connection may take (the coordinator may still be starting).
    reconnect_s: how long a broken one may take to come back, then calls raise CoordinatorGoneError; default by role.
    """

    def __init__(
        self,
        context: Context,
        *,
        connect_s: float = 300.0,
        reconnect_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = f"http://{context.coordinator}{WORKER_PATH}"
        self._headers = {"Authorization": f"Bearer {context.token}"}
        self._connect_s = connect_s
        self._reconnect_s = patience_s(context.role) if reconnect_s is None else reconnect_s
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="coordinator-link", daemon=True)
        self._registered: Future[Registered] = Future()
        self._main: asyncio.Task[None] | None = None
        self._beats: asyncio.Task[None] | None = None
        """Lives as long as the link: a heartbeat that is open when a connection breaks is sent again like any request,
        so that its stages arrive once."""
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._open: dict[int, tuple[bytes, asyncio.Future[dict[str, Any]]]] = {}
        self._next_id = 1
        self._deadline = 0.0
        self._ended: RLJobError | None = None
        self._spans: list[Span] = []
        self._spans_lock = threading.Lock()

    def start(self, register: Register) -> Registered:
        """Connect and register; blocks until the coordinator answers, CoordinatorGoneError after connect_s."""
        self._thread.start()

        def run() -> None:
            self._main = self._loop.create_task(self._run(register))

        self._loop.call_soon_threadsafe(run)
        return self._registered.result()

    def call(self, message: Message, reply: type[Reply]) -> Reply:
        """Send one request and block until its answer: RefusedError or CoordinatorGoneError when there is none."""
        body = asyncio.run_coroutine_threadsafe(self._request(message), self._loop).result()
        return reply.model_validate(body)

    @contextmanager
    def stage(self, name: StageName, step: int = -1) -> Iterator[None]:
        """Time a stage: one span once it is over, which the next heartbeat takes along."""
        start = self._clock()
        try:
            yield
        finally:
            with self._spans_lock:
                self._spans.append(Span(stage=str(name), start=start, end=self._clock(), step=step))

    def goodbye(self, error: BaseException | None = None) -> None:
        """Last words; with an error the coordinator learns the cause, and whether the user's input is to blame."""
        self._flush()
        invalid = isinstance(error, InvalidInputError)
        text = "" if error is None else str(error) or type(error).__name__
        self._last(Goodbye(error=text, invalid_input=invalid))

    def close(self) -> None:
        """End the connection. Without a goodbye before, the coordinator takes it for a loss."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _flush(self) -> None:
        """Hand over the stages that finished since the last heartbeat."""
        if self._spans:
            self._last(self._heartbeat())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self.goodbye(error)
        self.close()

    def _last(self, message: Message) -> None:
        """Send a message if there is still somebody to read it, within bounded time."""
        future = asyncio.run_coroutine_threadsafe(self._request(message), self._loop)
        try:
            future.result(LAST_WORDS_S)
        except (RLJobError, TimeoutError):
            future.cancel()

    def _heartbeat(self) -> Heartbeat:
        with self._spans_lock:
            spans, self._spans = self._spans, []
        return Heartbeat(spans=spans)

    # Below: coroutines of the background loop.

    async def _request(self, message: Message) -> dict[str, Any]:
        if self._ended is not None:
            raise self._ended
        number, self._next_id = self._next_id, self._next_id + 1
        frame = pack_frame(number, message)
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._open[number] = (frame, answer)
        try:
            await self._send(frame)
            return await answer
        finally:
            del self._open[number]

    async def _send(self, frame: bytes) -> None:
        """Send now if connected; otherwise, and when this fails, the next connection sends what is open."""
        if self._socket is not None:
            try:
                await self._socket.send_bytes(frame)
            except (aiohttp.ClientError, ConnectionError):
                self._socket = None

    async def _run(self, register: Register) -> None:
        """Keep a connection until closed; what ends it for good ends every open and later call."""
        try:
            async with aiohttp.ClientSession(headers=self._headers) as session:
                self._deadline = self._loop.time() + self._connect_s
                while True:
                    problem = "the connection was closed"
                    try:
                        await self._connection(session, register)
                    except (aiohttp.ClientError, OSError) as error:
                        problem = str(error)
                    if self._loop.time() >= self._deadline:
                        raise CoordinatorGoneError(f"coordinator at {self._url} does not answer: {problem}")
                    await asyncio.sleep(RETRY_S)
        except RLJobError as error:
            self._end(error)
        finally:
            if self._beats is not None:
                self._beats.cancel()

    async def _connection(self, session: aiohttp.ClientSession, register: Register) -> None:
        """One connection from handshake to its end."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(min(self._loop.time() + HANDSHAKE_S, self._deadline)):
                    socket = await stack.enter_async_context(await self._handshake(session))
                    await socket.send_bytes(pack_frame(0, register))
                    registered = Registered.model_validate(body_of(await read_frame(socket)))
            except TimeoutError:
                raise aiohttp.ServerTimeoutError(f"nothing came within {HANDSHAKE_S:g} s") from None
            if self._registered.done() and self._registered.result().instance != registered.instance:
                raise CoordinatorGoneError("another coordinator took the place of the one registered with")
            await self._serve(socket, registered)

    async def _handshake(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        try:
            return await session.ws_connect(
                self._url,
                heartbeat=PING_S,
                max_msg_size=FRAME_LIMIT_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            )
        except aiohttp.WSServerHandshakeError as error:
            if error.status < 500:
                raise RefusedError(f"coordinator at {self._url} refused: {error.status} {error.message}") from None
            raise

    async def _serve(self, socket: aiohttp.ClientWebSocketResponse, registered: Registered) -> None:
        """Requests that are open go out again, new ones as they come, until the connection ends."""
        self._socket = socket
        for frame, _ in list(self._open.values()):
            await socket.send_bytes(frame)
        if not self._registered.done():
            self._registered.set_result(registered)
        if self._beats is None:
            self._beats = self._loop.create_task(self._beat(registered.heartbeat_s))
        try:
            await self._receive(socket)
        finally:
            self._socket = None
            self._deadline = self._loop.time() + self._reconnect_s

    async def _beat(self, every_s: float) -> None:
        while True:
            await self._request(self._heartbeat())
            await asyncio.sleep(every_s)

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY:
                continue
            frame = msgpack.unpackb(message.data)
            number = frame["id"]
            if number in self._open and not self._open[number][1].done():
                answer = self._open[number][1]
                try:
                    answer.set_result(body_of(frame))
                except RefusedError as error:
                    answer.set_exception(error)

    def _end(self, error: RLJobError) -> None:
        self._ended = error
        if not self._registered.done():
            self._registered.set_exception(error)
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(error)

    async def _stop(self) -> None:
        self._ended = self._ended or CoordinatorGoneError("the link is closed")
        if self._main is not None:
            self._main.cancel()
            await asyncio.wait([self._main])
        self._end(self._ended)
