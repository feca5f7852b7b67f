"""Why a response ended: told by the engine, never guessed from padding (rl.md 55)."""

from __future__ import annotations

from typing import Any

import pytest

PROMPT = [2, 3, 4]


@pytest.fixture
def sampled(make_engine: Any, decode: Any) -> list[int]:
    """A response of 8 tokens that nothing ends."""
    tokens: list[int] = decode(make_engine(eos_ids=[]), [(5, PROMPT, None)])[5].token_ids
    assert len(tokens) == 8
    return tokens


def test_length(make_engine: Any, decode: Any, sampled: list[int]) -> None:
    finished = decode(make_engine(eos_ids=[]), [(5, PROMPT, None)], max_tokens=3)[5]
    assert (finished.token_ids, finished.finish_reason) == (sampled[:3], "length")


def test_any_of_several_eos_ids_ends(make_engine: Any, decode: Any, sampled: list[int]) -> None:
    """rl.md 55: a list of EOS ids; the EOS belongs to the response."""
    last = sampled[3]
    unseen = next(t for t in range(16) if t not in sampled)
    finished = decode(make_engine(eos_ids=[unseen, last]), [(5, PROMPT, None)])[5]
    assert finished.token_ids == sampled[: sampled.index(last) + 1]
    assert len(finished.logprobs) == len(finished.token_ids)
    assert finished.finish_reason == "eos"


def test_eos_as_the_last_allowed_token_is_an_eos(make_engine: Any, decode: Any, sampled: list[int]) -> None:
    count = sampled.index(sampled[2]) + 1
    finished = decode(make_engine(eos_ids=[sampled[2]]), [(5, PROMPT, None)], max_tokens=count)[5]
    assert finished.finish_reason == "eos"


def test_eos_that_is_also_the_padding_id(make_engine: Any, decode: Any) -> None:
    """rl.md 55: rows are padded with 0 inside; a sampled 0 still is an EOS, and prompts may contain it."""
    finished = decode(make_engine(eos_ids=[0]), [(s, [0, 2, 0], None) for s in range(16)])
    for f in finished.values():
        assert (0 in f.token_ids) == (f.finish_reason == "eos")
        assert 0 not in f.token_ids[:-1]
    assert {f.finish_reason for f in finished.values()} == {"eos", "length"}
