"""RLJobs as tests of the operator see them: created, watched, their pods moved by hand, a stand-in coordinator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from rljob_core.api.report import Outcome, Report, TerminationMessage
from rljob_operator.cluster.api import CONFIG_MAPS, PODS, RLJOBS, SECRETS, SERVICES, KubeApi, Object
from rljob_operator.yaml_loader import load_file

SAMPLE = Path(__file__).resolve().parents[1] / "manifests/samples/reverse-digits.yaml"
JOB_PODS = 7


async def until(probe: Callable[[], Awaitable[Any]], what: str, seconds: float = 30.0) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while True:
        answer = await probe()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        await asyncio.sleep(0.1)


def sample(name: str, namespace: str) -> Object:
    body: Object = load_file(SAMPLE)[0].body
    body["metadata"] = {"name": name, "namespace": namespace}
    return body


class Job:
    """One RLJob of a test."""

    def __init__(self, api: KubeApi, namespace: str, name: str = "rl-0") -> None:
        self.api, self.namespace, self.name = api, namespace, name

    async def create(self, change: Callable[[Object], None] = lambda _: None) -> Object:
        body = sample(self.name, self.namespace)
        change(body["spec"])
        return await self.api.create(RLJOBS, self.namespace, body)

    async def status(self) -> Object:
        status: Object = (await self.api.get(RLJOBS, self.namespace, self.name)).get("status") or {}
        return status

    async def condition(self, kind: str) -> Object:
        conditions = (await self.status()).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    async def becomes(self, kind: str, reason: str) -> Object:
        """The condition, once it has this reason."""

        async def has() -> Object | None:
            condition = await self.condition(kind)
            return condition if condition.get("reason") == reason else None

        found: Object = await until(has, f"condition {kind} with reason {reason}")
        return found

    async def pods(self) -> dict[str, Object]:
        page = await self.api.list_page(PODS, self.namespace, f"rljob.dev/job={self.name}")
        return {pod["metadata"]["name"]: pod for pod in page["items"]}

    async def all_created(self) -> dict[str, Object]:
        async def enough() -> dict[str, Object] | None:
            pods = await self.pods()
            return pods if len(pods) == JOB_PODS else None

        found: dict[str, Object] = await until(enough, "all pods created")
        return found

    async def phase(self, phase: str, seconds: float = 30.0) -> Object:
        async def reached() -> Object | None:
            status = await self.status()
            return status if status.get("phase") == phase else None

        found: Object = await until(reached, f"phase {phase}", seconds)
        return found

    async def everything(self) -> dict[str, tuple[str, str]]:
        """(uid, resourceVersion) of the RLJob and all its children."""
        out = {}
        for resource in (RLJOBS, PODS, SERVICES, CONFIG_MAPS, SECRETS):
            page = await self.api.list_page(resource, self.namespace, "")
            for item in page["items"]:
                if item["metadata"]["name"] != "kube-root-ca.crt":
                    meta = item["metadata"]
                    out[f"{resource}/{meta['name']}"] = (meta["uid"], meta["resourceVersion"])
        return out

    async def run(self, pods: Iterable[str], coordinator_ip: str) -> None:
        """Make all pods Running and ready; the coordinator at an address of its own."""
        for name in pods:
            await self.set_running(name, coordinator_ip if "-coordinator-" in name else "127.0.0.2")

    async def succeed(self) -> None:
        """Trainer and coordinator end with exit code 0, the coordinator with its final report."""
        final = Report(sequence=99, step=200, total_steps=200, policy_version=200, outcome=Outcome.STEPS_DONE)
        words = TerminationMessage(report=final).model_dump_json(by_alias=True, exclude_none=True)
        await self.set_ended(f"{self.name}-trainer-0", 0)
        await self.set_ended(f"{self.name}-coordinator-0", 0, words)

    async def only_left(self, *parts: str) -> None:
        """Wait until no other pods exist."""
        kept = {f"{self.name}-{part}" for part in parts}

        async def left() -> bool:
            return set(await self.pods()) == kept

        await until(left, f"only {sorted(kept)} left")

    async def set_running(self, name: str, ip: str) -> None:
        status = {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [_container({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)],
        }
        await self.api.merge_patch(PODS, self.namespace, name, {"status": status}, "status")

    async def set_ended(self, name: str, code: int, words: str = "") -> None:
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "message": words}
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [_container({"terminated": ended}, ready=False)],
        }
        await self.api.merge_patch(PODS, self.namespace, name, {"status": status}, "status")


def _container(state: Object, ready: bool) -> Object:
    return {"name": "worker", "state": state, "ready": ready, "restartCount": 0, "image": "x", "imageID": "x"}


class FakeCoordinator:
    """Answers /v1/report and /v1/directive where the operator looks: port 8400 of the pod's address."""

    def __init__(self, ip: str) -> None:
        self.ip = ip
        self.report = Report(sequence=1, step=3, total_steps=200, policy_version=3, reward_mean=0.25)
        self.directed = asyncio.Event()
        """Set once a directive was put."""
        self.tokens: set[str] = set()
        app = web.Application()
        app.add_routes([web.get("/v1/report", self._get), web.put("/v1/directive", self._put)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> FakeCoordinator:
        await self._runner.setup()
        await web.TCPSite(self._runner, self.ip, 8400).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _get(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers["Authorization"].removeprefix("Bearer "))
        if int(request.query["after"]) >= self.report.sequence:
            await asyncio.sleep(1.0)
        return web.json_response(self.report.to_wire())

    async def _put(self, _request: web.Request) -> web.Response:
        self.directed.set()
        return web.json_response({})
