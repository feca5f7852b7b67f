"""How the store is divided: every writer has room for what it writes, and no use gets more than its share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rljob_core.api.spec import RLJob
from rljob_core.errors import StoreFullError
from rljob_core.layouts import Layout, TensorKind, TensorSpec
from rljob_core.names import Role
from rljob_workers.context import Context
from rljob_workers.kv_store.memory import MemoryPool, MemoryStore
from rljob_workers.store_budgets import SHARES, rollout_budgets, trainer_budgets
from rljob_workers.weights import StoreWeights

POOL = 8 << 20
EXPERTS, HIDDEN = 8, 64


def specs(layers: int) -> list[TensorSpec]:
    """By far most bytes are experts', as in a mixture-of-experts model."""
    out = [TensorSpec(name="embed.weight", shape=(32, HIDDEN), dtype="float32")]
    for layer in range(layers):
        out.append(TensorSpec(name=f"{layer}.norm.weight", shape=(HIDDEN,), dtype="float32"))
        name, shape = f"{layer}.experts.down_proj", (EXPERTS, HIDDEN, HIDDEN)
        out.append(TensorSpec(name=name, shape=shape, dtype="float32", kind=TensorKind.EXPERT, layer=layer))
    return out


def context(role: Role, rank: int, **spec: Any) -> Context:
    body = {
        "model": {"path": "/model"},
        "data": {"generator": {"task": "reverse-digits", "digits": 4}},
        "reward": {"exactMatch": {}},
        "algorithm": {"steps": 1},
        "kvStore": {"managed": {"segments": 2, "segmentBytes": POOL // 2}},
        **spec,
    }
    job = RLJob.from_object({"metadata": {"name": "j", "uid": "u", "namespace": "ns"}, "spec": body})
    return Context(job=job, role=role, pod_index=rank)


LAYOUTS = [Layout(), Layout(dp=8), Layout(dp=8, ep=2), Layout(dp=4, ep=4)]


def trainer(layout: Layout, rank: int, tensors: list[TensorSpec]) -> dict[str, int]:
    body = {"replicas": layout.world, "layout": {"dp": layout.dp, "ep": layout.ep}}
    return trainer_budgets(context(Role.TRAINER, rank, trainer=body), layout, tensors)


def local(layout: Layout, rank: int, tensors: list[TensorSpec]) -> dict[str, torch.Tensor]:
    return {t.name: torch.zeros(layout.local_shape(rank, t)) for t in tensors}


def publish_two_versions(layout: Layout, tensors: list[TensorSpec]) -> None:
    pool = MemoryPool(capacity=POOL)
    for rank in range(layout.world):
        weights = StoreWeights(MemoryStore(budgets=trainer(layout, rank, tensors), pool=pool))
        for version in (1, 2):
            weights.publish(version, rank, layout, tensors, local(layout, rank, tensors))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_model_that_nearly_fills_the_share_fits_whoever_publishes_it(layout: Layout) -> None:
    tensors = specs(9)
    size = sum(t.numel() * 4 for t in local(Layout(), 0, tensors).values())
    assert 2 * size > 0.8 * SHARES["weights"] * POOL
    publish_two_versions(layout, tensors)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_weights_never_get_more_than_their_share(layout: Layout) -> None:
    tensors = specs(12)
    budgets = [trainer(layout, rank, tensors) for rank in range(layout.world)]
    assert sum(b["weights"] for b in budgets) <= SHARES["weights"] * POOL
    with pytest.raises(StoreFullError, match="budget of weights"):
        publish_two_versions(layout, tensors)


def test_the_first_rank_of_a_group_commits_for_all_of_it() -> None:
    rollout = {"groups": 2, "layout": {"dp": 4}}
    budgets = [rollout_budgets(context(Role.ROLLOUT, rank, rollout=rollout)) for rank in range(8)]
    share = int(SHARES["queue"] * POOL) // 2
    assert {rank: b["queue"] for rank, b in enumerate(budgets) if "queue" in b} == {0: share, 4: share}
    assert {b["kv"] for b in budgets} == {int(SHARES["kv"] * POOL) // 8}
