"""One rank of a rollout group of two, run as a process by test_rollout_loop_groups.py.

Arguments: rank, ep, rendezvous port, output file (rank 0: JSON, row -> [tokens, log-probabilities]).
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from rljob_core.layouts import Layout
from rljob_workers.model import expert_parallel_group
from rljob_workers.rollout.group import Group


def main(rank: int, ep: int, port: int, out: Path) -> None:
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("loop_tests", Path(__file__).with_name("test_rollout_loop.py"))
    assert spec is not None
    assert spec.loader is not None
    loop_tests = importlib.util.module_from_spec(spec)
    sys.modules["loop_tests"] = loop_tests
    spec.loader.exec_module(loop_tests)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    layout = Layout(dp=2, ep=ep)
    group = Group(layout, rank, dist.new_group(backend="gloo"), expert_parallel_group(layout, rank))
    bench = loop_tests.bench(group=group)
    bench.run(
        loop_tests.PULL, loop_tests.prefill(), loop_tests.decode(range(3)), loop_tests.decode(range(3, 8), keys=False)
    )
    if rank == 0:
        samples = {row: [s.response_ids.tolist(), s.logprobs.tolist()] for (_, row), s in bench.samples().items()}
        out.write_text(json.dumps(samples))
    else:
        assert not bench.link.told, "only rank 0 talks to the coordinator"
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), Path(sys.argv[4]))
