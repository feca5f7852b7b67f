"""RLJobs through kopf: served by `on.event` alone, which never writes.

No finalizer, no last-handled annotation, no progress in the status, no posted event: kopf only lists and watches. Its
stream is ended by the server again and again, so that each new request is a sign of life (an idle stream's bookmarks
stay inside kopf).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client.api_client import ApiClient

from rljob_core.names import GROUP, PLURAL, VERSION
from rljob_operator.cluster.api import PAGE_LIMIT, REQUEST_TIMEOUT_S, RLJOBS, Object
from rljob_operator.cluster.health import Patience

IDLE_S = 0.5
"""kopf's workers only hand bodies on; an idle one must not hold up the end of the process."""


async def serve(
    client: ApiClient,
    namespaces: Collection[str],
    *,
    seen: Callable[[Object], None],
    gone: Callable[[str], None],
    beat: Callable[[], None],
    patience: Patience,
    stop: Callable[[], Awaitable[None]],
) -> None:
    """Run kopf until it is told to stop (SIGTERM, SIGINT) or fails.

    seen: every new body. gone: uid of a deleted RLJob. beat: sign of life of the watch. namespaces: empty for all.
    stop: ends the tasks that `seen` began; kopf would wait 5 s for them before it cancels them itself.
    """
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.AiohttpSession:
        return await _session(client, beat)

    async def on_event(event: Any, **_: Any) -> None:
        body = event["object"]
        if event["type"] == "DELETED":
            gone(body["metadata"]["uid"])
        else:
            seen(body)

    async def cleanup(**_: Any) -> None:
        await stop()

    kopf.on.cleanup(registry=registry, id="stop")(cleanup)
    kopf.on.login(registry=registry, id="login")(login)
    kopf.on.event(GROUP, VERSION, PLURAL, registry=registry, id="enqueue")(on_event)
    await kopf.operator(
        registry=registry,
        settings=_settings(patience),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _settings(patience: Patience) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.queueing.idle_timeout = IDLE_S
    settings.queueing.exit_timeout = IDLE_S
    settings.watching.server_timeout = patience.stream_s
    settings.watching.inactivity_timeout = patience.silence_s
    settings.watching.connect_timeout = REQUEST_TIMEOUT_S
    settings.watching.chunk_size = PAGE_LIMIT
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    return settings


async def _session(client: ApiClient, beat: Callable[[], None]) -> kopf.AiohttpSession:
    """A session of kopf's own with our credentials; kopf asks for a new one when they are refused (401)."""
    configuration = client.configuration
    token = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")

    async def ended(_session: aiohttp.ClientSession, _context: SimpleNamespace, params: Any) -> None:
        if params.url.path.endswith(f"/{RLJOBS.plural}") and params.response.status == 200:
            beat()

    trace = aiohttp.TraceConfig()
    trace.on_request_end.append(ended)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=client.rest_client.ssl_context),
        headers={"Authorization": token} if token else None,
        proxy=configuration.proxy,
        trust_env=True,
        trace_configs=[trace],
    )
    return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)
