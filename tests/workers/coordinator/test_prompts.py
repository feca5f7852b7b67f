"""What the session may ask of a job's prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rljob_core.api.spec import RLJob
from rljob_workers.coordinator.prompts import JobPrompts

CONFIG = {
    "model_type": "qwen3_moe",
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_experts": 2,
    "num_experts_per_tok": 1,
}


@pytest.mark.parametrize(("source", "held_out"), [("file", 3), ("generator", None), ("", None)])
def test_a_held_out_file_says_how_many_prompts_it_has(tmp_path: Path, source: str, held_out: int | None) -> None:
    digits = {"generator": {"task": "reverse-digits", "digits": 4}}
    file = tmp_path / "held-out.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{n}=", "answer": f"{n}"}) + "\n" for n in range(3)))
    spec: dict[str, Any] = {
        "model": {"init": {"config": CONFIG}, "tokenizer": {"characters": "0123456789="}},
        "data": digits | {"maxPromptTokens": 8},
        "reward": {"exactMatch": {}},
        "algorithm": {},
    }
    if source:
        spec["evaluation"] = {"prompts": 64} | (digits if source == "generator" else {"jsonLines": {"path": str(file)}})
    job = RLJob.from_object({"metadata": {"name": "j"}, "spec": spec})
    assert JobPrompts.open(job.spec).held_out == held_out
