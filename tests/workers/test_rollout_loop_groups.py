"""A rollout group of two ranks, data parallel or expert parallel, samples what one rank samples."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_S = 50
ALONE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_rollout_loop as tests
b = tests.bench()
b.run(tests.PULL, tests.prefill(), tests.decode(range(8)))
samples = {row: [s.response_ids.tolist(), s.logprobs.tolist()] for (_, row), s in b.samples().items()}
Path(sys.argv[2]).write_text(json.dumps(samples))
"""


def run(commands: list[list[str]]) -> None:
    processes = [subprocess.Popen([sys.executable, *command]) for command in commands]
    try:
        assert [p.wait(TIMEOUT_S) for p in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.processes
@pytest.mark.timeout(180)
@pytest.mark.parametrize("ep", [1, 2], ids=["data parallel", "expert parallel"])
def test_two_ranks_sample_what_one_samples(tmp_path: Path, ep: int) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    one, two = tmp_path / "one", tmp_path / "two"
    run([["-c", ALONE, str(HERE), str(one)]])
    script = str(HERE / "rollout_loop_world.py")
    run([[script, str(rank), str(ep), str(port), str(two)] for rank in range(2)])
    alone, group = json.loads(one.read_text()), json.loads(two.read_text())
    assert alone.keys() == group.keys() == {str(row) for row in range(8)}
    for row, (tokens, logprobs) in alone.items():
        assert group[row][0] == tokens, row
        assert group[row][1] == pytest.approx(logprobs, abs=1e-5), row
