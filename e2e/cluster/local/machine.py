"""What the node leaves outside its namespaces: kernel settings, control groups, an interface, folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from commands import CommandError, run
from local.settings import CGROUP, HOST_INTERFACE, OWN_FOLDERS, Paths, write_json

# The kubelet changes these for the whole machine.
KERNEL_SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
_STOP_WITHIN_S = 30.0


def remember(paths: Paths) -> None:
    """Write down what will have to be put back."""
    settings = {name: (Path("/proc/sys") / name).read_text().strip() for name in KERNEL_SETTINGS}
    made = [folder for folder in OWN_FOLDERS if not Path(folder).exists()]
    write_json(paths.machine, {"settings": settings, "made": made})
    for folder in made:
        Path(folder).mkdir(parents=True)


def restore(paths: Paths) -> None:
    """Put the machine back as it was before `up`, whatever a killed run left."""
    stop_node(paths)
    remove_interface()
    remove_cgroups()
    if paths.machine.exists():
        memory = json.loads(paths.machine.read_text())
        for name, value in memory["settings"].items():
            (Path("/proc/sys") / name).write_text(value)
        for folder in memory["made"]:
            if Path(folder).is_dir() and not any(Path(folder).iterdir()):
                Path(folder).rmdir()
    if paths.root.exists():
        shutil.rmtree(paths.root)


def remove_interface() -> None:
    """The kernel removes it with the node's namespace, in its own time: going meanwhile is no failure."""
    interface = Path("/sys/class/net", HOST_INTERFACE)
    if interface.exists():
        try:
            run(["ip", "link", "delete", HOST_INTERFACE])
        except CommandError:
            if interface.exists():
                raise


def node_pid(paths: Paths) -> int | None:
    """Process id, as the machine sees it, of the node's first process; None when no node runs."""
    try:
        pid, start_time = paths.pid_file.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if start_time_of(int(pid)) == start_time else None


def record_node(paths: Paths, pid: int) -> None:
    """The start time beside the pid keeps a recycled pid from being taken for the node."""
    paths.pid_file.write_text(f"{pid} {start_time_of(pid)}")


def start_time_of(pid: int) -> str | None:
    """Start time of a live process in clock ticks since boot; None for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def stop_node(paths: Paths) -> None:
    """Kill the node's first process; the kernel ends the rest of its namespaces."""
    pid = node_pid(paths)
    if pid is None:
        return
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _STOP_WITHIN_S
    while node_pid(paths) is not None:
        if time.monotonic() > deadline:
            raise CommandError(f"process {pid} (the node) does not end")
        time.sleep(0.1)


def cgroup_roots() -> Iterator[Path]:
    """Mount point of every control group hierarchy (one on version 2, several on version 1)."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, target, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            yield Path(target)


def make_cgroups() -> None:
    for root in cgroup_roots():
        (root / CGROUP).mkdir(exist_ok=True)


def remove_cgroups() -> None:
    """Groups empty from the leaves up; a process that is just ending holds its group for a moment."""
    deadline = time.monotonic() + _STOP_WITHIN_S
    for root in cgroup_roots():
        for folder, _, _ in os.walk(root / CGROUP, topdown=False):
            while True:
                try:
                    Path(folder).rmdir()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
