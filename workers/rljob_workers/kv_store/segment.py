"""A store process: lends one segment of memory to the pool until SIGTERM, or until the master is gone for long."""

from __future__ import annotations

import logging
import signal
import time
from types import FrameType

from rljob_workers.context import Context, split_address
from rljob_workers.kv_store.health import service_ready
from rljob_workers.kv_store.mooncake import MooncakeSegment

CHECK_S = 1.0
MASTER_GONE_S = 30.0
"""Without a master for this long every key is lost anyway."""

_log = logging.getLogger(__name__)


class _Stopped(BaseException):
    """SIGTERM or SIGINT arrived."""


def main(context: Context) -> int:
    """Exit code 0 after a signal, with the segment deregistered; 1 when the master stayed away."""
    managed = context.spec.kv_store.managed_store
    assert managed is not None, "an external store has no store processes"
    segment: MooncakeSegment | None = None
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _stop)
    try:
        segment = MooncakeSegment(
            master=context.store_master,
            local_ip=context.pod_ip,
            protocol=context.spec.kv_store.protocol,
            segment_bytes=managed.segment_bytes,
        )
        _log.info("segment of %d bytes mounted at %s", managed.segment_bytes, context.store_master)
        _watch(split_address(context.store_master)[0], context.store_metrics_port)
        _log.error("no store master at %s for %s s", context.store_master, MASTER_GONE_S)
        return 1
    except _Stopped:
        return 0
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
        if segment is not None:
            segment.close()


def _watch(host: str, metrics_port: int) -> None:
    """Return once the master has not served for MASTER_GONE_S."""
    seen = time.monotonic()
    while time.monotonic() - seen < MASTER_GONE_S:
        time.sleep(CHECK_S)
        if service_ready(host, metrics_port):
            seen = time.monotonic()


def _stop(signum: int, frame: FrameType | None) -> None:
    raise _Stopped
