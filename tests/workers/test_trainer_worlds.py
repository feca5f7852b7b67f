"""Expert parallel 2 and data parallel 2 give the weights, metrics and expert loads of one process."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

SCRIPT = Path(__file__).with_name("trainer_world.py")
TIMEOUT_S = 50


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def run(world: int, ep: int, out: Path) -> dict[str, Tensor]:
    port = free_port()
    command = [sys.executable, str(SCRIPT)]
    ranks = [subprocess.Popen([*command, str(rank), str(world), str(ep), str(port), str(out)]) for rank in range(world)]
    try:
        assert [p.wait(TIMEOUT_S) for p in ranks] == [0] * world
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return load_file(out)


@pytest.mark.processes
@pytest.mark.timeout(180)
def test_two_ranks_equal_one(tmp_path: Path) -> None:
    one = run(1, 1, tmp_path / "one")
    for name, ep in (("data parallel", 1), ("expert parallel", 2)):
        two = run(2, ep, tmp_path / name)
        assert two.keys() == one.keys()
        for key, tensor in one.items():
            # Metrics hold exponentials of log-probabilities: rounding grows with their size, weights stay near 1.
            relative = 2e-5 if key.endswith("numbers") else 0.0
            assert_close(two[key], tensor, rtol=relative, atol=2e-6, msg=lambda m, at=f"{name}: {key}": f"{at}: {m}")
