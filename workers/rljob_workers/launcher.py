"""The pod's first process of a role with devices: one child per device, ended as a whole.

Imports nothing heavy: it only starts, watches and signals. The first child that fails decides the exit code and the
last words.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from rljob_core import names

GRACE_S = 5.0
"""From SIGTERM to SIGKILL for the siblings of a child that failed."""
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
_log = logging.getLogger(__name__)


def launch(environ: Mapping[str, str], command: Sequence[str] = (sys.executable, "-m", "rljob_workers")) -> int:
    """Run one process per device until all have ended; the exit code of the first that failed, or 0.

    command: how a child is started; which device it serves is in its environment.
    """
    with tempfile.TemporaryDirectory(prefix="rljob-") as folder:
        return _Group(environ, command, Path(folder)).run()


class _Group:
    def __init__(self, environ: Mapping[str, str], command: Sequence[str], folder: Path) -> None:
        self._environ, self._command, self._folder = environ, list(command), folder
        self._devices = int(environ.get(names.ENV_DEVICES_PER_POD) or 1)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        """By pid: those not reaped yet."""
        self._ranks: dict[int, int] = {}
        self._received: list[int] = []

    def run(self) -> int:
        for number in FORWARDED:
            signal.signal(number, self._forward)
        for local_rank in range(self._devices):
            child = subprocess.Popen(self._command, env=self._child_environ(local_rank))
            self._children[child.pid], self._ranks[child.pid] = child, local_rank
            for missed in self._received:
                os.kill(child.pid, missed)
        return self._wait()

    def _child_environ(self, local_rank: int) -> dict[str, str]:
        return dict(self._environ) | {
            names.ENV_LOCAL_RANK: str(local_rank),
            names.ENV_TERMINATION_LOG: str(self._words(local_rank)),
            names.ENV_PARENT_PID: str(os.getpid()),
        }

    def _words(self, local_rank: int) -> Path:
        return self._folder / f"last-words-{local_rank}.json"

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        for pid in list(self._children):
            os.kill(pid, number)

    def _wait(self) -> int:
        """Reap children in the order they end."""
        while self._children:
            pid, status = os.wait()
            if pid not in self._children:
                continue
            code = self._children.pop(pid).returncode = os.waitstatus_to_exitcode(status)
            if code:
                self._report(self._ranks[pid], code)
                self._end_rest()
                return code if code > 0 else 128 - code
        return 0

    def _report(self, local_rank: int, code: int) -> None:
        """The failing child's own words, or what its exit code says."""
        words: dict[str, object] = {}
        if self._words(local_rank).exists():
            words = json.loads(self._words(local_rank).read_bytes())
        rank = int(self._environ.get(names.ENV_POD_INDEX) or 0) * self._devices + local_rank
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        words.setdefault("rank", rank)
        words.setdefault("message", f"rank {rank}: {how}")
        words["exitCode"] = code if code > 0 else 128 - code
        _log.error("rank %d ended first: %s", rank, how)
        try:
            Path(self._environ.get(names.ENV_TERMINATION_LOG) or names.TERMINATION_LOG).write_text(json.dumps(words))
        except OSError as error:
            _log.warning("last words cannot be written: %s", error)

    def _end_rest(self) -> None:
        """A collective without one of its ranks hangs: end the others."""
        rest, self._children = list(self._children.values()), {}
        for child in rest:
            child.terminate()
        deadline = time.monotonic() + GRACE_S
        for child in rest:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
