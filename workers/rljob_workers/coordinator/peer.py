"""One worker's end of the wire: its connection now, and each request answered once over all its connections."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
from aiohttp import web
from pydantic import ValidationError

from rljob_core.api.messages import REQUESTS, Message
from rljob_core.errors import InvalidInputError, QueueError, RLJobError
from rljob_core.session import Worker

REMEMBERED_ANSWERS = 64
_log = logging.getLogger(__name__)


class RequestFailedError(RLJobError):
    """The coordinator met an error of its own in a request: its state cannot be trusted any more."""

    def __init__(self, request: str, sender: str, error: Exception) -> None:
        super().__init__(f"{request} of {sender}: {type(error).__name__}: {error}")
        self.__cause__ = error


class Peer:
    """Requests of one worker incarnation. Several may be open at once; an id that comes again is not run again.

    broken: takes an error that is nobody's mistake; the request stays without an answer.
    """

    def __init__(
        self,
        worker: Worker,
        answer: Callable[[Worker, Message], Awaitable[Message]],
        broken: Callable[[RequestFailedError], None],
    ) -> None:
        self.worker = worker
        self._answer, self._broken = answer, broken
        self._socket: web.WebSocketResponse | None = None
        self._open: dict[int, asyncio.Task[None]] = {}
        self._answered: OrderedDict[int, bytes] = OrderedDict()
        self.left_at: float | None = None
        """Loop time at which the connection ended; None while there is one."""

    async def attach(self, socket: web.WebSocketResponse) -> None:
        """A (new) connection: answers go there from now on."""
        old, self._socket, self.left_at = self._socket, socket, None
        if old is not None:
            await old.close()

    def detach(self, socket: web.WebSocketResponse) -> None:
        if self._socket is socket:
            self._socket, self.left_at = None, asyncio.get_running_loop().time()

    async def handle(self, data: bytes) -> None:
        """One frame: start it, or repeat the answer given before."""
        frame = msgpack.unpackb(data)
        number: int = frame["id"]
        if number in self._answered:
            await self._send(self._answered[number])
        elif number not in self._open:
            self._open[number] = asyncio.create_task(self._run(number, frame))

    async def close(self) -> None:
        """The worker is gone: forget what it asked for."""
        for task in self._open.values():
            task.cancel()
        if self._socket is not None:
            await self._socket.close()

    async def _run(self, number: int, frame: dict[str, Any]) -> None:
        try:
            reply = await self._answer(self.worker, parse(frame))
            answer = msgpack.packb({"id": number, "body": reply.model_dump()})
        except (QueueError, InvalidInputError) as error:
            _log.warning("request of %s rank %d refused: %s", self.worker.role, self.worker.rank, error)
            answer = error_frame(number, str(error))
        except Exception as error:
            self._broken(
                RequestFailedError(str(frame.get("type")), f"{self.worker.role} rank {self.worker.rank}", error)
            )
            return
        finally:
            del self._open[number]
        self._answered[number] = answer
        if len(self._answered) > REMEMBERED_ANSWERS:
            self._answered.popitem(last=False)
        await self._send(answer)

    async def _send(self, frame: bytes) -> None:
        """What cannot be sent now is asked for again by the next connection."""
        if self._socket is not None and not self._socket.closed:
            try:
                await self._socket.send_bytes(frame)
            except ConnectionError:
                _log.info("connection of %s rank %d broke", self.worker.role, self.worker.rank)


def parse(frame: Any) -> Message:
    """Raises QueueError for what is no frame, an unknown type or a body that does not fit it."""
    if not isinstance(frame, dict):
        raise QueueError("a frame must be a map")
    kind = REQUESTS.get(str(frame.get("type")))
    if kind is None:
        raise QueueError(f"unknown request {frame.get('type')!r}")
    try:
        return kind.model_validate(frame.get("body"))
    except ValidationError as error:
        raise QueueError(f"{kind.__name__}: {error.error_count()} errors, first: {error.errors()[0]['msg']}") from error


def error_frame(number: int, text: str) -> bytes:
    frame: bytes = msgpack.packb({"id": number, "error": text})
    return frame
