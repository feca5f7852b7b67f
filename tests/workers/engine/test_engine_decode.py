"""What the engine generates: equal to whole forwards, from KV or not, whoever else is in the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rljob_workers.model import Policy, build_policy, initial_tensors
from rljob_workers.rollout.engine import EngineLimits, TorchEngine
from rljob_workers.rollout.sequences import Sequences

PROMPTS = [[2, 3, 4], [5, 6, 7, 8, 9, 10], [11], [12, 13], [2, 3, 4], [14, 15, 3, 2]]

FORMS = pytest.mark.parametrize("deterministic", [False, True], ids=["eager", "deterministic"])


@FORMS
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_greedy_equals_whole_forwards(
    make_engine: Any, decode: Any, naive: Any, deterministic: bool, temperature: float
) -> None:
    engine = make_engine(deterministic=deterministic, temperature=temperature)
    finished = decode(engine, [(s, p, None) for s, p in enumerate(PROMPTS)], greedy=True)
    for slot, prompt in enumerate(PROMPTS):
        tokens, logprobs = naive(prompt, 8, temperature)
        assert finished[slot].token_ids == tokens
        assert finished[slot].logprobs == pytest.approx(logprobs, abs=1e-5)


def test_logprobs_are_the_trainers(make_engine: Any, decode: Any, policy: Policy) -> None:
    """Sampled tokens under the full-vocabulary softmax at the temperature (rl.md 23)."""
    finished = decode(make_engine(temperature=1.3), [(s, p, None) for s, p in enumerate(PROMPTS)])
    for slot, prompt in enumerate(PROMPTS):
        response = finished[slot].token_ids
        with torch.no_grad():
            logits = policy(torch.tensor([[*prompt, *response[:-1]]]))[0, len(prompt) - 1 :]
        expected = torch.log_softmax(logits / 1.3, -1).gather(1, torch.tensor(response)[:, None]).squeeze(1)
        assert finished[slot].logprobs == pytest.approx(expected.tolist(), abs=1e-5)


@FORMS
def test_from_kv_equals_recomputed(make_engine: Any, decode: Any, deterministic: bool) -> None:
    """A block made by one engine serves another, and a miss (rl.md 45) changes nothing."""
    blocks = make_engine(deterministic=deterministic).prefill(PROMPTS)
    engine = make_engine(deterministic=deterministic)
    from_kv = decode(engine, [(s, p, kv) for s, (p, kv) in enumerate(zip(PROMPTS, blocks, strict=True))])
    recomputed = decode(engine, [(s, p, None) for s, p in enumerate(PROMPTS)])
    mixed = decode(engine, [(s, p, blocks[s] if s % 2 else None) for s, p in enumerate(PROMPTS)])
    for slot in range(len(PROMPTS)):
        assert from_kv[slot].token_ids == recomputed[slot].token_ids == mixed[slot].token_ids
        assert from_kv[slot].logprobs == pytest.approx(recomputed[slot].logprobs, abs=1e-5)


def test_first_token_needs_no_forward(make_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    block = engine.prefill([[2, 3]])[0]
    monkeypatch.delattr(Policy, "decode")
    engine.admit(0, [2, 3], block, max_tokens=1, greedy=True, seed=0)
    assert [len(f.token_ids) for f in engine.step()] == [1]


def test_members_of_a_group_differ(make_engine: Any, decode: Any) -> None:
    """Samples of one prompt are draws of their own, from the first token on."""
    finished = decode(make_engine(), [(s, [2, 3, 4], None) for s in range(16)])
    assert len({f.token_ids[0] for f in finished.values()}) > 1
    assert len({tuple(f.token_ids) for f in finished.values()}) > 8


def test_sampling_follows_the_distribution(policy: Policy) -> None:
    engine = TorchEngine(
        policy, EngineLimits(max_sequences=4096, max_prompt_tokens=3, max_response_tokens=1), eos_ids=[1]
    )
    engine.load(0)
    engine.ready(0)
    block = engine.prefill([[2, 3, 4]])[0]
    for slot in range(4096):
        engine.admit(slot, [2, 3, 4], block, max_tokens=1, greedy=False, seed=slot)
    counts = torch.bincount(torch.tensor([f.token_ids[0] for f in engine.step()]), minlength=16)
    with torch.no_grad():
        expected = policy(torch.tensor([[2, 3, 4]]))[0, -1].softmax(-1)
    assert (counts / 4096 - expected).abs().max() < 0.03


def test_a_sample_is_the_same_in_any_company(make_engine: Any, decode: Any) -> None:
    """Seed and prompt decide, not neighbours, row or time of arrival."""
    alone = decode(make_engine(), [(3, PROMPTS[3], None)])[3]
    engine = make_engine()
    for slot in (0, 1, 2):
        engine.admit(slot, PROMPTS[slot], None, max_tokens=8, greedy=False, seed=slot)
    late = [*engine.step(), *engine.step()]
    crowd = {f.slot: f for f in late} | decode(engine, [(s, PROMPTS[s], None) for s in (5, 4, 3)])
    assert crowd[3].token_ids == alone.token_ids
    assert crowd[3].logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_deterministic_bits_do_not_depend_on_neighbours(make_engine: Any, decode: Any) -> None:
    first = decode(make_engine(deterministic=True), [(s, p, None) for s, p in enumerate(PROMPTS)])
    others = [(3, PROMPTS[3], None), *((s, [s % 14 + 2], None) for s in range(20, 31))]
    second = decode(make_engine(deterministic=True), others)
    assert first[3] == second[3]


def test_long_tail_moves_to_the_front(make_engine: Any, decode: Any, naive: Any) -> None:
    """Few rows left at the back: they move and go on unchanged."""
    engine = make_engine(eos_ids=[])
    for slot in range(16):
        limit = 8 if slot in (9, 15) else 1
        engine.admit(slot, PROMPTS[slot % 4], None, max_tokens=limit, greedy=True, seed=0)
    assert len(engine.step()) == 14
    finished = decode(engine, [])
    for slot in (9, 15):
        assert finished[slot].token_ids == naive(PROMPTS[slot % 4], 8, eos=-1)[0]


def test_compaction_moves_the_last_rows_onto_free_ones() -> None:
    sequences = Sequences(6, 2, eos_ids=[1])
    for handle in range(10, 16):
        sequences.join(handle, handle, 2 if handle in (11, 14, 15) else 1, False, 0)
    sequences.record(np.arange(2, 8), np.zeros(6, np.float32))
    assert sequences.compact() == ([4, 5], [0, 2])
    assert (sequences.extent, sequences.in_flight) == (3, 3)
    assert sequences.newest(3).tolist() == [6, 3, 7]
    ended = sequences.record(np.array([8, 8, 8]), np.zeros(3, np.float32))
    assert [(f.slot, f.token_ids) for f in ended] == [(14, [6, 8]), (11, [3, 8]), (15, [7, 8])]


def test_slots_are_reused(make_engine: Any, decode: Any, naive: Any) -> None:
    """A longer old sequence leaves nothing behind for the next one in its row."""
    engine = make_engine()
    decode(engine, [(s, PROMPTS[1], None) for s in range(16)])
    finished = decode(engine, [(s, p, None) for s, p in enumerate(PROMPTS)], greedy=True)
    assert [finished[s].token_ids for s in range(6)] == [naive(p, 8)[0] for p in PROMPTS]


def test_bfloat16(config: dict[str, Any], decode: Any) -> None:
    """Half-width weights and KV: blocks travel as their bits, tokens are those of whole forwards."""
    policy = build_policy(config, dtype="bfloat16")
    policy.load_tensors(initial_tensors(config, 0, "bfloat16"))
    limits = EngineLimits(max_sequences=8, max_prompt_tokens=6, max_response_tokens=4)
    engine = TorchEngine(policy, limits, eos_ids=[1])
    engine.load(0)
    engine.ready(0)
    blocks = engine.prefill(PROMPTS)
    finished = decode(engine, [(s, p, blocks[s]) for s, p in enumerate(PROMPTS)], max_tokens=4)
    for slot, prompt in enumerate(PROMPTS):
        response = finished[slot].token_ids
        with torch.no_grad():
            logits = policy(torch.tensor([[*prompt, *response[:-1]]]))[0, len(prompt) - 1 :].float()
        expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None]).squeeze(1)
        assert finished[slot].logprobs == pytest.approx(expected.tolist(), abs=0.05)
