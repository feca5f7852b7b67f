"""One rank of a small trainer world, run as a process by test_trainer_worlds.py: three steps on its share of rows.

Arguments: rank, world, ep, rendezvous port, output file (written by rank 0; tensors `<form of experts>/<name>`).
"""

from __future__ import annotations

import random
import sys

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from rljob_core.api.algorithm import Algorithm, LossReduction
from rljob_core.layouts import Layout
from rljob_workers.model import Placement, Policy, build_policy, expert_parallel_group, initial_tensors
from rljob_workers.packs import Sample
from rljob_workers.trainer.batch import Batch, collate
from rljob_workers.trainer.host import Host
from rljob_workers.trainer.learner import Learner

CONFIG = {
    "model_type": "qwen3_moe",
    "vocab_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "initializer_range": 0.3,
}
ROWS, MINIBATCHES, STEPS = 16, 2, 3


def batches(step: int, rank: int, world: int) -> list[Batch]:
    """The rank's rows of every minibatch, out of the same 16 rows whatever the world."""
    rng = random.Random(step)
    samples = [
        Sample(
            prompt_ids=np.array([rng.randrange(2, 16) for _ in range(rng.randint(1, 4))], np.int32),
            response_ids=np.array([rng.randrange(1, 16) for _ in range(n)], np.int32),
            logprobs=np.array([rng.uniform(-4, -1) for _ in range(n)], np.float32),
        )
        for n in (rng.randint(1, 6) for _ in range(ROWS))
    ]
    advantages = [rng.uniform(-1, 1) for _ in range(ROWS)]
    trained = [rng.random() < 0.9 for _ in range(ROWS)]
    versions = [step - rng.randint(0, 1) for _ in range(ROWS)]
    share = ROWS // MINIBATCHES // world
    out = []
    for minibatch in range(MINIBATCHES):
        mine = slice(minibatch * share * world + rank * share, minibatch * share * world + (rank + 1) * share)
        trained_B = torch.tensor(trained[mine])
        out.append(collate(samples[mine], torch.tensor(advantages[mine]), trained_B, versions[mine], positions=9))
    return out


def train(layout: Layout, rank: int, ep_group: dist.ProcessGroup | None, *, deterministic: bool) -> dict[str, Tensor]:
    """Final whole tensors and the numbers of each step, on rank 0."""
    at = Placement(layout=layout, rank=rank, ep_group=ep_group, deterministic=deterministic)

    def build() -> Policy:
        return build_policy(CONFIG, at)

    policy = build()
    policy.load_tensors(initial_tensors(CONFIG, seed=0))
    algorithm = Algorithm(minibatches=MINIBATCHES, kl_coefficient=0.1, loss_reduction=LossReduction.SEQUENCE)
    host = Host(layout, rank)
    learner = Learner(policy, build, algorithm, temperature=0.8, max_version_lag=1, host=host)
    learner.keep_reference(initial_tensors(CONFIG, seed=1))
    numbers = []
    for step in range(STEPS):
        result = learner.train(batches(step, rank, layout.world), step, version=step)
        counts = torch.tensor(result.expert_counts, dtype=torch.float64).flatten()
        numbers.append(torch.cat((torch.tensor(list(result.metrics.values()), dtype=torch.float64), counts)))
    return {**host.whole_tensors(policy), "numbers": torch.stack(numbers)}


def main(rank: int, world: int, ep: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    layout = Layout(dp=world, ep=ep)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    ep_group = expert_parallel_group(layout, rank)
    results = {
        f"{form}/{name}": tensor
        for form in ("eager", "batched")
        for name, tensor in train(layout, rank, ep_group, deterministic=form == "batched").items()
    }
    if rank == 0:
        save_file(results, out)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]), sys.argv[5])
