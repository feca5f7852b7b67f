"""The device kind: one place, and a message a user can act on where something is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import rljob_workers
from rljob_core.errors import InvalidInputError
from rljob_workers.device import backend, setup


def test_backends() -> None:
    assert [backend(kind) for kind in ("cpu", "npu", "cuda")] == ["gloo", "hccl", "nccl"]


def test_cpu_takes_the_threads_of_the_substrate() -> None:
    before = torch.get_num_threads()
    try:
        assert setup("cpu", 0, 1) == torch.device("cpu")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_unknown_kind_lists_the_known() -> None:
    with pytest.raises(InvalidInputError, match="'tpu' is not a device kind; use one of cpu, npu, cuda"):
        setup("tpu", 0, 1)


def test_npu_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    with pytest.raises(InvalidInputError, match=r"needs torch_npu.*install the `npu` extra"):
        setup("npu", 0, torch.get_num_threads())


def test_torch_npu_is_named_in_one_file() -> None:
    root = Path(rljob_workers.__file__).parent
    naming = {str(file.relative_to(root)) for file in root.rglob("*.py") if '"torch_npu"' in file.read_text()}
    importing = {str(f.relative_to(root)) for f in root.rglob("*.py") if "import torch_npu" in f.read_text()}
    assert (naming, importing) == ({"device.py"}, set())
