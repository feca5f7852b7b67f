"""Processes that must not outlive the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping

from rljob_core import names

_PR_SET_PDEATHSIG = 1


def die_with_parent(environ: Mapping[str, str]) -> None:
    """Ask the kernel for SIGKILL when the parent ends, however it ends; SIGKILL now if it is gone already.

    The first process of a container has no parent it can see (pid 0): its runtime ends it.
    """
    parent = int(environ.get(names.ENV_PARENT_PID) or os.getppid())
    if parent == 0 or os.getpid() == 1:
        return
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
