"""A bare Kubernetes API server (etcd and kube-apiserver, nothing else) on loopback ports, for tests.

What only an API server can say (is the CRD accepted, which CEL rule refuses what, does an apply change anything) needs
no kubelet and no controllers. Nothing here collects garbage, runs pods or makes service accounts: those tests belong on
a whole cluster.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

ENV_BINARIES = "RLJOB_KUBE_BINARIES"
START_S = 60.0
STOP_S = 10.0


def find_binaries(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Folder with `etcd` and `kube-apiserver`: $RLJOB_KUBE_BINARIES, else one below ~/.cache/rljob; None if absent."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rljob"
    named = environ.get(ENV_BINARIES)
    folders = [Path(named)] if named else sorted({found.parent for found in cache.glob("**/kube-apiserver")})
    for folder in folders:
        if (folder / "etcd").is_file() and (folder / "kube-apiserver").is_file():
            return folder
    return None


class ApiServer:
    """etcd and kube-apiserver as children of this process; they die with it, whatever kills it.

    binaries: folder of the two programs. folder: empty directory for data, certificates, logs and the kubeconfig.
    Use as a context manager; `kubeconfig` then names an administrator's file. RBAC is on: act as someone else with
    `kubectl --as`.
    """

    def __init__(self, binaries: Path, folder: Path, extra_args: Sequence[str] = ()) -> None:
        self._binaries, self._folder, self._extra_args = binaries, folder, tuple(extra_args)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._token = secrets.token_hex(16)
        self.url = ""
        self.kubeconfig = folder / "kubeconfig.json"

    def __enter__(self) -> ApiServer:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop both, API server first."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        key = self._folder / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        etcd, peer, port = _free_ports(3)
        etcd_url = f"http://127.0.0.1:{etcd}"
        self._spawn(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={etcd_url}",
            f"--advertise-client-urls={etcd_url}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self.url = f"https://127.0.0.1:{port}"
        certificates = self._folder / "certificates"
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers={etcd_url}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={certificates}",
            f"--service-account-issuer={self.url}",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            *self._extra_args,
        )
        self._wait_ready()
        self._write_kubeconfig(certificates / "apiserver.crt")

    def _spawn(self, program: str, *args: str) -> None:
        with (self._folder / f"{program}.log").open("wb") as log:
            command = ["setpriv", "--pdeathsig", "KILL", str(self._binaries / program), *args]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder))

    def _write_kubeconfig(self, certificate: Path) -> None:
        """JSON is YAML. The server made its certificate, chain included, at its start."""
        cluster = {"server": self.url, "certificate-authority": str(certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": "default"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(json.dumps(config, indent=2))
        self.kubeconfig.chmod(0o600)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args!r} ended with {process.returncode}; see {self._folder}/*.log")
            if self._ready():
                return
            time.sleep(0.1)
        raise TimeoutError(f"API server at {self.url} not ready after {START_S:.0f} s; see {self._folder}/*.log")

    def _ready(self) -> bool:
        """Whether /readyz answers and the default namespace exists."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for path in ("/readyz", "/api/v1/namespaces/default"):
            request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self._token}"})
            try:
                with urllib.request.urlopen(request, context=context, timeout=2):
                    pass
            except (urllib.error.URLError, OSError):
                return False
        return True


def _free_ports(count: int) -> list[int]:
    """Distinct loopback ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
