"""The store-master process: starts the wheel's `mooncake_master`, says when it serves, ends as it ends.

It is never restarted here: a master that died has lost every key, so the job goes back to its last checkpoint.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import subprocess
import time
from pathlib import Path
from types import FrameType

from rljob_core.api.placement import DevicePreset
from rljob_workers.context import Context, split_address
from rljob_workers.kv_store.health import service_ready
from rljob_workers.kv_store.mooncake import master_binary
from rljob_workers.parent import die_with_parent

READY_S = 30.0
LEASE_MS = 10_000
CLIENT_TTL_S = {DevicePreset.CPU: 10, DevicePreset.CUDA: 10, DevicePreset.NPU: 60}
"""Silence after which a client, and its segment, is given up. NPU nodes: binding threads to cores at start delays a
live client's pings past 10 s (vllm-ascend FAQ)."""

_log = logging.getLogger(__name__)


def main(context: Context) -> int:
    """Run the master until it exits or SIGTERM; its exit code, 1 when it did not come up."""
    host, port = split_address(context.listen)
    child = subprocess.Popen(
        command(master_binary(), host, port, context.store_metrics_port, context.spec.scheduling.device),
        preexec_fn=lambda: die_with_parent({}),
    )

    def forward(signum: int, frame: FrameType | None) -> None:
        child.send_signal(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, forward)
    if not _wait_ready(child, host, context.store_metrics_port):
        child.kill()
        child.wait()
        _log.error("mooncake_master did not serve on %s within %s s", context.listen, READY_S)
        return 1
    code = child.wait()
    return code if code >= 0 else 128 - code


def command(binary: Path, host: str, port: int, metrics_port: int, device: DevicePreset) -> list[str]:
    """Command line. Everything is hard-pinned, so eviction has nothing to do and never starts (watermark 1)."""
    return [
        str(binary),
        f"--rpc_address={host}",
        f"--rpc_port={port}",
        "--rpc_thread_num=4",
        f"--metrics_host={host}",
        f"--metrics_port={metrics_port}",
        "--enable_metric_reporting=false",
        f"--default_kv_lease_ttl={LEASE_MS}",
        f"--client_ttl={CLIENT_TTL_S[device]}",
        "--eviction_high_watermark_ratio=1.0",
        "--allow_evict_soft_pinned_objects=false",
        "--logtostderr",
    ]


def _wait_ready(child: subprocess.Popen[bytes], host: str, metrics_port: int) -> bool:
    """True once it serves; True as well when it ended by itself (its code says why)."""
    local = "127.0.0.1" if ipaddress.ip_address(host).is_unspecified else host
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            return True
        if service_ready(local, metrics_port):
            _log.info("mooncake_master serves on port %d of %s", metrics_port, local)
            return True
        time.sleep(0.05)
    return False
