"""The `local` provider: starts and stops the node, gives its kubeconfig, loads images."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import needs
from commands import CommandError, run, say
from local import binaries, components, machine, settings
from local.pause import pause_archive

NODE_PROGRAM = Path(__file__).parent / "node.py"
READY_WITHIN_S = 180.0


class Local:
    """One node on this machine; needs root, and the Debian packages that `python e2e/cluster needs` prints."""

    def __init__(self) -> None:
        self.paths = settings.Paths()

    def up(self) -> None:
        if machine.node_pid(self.paths) is not None and self._answers():
            say("the local cluster is already up")
            return
        if os.geteuid() != 0:
            raise CommandError("the local cluster needs root")
        if by_hand := needs.by_hand():
            raise CommandError(f"the local cluster needs {' and '.join(by_hand)}")
        if missing := sorted({needs.NODE[tool] for tool in needs.absent(needs.NODE)}):
            raise CommandError(f"the local cluster needs what is in Debian's {', '.join(missing)}")
        built = binaries.build_all()
        started = time.monotonic()
        machine.restore(self.paths)
        for folder in (self.paths.logs, self.paths.config, self.paths.binds, self.paths.loaded, self.paths.containerd):
            folder.mkdir(parents=True)
        for target in settings.OWN_FOLDERS:
            (self.paths.binds / target.strip("/").replace("/", "-")).mkdir()
        machine.remember(self.paths)
        machine.make_cgroups()
        components.issue_certificates(self.paths)
        settings.write_configuration(self.paths)
        components.write_plan(self.paths, built)
        shutil.copy(self.paths.config / "admin.kubeconfig", self.paths.kubeconfig)
        self.paths.kubeconfig.chmod(0o600)
        self._start_node()
        self._wait("containerd", lambda: self._ctr("version"))
        with tempfile.TemporaryDirectory(dir=self.paths.root) as scratch:
            archive = Path(scratch) / "pause.tar"
            pause_archive(built / "pause", settings.PAUSE_IMAGE, archive)
            self.load_image(archive)
        self._wait("API server", lambda: self._kubectl("get", "--raw", "/readyz"))
        self._kubectl("apply", "-f", str(Path(__file__).parent / "coredns-rbac.yaml"))
        self._wait("node", lambda: self._kubectl("get", "node", settings.NODE_NAME))
        wait = ["wait", "node", settings.NODE_NAME, "--for=condition=Ready", f"--timeout={READY_WITHIN_S:.0f}s"]
        self._kubectl(*wait)
        self._wait("service account", lambda: self._kubectl("get", "serviceaccount", "default", "-n", "default"))
        say(f"the local cluster is ready after {time.monotonic() - started:.0f} s")

    def down(self) -> None:
        machine.restore(self.paths)

    def kubeconfig(self) -> Path:
        return self.paths.kubeconfig

    def load_image(self, archive: Path) -> None:
        """Import an OCI or Docker archive, once; the image's name is in it."""
        mark = self.paths.loaded / archive.name
        if not mark.exists():
            self._ctr("--namespace", "k8s.io", "images", "import", archive)
            mark.touch()

    def node_command(self, *argv: str) -> list[str]:
        """A command line that runs `argv` in the node's namespaces."""
        pid = machine.node_pid(self.paths)
        if pid is None:
            raise CommandError("the local cluster is not up")
        return ["nsenter", "--target", str(pid), "--all", *argv]

    def _start_node(self) -> None:
        namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        with (self.paths.logs / "node.log").open("ab") as log:
            outer = subprocess.Popen(
                ["unshare", *namespaces, sys.executable, "-I", str(NODE_PROGRAM), str(self.paths.plan)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        self._wait("node", lambda: self._first_process(outer))
        pid = self._first_process(outer)
        machine.record_node(self.paths, pid)
        cable = ["type", "veth", "peer", "name", settings.NODE_INTERFACE, "netns", str(pid)]
        run(["ip", "link", "add", settings.HOST_INTERFACE, *cable])
        run(["ip", "address", "add", f"{settings.HOST_IP}/{settings.PREFIX}", "dev", settings.HOST_INTERFACE])
        run(["ip", "link", "set", settings.HOST_INTERFACE, "up"])
        for route in components.ROUTES_OF_THE_MACHINE:
            run(route)

    def _first_process(self, outer: subprocess.Popen[bytes]) -> int:
        if outer.poll() is not None:
            raise SystemExit(f"unshare ended with {outer.returncode}: {(self.paths.logs / 'node.log').read_text()}")
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        if not children:
            raise CommandError("the node's first process is not there yet")
        return int(children[0])

    def _answers(self) -> bool:
        try:
            self._kubectl("get", "--raw", "/readyz", "--request-timeout=5s")
        except CommandError:
            return False
        return True

    def _ctr(self, *argv: str | Path) -> str:
        return run(["ctr", "--address", self.paths.socket, *argv])

    def _kubectl(self, *argv: str) -> str:
        return run(["kubectl", "--kubeconfig", self.paths.kubeconfig, *argv])

    def _wait(self, what: str, probe: Callable[[], object]) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                probe()
                return
            except CommandError as error:
                if time.monotonic() > deadline:
                    raise CommandError(f"{what} is not there; logs are in {self.paths.logs}; {error}") from error
                time.sleep(0.2)
