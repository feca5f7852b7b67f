"""Fixtures of tests that run the operator as a process against a bare API server with manifests/base applied.

The operator has exactly the rights of its service account. No kubelet and no controllers run here: tests set pod
statuses by hand (operator_jobs.py), and nothing is garbage collected.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from apiserver import ApiServer, find_binaries
from faulty_proxy import FaultyProxy
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from operator_jobs import until

from rljob_operator.cluster.api import KubeApi, Object, Resource

ROOT = Path(__file__).resolve().parents[1]
INSTALL_KEY = "test-install-key"
NAMESPACES = Resource(group="", version="v1", plural="namespaces")
NO_CHANGE: Mapping[str, str] = {}
AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}


@dataclass
class Cluster:
    """An API server with manifests/base applied. operator_config: a kubeconfig of the operator's service account."""

    admin_config: Path
    operator_config: Path
    folder: Path
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))

    def kubectl(self, *args: str) -> str:
        environ = os.environ | {"KUBECONFIG": str(self.admin_config)}
        done = subprocess.run(["kubectl", *args], env=environ, capture_output=True, text=True, check=True, cwd=ROOT)
        return done.stdout

    def audit(self) -> list[Object]:
        """Requests that were answered."""
        lines = (self.folder / "audit.log").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["stage"] == "ResponseComplete"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no kube-apiserver: make cluster-up builds one")
    folder = tmp_path_factory.mktemp("cluster")
    policy = folder / "audit.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    args = [f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"]
    with ApiServer(binaries, folder / "server", args) as server:
        config = json.loads(server.kubeconfig.read_text())
        found = Cluster(server.kubeconfig, folder / "operator.json", folder)
        found.kubectl("apply", "-k", "manifests/base")
        found.kubectl("wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=30s")
        token = found.kubectl("create", "token", "rljob-operator", "-n", "rljob-system").strip()
        config["users"][0]["user"] = {"token": token}
        found.operator_config.write_text(json.dumps(config))
        yield found


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[ApiClient]:
    """An administrator's."""
    configuration = Configuration()
    await kubernetes_config.load_kube_config(str(cluster.admin_config), client_configuration=configuration)
    async with ApiClient(configuration) as opened:
        yield opened


@pytest.fixture
async def api(client: ApiClient) -> KubeApi:
    return KubeApi(client)


@pytest.fixture
async def namespace(cluster: Cluster, api: KubeApi) -> str:
    name = f"t{next(cluster.numbers)}"
    await api.create(NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


class Operator:
    """One operator process."""

    def __init__(self, cluster: Cluster, pod_name: str, namespaces: str, environ: Mapping[str, str]) -> None:
        self.port = _free_port()
        key = cluster.folder / "install-key"
        key.write_text(INSTALL_KEY)
        configured = {
            "KUBECONFIG": str(cluster.operator_config),
            "RLJOB_WORKER_IMAGE": "localhost/rljob-worker:test",
            "RLJOB_NAMESPACES": namespaces,
            "RLJOB_INSTALL_KEY_FILE": str(key),
            "RLJOB_PROBE_PORT": str(self.port),
            "POD_NAME": pod_name,
            "POD_NAMESPACE": "rljob-system",
        }
        self.log = cluster.folder / f"operator-{time.time_ns()}.log"
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "rljob_operator"]
            self.process = subprocess.Popen(
                command, env={**os.environ, **configured, **environ}, stdout=log, stderr=log
            )

    async def ready(self) -> None:
        await until(lambda: self.probe("readyz"), "operator ready")

    async def probe(self, path: str) -> bool:
        return (await self.answer(path))[0] == 200

    async def answer(self, path: str) -> tuple[int, str]:
        """Status and text; status 0 before the probes are up."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{self.port}/{path}") as response:
                return response.status, await response.text()
        except aiohttp.ClientError:
            return 0, ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


Start = Callable[..., Awaitable[Operator]]


@pytest.fixture
async def start(cluster: Cluster) -> AsyncIterator[Start]:
    running: list[Operator] = []

    async def begin(
        pod_name: str = "operator-0", namespaces: str = "", ready: bool = True, environ: Mapping[str, str] = NO_CHANGE
    ) -> Operator:
        running.append(Operator(cluster, pod_name, namespaces, environ))
        if ready:
            await running[-1].ready()
        return running[-1]

    yield begin
    for operator in running:
        if operator.process.poll() is None:
            operator.process.send_signal(signal.SIGCONT)
            assert operator.stop() in (0, 1), operator.log.read_text()


@pytest.fixture
async def proxy(cluster: Cluster, tmp_path: Path) -> AsyncIterator[FaultyProxy]:
    """Between an operator started with its `config` as KUBECONFIG and the API server."""
    async with FaultyProxy(cluster.operator_config, tmp_path) as opened:
        yield opened


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
