"""First process of the node's namespaces: mounts, network, then the components, restarted when they end.

Run as `node.py PLAN` by `unshare`. When it ends, the kernel ends everything else on the node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

RESTART_AFTER_S = 1.0


def prepare(plan: dict[str, Any]) -> None:
    """Mounts and network of the node; waits for the cable that the machine's side plugs in."""
    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    for target in plan["tmpfs"]:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", target], check=True)
    for source, target in plan["binds"].items():
        subprocess.run(["mount", "--bind", source, target], check=True)
    while plan["interface"] not in Path("/proc/net/dev").read_text():
        time.sleep(0.05)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for argv in plan["network"]:
        subprocess.run(argv, check=True)


class Node:
    """Keeps the components running until it is killed; it has nothing to save, so nobody asks it to stop."""

    def __init__(self, components: dict[str, list[str]], logs: Path) -> None:
        self._components, self._logs = components, logs
        self._running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def run(self) -> NoReturn:
        for name in self._components:
            self._start(name)
        while True:
            pid, status = os.wait()  # also reaps what pods leave behind
            if pid not in self._running:
                continue
            name, _ = self._running.pop(pid)
            print(f"{name} ended with {os.waitstatus_to_exitcode(status)}, starting it again", flush=True)
            time.sleep(RESTART_AFTER_S)
            self._start(name)

    def _start(self, name: str) -> None:
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(self._components[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._running[process.pid] = (name, process)


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    prepare(plan)
    Node(plan["components"], Path(plan["logs"])).run()


if __name__ == "__main__":
    main()
