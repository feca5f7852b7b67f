"""Untyped calls to the Kubernetes API over `kubernetes.aio`: plain dicts in, plain dicts out.

Client models drop or reject keys they do not know before the server can name them, so none are used. Every refusal
is an `ApiError` that keeps verb, resource and the server's own words; a server that cannot be reached is status 0.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.api_client import ApiClient

from rljob_core.errors import RLJobError
from rljob_core.names import FIELD_MANAGER, GROUP, PLURAL, VERSION

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""

REQUEST_TIMEOUT_S = 15.0
PAGE_LIMIT = 500
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource by full group and version, never by a bare plural (kubernetes.md B45)."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root, *(("namespaces", namespace) if namespace else ()), self.plural, name, subresource]
        return "/".join(part for part in parts if part)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


RLJOBS = Resource(group=GROUP, version=VERSION, plural=PLURAL)
PODS = Resource(group="", version="v1", plural="pods")
SERVICES = Resource(group="", version="v1", plural="services")
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps")
SECRETS = Resource(group="", version="v1", plural="secrets")
EVENTS = Resource(group="events.k8s.io", version="v1", plural="events")
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases")


class ApiError(RLJobError):
    """The API server refused a call, or could not be reached (status 0)."""

    def __init__(self, verb: str, resource: str, name: str, status: int, body: Object) -> None:
        self.verb, self.resource, self.name, self.status = verb, resource, name, status
        self.reason = str(body.get("reason", ""))
        self.message = str(body.get("message", ""))
        details = body.get("details") or {}
        self.causes: list[Object] = details.get("causes") or []
        self.retry_after_s: float | None = details.get("retryAfterSeconds")
        super().__init__(f"{verb} {resource} {name}: {status} {self.reason}: {self.message}")

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        return self.status == 409

    @property
    def quota(self) -> bool:
        return self.status == 403 and "exceeded quota" in self.message

    @property
    def verb_forbidden(self) -> bool:
        """RBAC lacks the verb (an admission refusal is also a 403, but words it differently)."""
        return self.status == 403 and " cannot " in self.message and " resource " in self.message


class NotLeaderError(RLJobError):
    """A write was asked for while this process does not hold the Lease."""


class KubeApi:
    """Calls against one API server.

    may_write: asked before each write; a leader that was paused past its Lease is stopped here
        (kubernetes.md B41) even before its election notices.
    """

    def __init__(self, client: ApiClient, may_write: Callable[[], bool] = lambda: True) -> None:
        self._client = client
        self._may_write = may_write

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        return await self._call("get", "GET", resource, resource.path(namespace, name), name)

    async def list_page(self, resource: Resource, namespace: str | None, selector: str, token: str = "") -> Object:
        """One page of a list; `metadata.continue` is the next token, empty at the end."""
        query = {"labelSelector": selector, "limit": str(PAGE_LIMIT), "continue": token}
        return await self._call("list", "GET", resource, resource.path(namespace), query=query)

    async def create(self, resource: Resource, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        """POST with strict validation: an unknown key is an error that names it, never pruned."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "dryRun": "All" if dry_run else ""}
        name = body["metadata"].get("name", "")
        return await self._call("create", "POST", resource, resource.path(namespace), name, query, body, _JSON)

    async def apply(self, resource: Resource, namespace: str, body: Object, *, force: bool) -> Object:
        """Server-side apply under our one field manager."""
        name = body["metadata"]["name"]
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict", "force": str(force).lower()}
        path = resource.path(namespace, name)
        return await self._call("patch", "PATCH", resource, path, name, query, body, _APPLY_PATCH)

    async def replace(self, resource: Resource, namespace: str | None, body: Object) -> Object:
        """PUT; a `metadata.resourceVersion` in the body makes it conditional."""
        name = body["metadata"]["name"]
        return await self._call("update", "PUT", resource, resource.path(namespace, name), name, {}, body, _JSON)

    async def merge_patch(
        self, resource: Resource, namespace: str, name: str, body: Object, subresource: str = ""
    ) -> Object:
        """JSON merge patch; a `metadata.resourceVersion` in the body makes it conditional."""
        path = resource.path(namespace, name, subresource)
        query = {"fieldManager": FIELD_MANAGER}
        return await self._call("patch", "PATCH", resource, path, name, query, body, _MERGE_PATCH, subresource)

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str, grace_s: float) -> None:
        """Delete exactly the object with this uid."""
        body: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": round(grace_s),
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        path = resource.path(namespace, name)
        await self._call("delete", "DELETE", resource, path, name, {}, body, _JSON)

    @asynccontextmanager
    async def watch(
        self, resource: Resource, namespace: str | None, selector: str, version: str, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[Object]]:
        """Raw watch events from a resource version on; the server ends the stream after timeout_s."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "timeoutSeconds": str(round(timeout_s)),
        }
        request = ("watch", "GET", resource, resource.path(namespace))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S)
        response = await self._send(*request, query=query, timeout=timeout)
        try:
            if response.status != 200:
                raise await _refusal("watch", str(resource), "", response)
            yield _lines(response)
        finally:
            response.close()

    async def served(self, resource: Resource) -> bool:
        """Whether discovery lists the resource."""
        group = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        try:
            body = await self._call("discover", "GET", resource, group)
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return any(entry["name"] == resource.plural for entry in body.get("resources", []))

    async def _call(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        name: str = "",
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = _JSON,
        subresource: str = "",
    ) -> Object:
        label = f"{resource}/{subresource}" if subresource else str(resource)
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        try:
            response = await self._send(verb, method, resource, path, query or {}, body, content_type, timeout)
            async with response:
                if response.status >= 300:
                    raise await _refusal(verb, label, name, response)
                answer: Object = json.loads(await response.read())
                return answer
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise _unreachable(verb, label, name, error) from error

    async def _send(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        query: dict[str, str],
        body: Object | None = None,
        content_type: str = _JSON,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        if method != "GET" and not self._may_write():
            raise NotLeaderError(f"{verb} {resource}: the Lease is not held")
        headers = {"Content-Type": content_type, "Accept": _JSON}
        set_query = {key: value for key, value in query.items() if value}
        url = f"{self._client.configuration.host}{path}?{urlencode(set_query)}"
        await self._client.update_params_for_auth(headers, {}, ["BearerToken"], path, method, body)
        try:
            answer = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
        except (TimeoutError, aiohttp.ClientError, ConnectionError) as error:
            raise _unreachable(verb, str(resource), "", error) from error
        response: aiohttp.ClientResponse = answer.response
        return response


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[Object]:
    """One JSON event a line, until the server ends the stream."""
    while line := await response.content.readline():
        yield json.loads(line)


async def _refusal(verb: str, resource: str, name: str, response: aiohttp.ClientResponse) -> ApiError:
    text = (await response.read()).decode(errors="replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = {"message": text.strip()}
    return ApiError(verb, resource, name, response.status, body if isinstance(body, dict) else {"message": text})


def _unreachable(verb: str, resource: str, name: str, error: BaseException) -> ApiError:
    body = {"reason": "Unreachable", "message": str(error) or type(error).__name__}
    return ApiError(verb, resource, name, 0, body)
