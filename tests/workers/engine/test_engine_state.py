"""The order weights -> cache -> tokens is enforced, and KV of another version or model is refused."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch

from rljob_core.inputs.counter_rng import bits64
from rljob_workers.model import Policy
from rljob_workers.rollout.engine import EngineLimits, EngineState, EngineStateError, TorchEngine
from rljob_workers.rollout.sampling import draw, uniforms
from rljob_workers.seams import KVBlockError


def admit(engine: TorchEngine, kv: bytes | None = None) -> None:
    engine.admit(0, [2, 3], kv, max_tokens=4, greedy=True, seed=0)


def test_no_token_before_the_weights_are_proven(make_engine: Any) -> None:
    """rl.md 19, 20: a recovered or loading engine takes no work."""
    engine = make_engine()
    engine.load(8)
    for call in (lambda: admit(engine), engine.step, lambda: engine.prefill([[2]])):
        with pytest.raises(EngineStateError, match="engine is loading, not ready"):
            call()
    with pytest.raises(EngineStateError, match="version 9 is ready, but 8 was loading"):
        engine.ready(9)


def test_a_new_engine_has_no_version_to_serve(policies: dict[bool, Policy]) -> None:
    limits = EngineLimits(max_sequences=2, max_prompt_tokens=2, max_response_tokens=2)
    engine = TorchEngine(policies[False], limits, eos_ids=[1])
    with pytest.raises(EngineStateError, match="-1 was loading"):
        engine.ready(-1)


def test_weights_into_a_sleeping_engine(make_engine: Any) -> None:
    """rl.md 1, 2, 3: wake before weights, and weights again before the next token."""
    engine = make_engine()
    engine.sleep()
    assert engine.state is EngineState.ASLEEP
    with pytest.raises(EngineStateError, match="engine is asleep"):
        engine.load(8)
    engine.wake()
    with pytest.raises(EngineStateError, match="engine is loading"):
        engine.step()
    engine.load(8)
    engine.ready(8)
    admit(engine)
    assert len(engine.step()) == 0


def test_sleep_frees_the_cache(make_engine: Any) -> None:
    engine = make_engine()
    keys_and_values = weakref.ref(engine._cache.kv)
    engine.sleep()
    assert keys_and_values() is None


@pytest.mark.parametrize("call", [lambda e: e.load(8), lambda e: e.sleep()], ids=["load", "sleep"])
def test_nothing_in_flight_changes_version(make_engine: Any, call: Any) -> None:
    engine = make_engine()
    admit(engine)
    with pytest.raises(EngineStateError, match="1 sequences are in flight"):
        call(engine)


def test_loaded_tensors_are_the_ones_that_serve(make_engine: Any) -> None:
    """rl.md 1: what a pull writes is what generates; the second sync is as good as the first (rl.md 10)."""
    engine = make_engine()
    saved = {name: tensor.clone() for name, tensor in engine.load(8).items()}
    tensors = engine.load(8)
    for version, value in ((8, 3), (9, 5)):
        target = engine.load(version)
        assert target["lm_head.weight"].data_ptr() == tensors["lm_head.weight"].data_ptr()
        target["lm_head.weight"].zero_()
        target["model.norm.weight"].fill_(1.0)
        target["lm_head.weight"][value] = 1e-6
        engine.ready(version)
        engine.admit(0, [2, 3], None, max_tokens=1, greedy=False, seed=0)
        (finished,) = engine.step()
        assert finished.logprobs[0] == pytest.approx(-np.log(16), abs=1e-3)
    for name, tensor in engine.load(10).items():
        tensor.copy_(saved[name])


def test_kv_of_another_version_is_refused(make_engine: Any) -> None:
    """rl.md 5, 6: KV never outlives its weights."""
    engine = make_engine()
    block = engine.prefill([[2, 3]])[0]
    engine.load(8)
    engine.ready(8)
    with pytest.raises(KVBlockError, match="version 8"):
        admit(engine, block)
    assert engine.in_flight == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b[:-1],
        lambda b: b[:-1] + bytes([b[-1] ^ 1]),
        lambda b: b"????" + b[4:],
        lambda b: b"",
    ],
    ids=["cut short", "flipped bit", "foreign", "empty"],
)
def test_damaged_kv_is_refused(make_engine: Any, spoil: Any) -> None:
    engine = make_engine()
    block = engine.prefill([[2, 3]])[0]
    with pytest.raises(KVBlockError):
        admit(engine, spoil(block))
    admit(engine, block)


def test_kv_of_another_prompt_length_is_refused(make_engine: Any) -> None:
    engine = make_engine()
    with pytest.raises(KVBlockError, match="2 tokens"):
        admit(engine, engine.prefill([[2, 3, 4]])[0])


def test_uniforms_are_the_cores_generator() -> None:
    seeds = np.array([0, 1, 2**64 - 1, 12345], np.uint64)
    numbers = np.array([0, 7, 3, 2**40], np.int64)
    expected = [(bits64(int(s), int(n)) >> 40) * 2.0**-24 for s, n in zip(seeds, numbers, strict=True)]
    assert uniforms(seeds, numbers).tolist() == expected


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-24], ids=["lowest", "highest"])
def test_a_token_of_probability_0_is_never_drawn(uniform: float) -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.3, -torch.inf]])
    token, logprob = draw(logits, 1.0, torch.tensor([False]), torch.tensor([uniform]))
    assert int(token) in (1, 3)
    assert logprob.isfinite().all()
