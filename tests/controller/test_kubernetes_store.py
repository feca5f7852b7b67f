"""Status patches, install key, start-up configuration, probes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from rljob_core.api import RLJob
from rljob_core.errors import InvalidInputError
from rljob_core.lifecycle.model import Memory
from rljob_operator.cluster.api import ApiError, Object, Resource
from rljob_operator.cluster.config import OperatorConfig
from rljob_operator.cluster.health import Health, Patience, probes
from rljob_operator.cluster.install_key import install_key
from rljob_operator.cluster.store import MEMORY_ENTRY, ConfigMapMemories, MemoryUnreadableError, difference


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"roles": {"x": 1, "y": 2}}, {"roles": {"x": 1, "z": 3}}, {"roles": {"y": None, "z": 3}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": 3}, {"a": 3}),
    ],
)
def test_a_status_patch_holds_what_differs(old: Object, new: Object, patch: Object) -> None:
    assert difference(old, new) == patch


class ConfigMapApi:
    """Serves one ConfigMap of the job's."""

    def __init__(self, data: Object) -> None:
        self.data = data

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        owners = [{"uid": "u1", "controller": True}]
        return {"metadata": {"name": name, "resourceVersion": "7", "ownerReferences": owners}, "data": self.data}


JOB = RLJob.from_object(
    {
        "metadata": {"name": "demo", "namespace": "ns", "uid": "u1"},
        "spec": {"model": {"path": "/m"}, "data": {}, "reward": {}, "algorithm": {}},
    }
)


async def test_memory_comes_back_as_it_was_saved() -> None:
    memory = Memory(attempt=3, replacements={"reward/0": 2})
    text = memory.model_dump_json(by_alias=True, exclude_none=True)
    assert await ConfigMapMemories(ConfigMapApi({MEMORY_ENTRY: text})).load(JOB) == memory  # type: ignore[arg-type]


async def test_a_key_that_a_later_minor_version_added_is_ignored() -> None:
    api = ConfigMapApi({MEMORY_ENTRY: '{"formatMajor": 1, "attempt": 2, "addedLater": true}'})
    assert (await ConfigMapMemories(api).load(JOB)).attempt == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            {MEMORY_ENTRY: '{"formatMajor": 2}'},
            "memory.json.formatMajor: Value error, 2 is not supported, this version",
        ),
        ({MEMORY_ENTRY: '{"attempt": 1'}, "memory.json: Invalid JSON"),
        ({}, "memory.json: Invalid JSON"),
    ],
    ids=["newer", "damaged", "absent"],
)
async def test_memory_that_cannot_be_read_is_never_taken_for_blank(data: Object, problem: str) -> None:
    with pytest.raises(MemoryUnreadableError) as caught:
        await ConfigMapMemories(ConfigMapApi(data)).load(JOB)  # type: ignore[arg-type]
    assert f"configmaps ns/demo-memory {problem}" in str(caught.value)


class SecretApi:
    """Takes one create."""

    def __init__(self, status: int = 201, then_mount: Path | None = None) -> None:
        self.status, self.then_mount = status, then_mount
        self.created: list[Object] = []

    async def create(self, resource: Resource, namespace: str | None, body: Object, **_: Any) -> Object:
        self.created.append(body)
        if self.then_mount:
            self.then_mount.write_text("theirs\n")
        if self.status != 201:
            raise ApiError("create", str(resource), "", self.status, {})
        return body


async def test_the_first_operator_makes_the_install_key(tmp_path: Path) -> None:
    api = SecretApi()
    key = await install_key(api, tmp_path / "key", "ns")  # type: ignore[arg-type]
    assert api.created[0]["stringData"] == {"key": key.decode()}
    assert len(key) == 64


async def test_a_mounted_key_is_taken_without_a_call(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("abc\n")
    api = SecretApi()
    assert await install_key(api, tmp_path / "key", "ns") == b"abc"  # type: ignore[arg-type]
    assert api.created == []


async def test_a_key_made_by_another_is_waited_for(tmp_path: Path) -> None:
    api = SecretApi(409, then_mount=tmp_path / "key")
    assert await install_key(api, tmp_path / "key", "ns") == b"theirs"  # type: ignore[arg-type]


def test_config_from_the_environment() -> None:
    config = OperatorConfig.from_env({"RLJOB_WORKER_IMAGE": "w", "RLJOB_NAMESPACES": "a, b", "POD_NAME": "p"})
    assert (config.worker_image, config.namespaces, config.pod_name) == ("w", ("a", "b"), "p")
    defaults = OperatorConfig.from_env({"RLJOB_WORKER_IMAGE": "w"})
    assert (defaults.namespaces, defaults.patience) == ((), Patience(stream_s=60))
    shorter = OperatorConfig.from_env({"RLJOB_WORKER_IMAGE": "w", "RLJOB_WATCH_SECONDS": "20"})
    assert (shorter.patience.silence_s, shorter.patience.limit_s) == (25, 50)


@pytest.mark.parametrize(
    ("environ", "field"),
    [({}, "RLJOB_WORKER_IMAGE"), ({"RLJOB_WORKER_IMAGE": "w", "RLJOB_PROBE_PORT": "x"}, "RLJOB_PROBE_PORT")],
)
def test_bad_config_names_the_variable(environ: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        OperatorConfig.from_env(environ)
    assert caught.value.field == field


async def test_probes_tell_standby_from_silence_b40() -> None:
    now = 0.0
    health = Health(lambda: now, limit_s=150.0)
    port = unused_port()
    async with probes(health, port), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(path) as response:
                return response.status, await response.text()

        assert await get("/healthz") == (200, "ok")
        assert (await get("/readyz"))[0] == 503
        health.ready = lambda: True
        assert (await get("/readyz"))[0] == 200
        health.beat("rljobs")
        now = 150.0
        assert (await get("/healthz"))[0] == 200
        now = 151.0
        assert await get("/healthz") == (500, "silent: rljobs")
        health.beat("rljobs")
        assert (await get("/healthz"))[0] == 200
