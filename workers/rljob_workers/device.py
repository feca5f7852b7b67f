"""The device kind of a process, chosen in one place; the only file that imports torch_npu."""

from __future__ import annotations

import ctypes
import importlib
from typing import Literal

import torch

from rljob_core.errors import InvalidInputError

DeviceKind = Literal["cpu", "npu", "cuda"]

_BACKENDS = {"cpu": "gloo", "npu": "hccl", "cuda": "nccl"}
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP_BYTES = 256 << 20


def backend(kind: str) -> str:
    """Name of the torch.distributed backend of a device kind."""
    if kind not in _BACKENDS:
        raise InvalidInputError(
            "spec.scheduling.device", kind, "is not a device kind", f"use one of {', '.join(_BACKENDS)}"
        )
    return _BACKENDS[kind]


def setup(kind: str, local_rank: int, threads: int) -> torch.device:
    """Claim device `local_rank` of this pod and set compute threads; call once, before any tensor is made.

    InvalidInputError when the kind is unknown or its torch build or driver is missing.
    """
    backend(kind)
    torch.set_num_threads(threads)
    if kind == "cpu":
        _keep_freed_memory()
        return torch.device("cpu")
    if kind == "npu":
        return _npu(local_rank)
    if not torch.cuda.is_available():
        raise InvalidInputError(
            "spec.scheduling.device", kind, "finds no CUDA device here", "install the `cuda` extra on a CUDA node"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def pace(kind: str, units: float) -> None:
    """Wait as a paced device would for `units` of work of a kind; nothing in production.

    prefill: prompt tokens of one batch; decode: sequences of one step; train: tokens of one rank's samples of a step.
    """


def _npu(local_rank: int) -> torch.device:
    """torch_npu registers the device type `npu` and the backend `hccl` when imported."""
    try:
        importlib.import_module("torch_npu")
    except ImportError as error:
        raise InvalidInputError(
            "spec.scheduling.device", "npu", f"needs torch_npu ({error})", "install the `npu` extra of rljob"
        ) from error
    npu = torch.get_device_module("npu")
    if not npu.is_available():
        raise InvalidInputError(
            "spec.scheduling.device", "npu", "finds no Ascend device here", "check driver, CANN and the pod's resources"
        )
    npu.set_device(local_rank)
    return torch.device("npu", local_rank)


def _keep_freed_memory() -> None:
    """Keep freed blocks in the process: glibc gives megabyte tensors back to the kernel and faults them in anew,
    which halves the speed of element-wise operations on small models."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
