"""A rollout rank as a process: its engine, its store, its link, and the loop over them."""

from __future__ import annotations

from contextlib import closing

import torch

from rljob_core.inputs.checks import config_field
from rljob_workers import device
from rljob_workers.context import Context
from rljob_workers.kv_store import open_store
from rljob_workers.link import CoordinatorLink, register_message
from rljob_workers.model import Placement, build_policy, tensor_specs
from rljob_workers.model_source import model_config
from rljob_workers.rollout.engine import EngineLimits, TorchEngine
from rljob_workers.rollout.group import Group, open_group
from rljob_workers.rollout.loop import LoopSettings, RolloutLoop
from rljob_workers.rollout.rank import RolloutRank
from rljob_workers.seams import KVStore
from rljob_workers.store_budgets import rollout_budgets
from rljob_workers.text import load_tokenizer
from rljob_workers.weights import StoreWeights


def main(context: Context) -> int:
    """Returns 0 when the coordinator says stop. Errors end the process; its leases return."""
    target = device.setup(context.device, context.local_rank, context.threads)
    with open_group(context) as group, CoordinatorLink(context) as link:
        link.start(register_message(context))
        with closing(open_store(context, rollout_budgets(context))) as store:
            RolloutLoop(link, group, store, build(context, group, store, target), LoopSettings.of(context.spec)).run()
    return 0


def build(context: Context, group: Group, store: KVStore, target: torch.device) -> RolloutRank:
    """The engine of this rank, without weights."""
    spec = context.spec
    config = model_config(spec.model)
    at = Placement(
        layout=group.layout, rank=group.rank, ep_group=group.ep_group, deterministic=spec.algorithm.deterministic
    )
    policy = build_policy(
        config,
        at,
        dtype=spec.model.dtype,
        device=target,
        field=config_field(spec.model),
        layout_field="spec.rollout.layout",
    ).requires_grad_(False)
    limits = EngineLimits(
        max_sequences=LoopSettings.of(context.spec).sequences_per_rank,
        max_prompt_tokens=spec.data.max_prompt_tokens,
        max_response_tokens=spec.rollout.sampling.max_response_tokens,
    )
    engine = TorchEngine(
        policy,
        limits,
        eos_ids=load_tokenizer(spec.model).eos_ids,
        temperature=spec.rollout.sampling.temperature,
        group=group.host,
    )
    return RolloutRank(
        engine=engine,
        store=store,
        weights=StoreWeights(store),
        layout=group.layout,
        rank=group.rank,
        specs=tensor_specs(config, spec.model.dtype),
        seed=spec.algorithm.seed,
    )
