"""A worker names what is wrong with a model as `rljob validate` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rljob_core.api.spec import RLJob
from rljob_core.errors import InvalidInputError
from rljob_core.inputs.checks import check_model_config
from rljob_core.layouts import Layout
from rljob_core.names import Role
from rljob_workers.context import Context
from rljob_workers.kv_store.memory import MemoryStore
from rljob_workers.rollout.group import Group
from rljob_workers.rollout.main import build

ODD = {
    "model_type": "qwen3_moe", "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 3,
    "num_key_value_heads": 2, "num_experts": 2, "num_experts_per_tok": 1,
}  # fmt: skip


def job(model: dict[str, Any]) -> RLJob:
    spec = {"model": model, "data": {"generator": {"task": "reverse-digits"}}, "reward": {}, "algorithm": {}}
    return RLJob.from_object({"metadata": {"name": "j", "uid": "u", "namespace": "ns"}, "spec": spec})


@pytest.mark.parametrize("kind", ["path", "init"])
def test_a_wrong_config_has_one_name(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(ODD))
    made = job({"path": str(tmp_path)} if kind == "path" else {"init": {"config": ODD}})
    with pytest.raises(InvalidInputError) as beforehand:
        check_model_config(made.spec, ODD)
    context = Context(job=made, role=Role.ROLLOUT)
    with pytest.raises(InvalidInputError) as in_the_worker:
        build(context, Group(Layout(), 0), MemoryStore(budgets={}), torch.device("cpu"))
    assert str(in_the_worker.value) == str(beforehand.value)
    where = f"{tmp_path}/config.json" if kind == "path" else "spec.model.init.config"
    assert beforehand.value.field.startswith(where)
