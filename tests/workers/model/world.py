"""One rank of two, run as a process by test_model_worlds.py: policies of several layouts, and a rollout group.

Arguments: rank, world, rendezvous file, input file (config and whole tensors by head, ids, prompts), output file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rljob_core.layouts import Layout
from rljob_workers.model import Placement, Policy, build_policy, expert_parallel_group
from rljob_workers.rollout.engine import EngineLimits, TorchEngine

EP2, DP2 = Layout(dp=2, ep=2), Layout(dp=2)


def trained(policy: Policy, ids_BT: Tensor) -> dict[str, Any]:
    """Logits of this rank's rows, and gradients of the sum of its token losses."""
    logits = policy(ids_BT)
    (-logits.log_softmax(-1)[:, :-1].gather(-1, ids_BT[:, 1:, None])).sum().backward()
    gradients = {name: p.grad for name, p in policy.named_parameters()}
    return {"logits": logits.detach(), "gradients": gradients, "held": policy.local_tensors()}


def decoded(policy: Policy, prompts: list[list[int]], mine: bool) -> list[Any]:
    """Sequences of a group whose other rank has none: half of them from prefill KV, half recomputed."""
    limits = EngineLimits(max_sequences=8, max_prompt_tokens=6, max_response_tokens=5, prefill_rows=2)
    engine = TorchEngine(policy, limits, eos_ids=[1], group=dist.group.WORLD)
    engine.load(4)
    engine.ready(4)
    blocks = engine.prefill(prompts if mine else [])
    for slot, prompt in enumerate(prompts if mine else []):
        kv = blocks[slot] if slot % 2 else None
        engine.admit(slot, prompt, kv, max_tokens=5, greedy=False, seed=slot)
    finished = []
    while True:
        finished += engine.step()
        in_flight = torch.tensor(engine.in_flight)
        dist.all_reduce(in_flight)
        if not in_flight:
            return sorted((f.slot, f.token_ids, f.logprobs, f.finish_reason) for f in finished)


def of_layouts(rank: int, inputs: dict[str, Any], config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """What this rank computes of one model, under each layout."""
    group = expert_parallel_group(EP2, rank)
    mine = inputs["ids"][:5] if rank == 0 else inputs["ids"][5:]
    results: dict[str, Any] = {}
    for name, options in {
        "dp2": {"layout": DP2},
        "ep2": {"layout": EP2, "ep_group": group},
        "ep2 mapped": {"layout": EP2, "ep_group": group, "expert_map": inputs["map"]},
        "ep2 batched": {"layout": EP2, "ep_group": group, "deterministic": True},
    }.items():
        policy = build_policy(config, Placement(rank=rank, **options))
        policy.load_tensors(tensors)
        results[name] = trained(policy, mine)
        results[f"{name} engine"] = decoded(policy, inputs["prompts"], mine=rank == 0)
    return results


def main(rank: int, world: int, rendezvous: str, given: Path, out: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    inputs = torch.load(given)
    results = {head: of_layouts(rank, inputs, *model) for head, model in inputs["models"].items()}
    torch.save(results, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]))
