"""An engine over a tiny model whose next-token distributions are far from uniform, and the naive way to decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from rljob_workers.model import Placement, Policy, build_policy, initial_tensors
from rljob_workers.rollout.engine import EngineLimits, TorchEngine
from rljob_workers.seams import Finished

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "vocab_size": 16,
    "hidden_size": 32,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "initializer_range": 0.2,
}
VERSION = 7

MakeEngine = Callable[..., TorchEngine]
Decode = Callable[..., dict[int, Finished]]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As the substrate sets it; tiny products only lose by more."""
    torch.set_num_threads(1)


@pytest.fixture
def config() -> dict[str, Any]:
    return CONFIG


@pytest.fixture(scope="session")
def policies() -> dict[bool, Policy]:
    """Eager and deterministic form of one model."""
    tensors = initial_tensors(CONFIG, 0)
    made = {
        deterministic: build_policy(CONFIG, Placement(deterministic=deterministic)) for deterministic in (False, True)
    }
    for policy in made.values():
        policy.load_tensors(tensors)
    return made


@pytest.fixture
def make_engine(policies: dict[bool, Policy]) -> MakeEngine:
    """A ready engine of 16 sequences, 6 prompt tokens and 8 response tokens, EOS 1."""

    def make(*, deterministic: bool = False, eos_ids: Sequence[int] = (1,), temperature: float = 1.0) -> TorchEngine:
        limits = EngineLimits(max_sequences=16, max_prompt_tokens=6, max_response_tokens=8, prefill_rows=4)
        engine = TorchEngine(policies[deterministic], limits, eos_ids=eos_ids, temperature=temperature)
        engine.load(VERSION)
        engine.ready(VERSION)
        return engine

    return make


@pytest.fixture
def policy(policies: dict[bool, Policy]) -> Policy:
    return policies[False]


def run(engine: TorchEngine) -> dict[int, Finished]:
    """Step until nothing is in flight; what ended, by slot."""
    finished = {}
    while engine.in_flight:
        finished |= {f.slot: f for f in engine.step()}
    return finished


@pytest.fixture
def decode() -> Decode:
    """Admit (slot, prompt, kv) and run to the end."""

    def all_of(
        engine: TorchEngine,
        sequences: Sequence[tuple[int, Sequence[int], bytes | None]],
        *,
        max_tokens: int = 8,
        greedy: bool = False,
    ) -> dict[int, Finished]:
        for slot, prompt, kv in sequences:
            engine.admit(slot, prompt, kv, max_tokens=max_tokens, greedy=greedy, seed=slot)
        return run(engine)

    return all_of


Naive = Callable[..., tuple[list[int], list[float]]]


@pytest.fixture
def naive(policy: Policy) -> Naive:
    """Token by token by whole forwards of one row: (tokens, log-probabilities) of a greedy response."""

    def greedy_response(
        prompt: Sequence[int], tokens: int, temperature: float = 1.0, eos: int = 1
    ) -> tuple[list[int], list[float]]:
        ids, logprobs = list(prompt), []
        with torch.no_grad():
            for _ in range(tokens):
                row = torch.log_softmax(policy(torch.tensor([ids]))[0, -1] / temperature, -1)
                ids.append(int(row.argmax()))
                logprobs.append(float(row[ids[-1]]))
                if ids[-1] == eos:
                    break
        return ids[len(prompt) :], logprobs

    return greedy_response
