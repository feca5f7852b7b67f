"""What goes over a worker's WebSocket: msgpack maps, as `rljob_core.api.messages` says."""

from __future__ import annotations

from typing import Any

import aiohttp
import msgpack

from rljob_core.api.messages import Message
from rljob_core.errors import RefusedError

WORKER_PATH = "/v1/worker"
FRAME_LIMIT_BYTES = 256 << 20
PING_S = 15.0
"""A connection without an answer to a ping for this long is broken (a black-holed network)."""


def pack_frame(number: int, message: Message) -> bytes:
    """One request on the wire."""
    frame: bytes = msgpack.packb({"id": number, "type": type(message).__name__, "body": message.model_dump()})
    return frame


def body_of(frame: dict[str, Any]) -> dict[str, Any]:
    """The answer's body; RefusedError when the coordinator says why there is none."""
    if "error" in frame:
        raise RefusedError(str(frame["error"]))
    body: dict[str, Any] = frame["body"]
    return body


async def read_frame(socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    """The next frame; ClientError when the connection ends instead."""
    message = await socket.receive()
    if message.type is not aiohttp.WSMsgType.BINARY:
        raise aiohttp.ClientConnectionError(f"connection ended: {message.type.name} {message.extra or ''}")
    frame: dict[str, Any] = msgpack.unpackb(message.data)
    return frame
