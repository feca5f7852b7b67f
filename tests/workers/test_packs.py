"""Packs: what goes in comes out, slot by slot, and harmed bytes are never taken for samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rljob_workers.packs import PackError, Sample, pack, unpack

ids = st.lists(st.integers(0, 2**31 - 1), max_size=6)
responses = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-100, 0, width=32)), max_size=6)


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    return [sample(prompt, response) for prompt, response in draw(st.lists(st.tuples(ids, responses), max_size=5))]


def sample(prompt: list[int], response: list[tuple[int, float]]) -> Sample:
    return Sample(
        prompt_ids=np.array(prompt, dtype=np.int32),
        response_ids=np.array([token for token, _ in response], dtype=np.int32),
        logprobs=np.array([logprob for _, logprob in response], dtype=np.float32),
    )


def equal(a: Sample, b: Sample) -> bool:
    return (
        np.array_equal(a.prompt_ids, b.prompt_ids)
        and np.array_equal(a.response_ids, b.response_ids)
        and np.array_equal(a.logprobs, b.logprobs)
        and (a.prompt_ids.dtype, a.logprobs.dtype) == (b.prompt_ids.dtype, b.logprobs.dtype)
    )


@given(samples())
def test_all_samples_come_back(batch: list[Sample]) -> None:
    data = pack(batch)
    out = unpack(data)
    assert len(out) == len(batch)
    assert all(map(equal, out, batch))
    tokens = sum(len(s.prompt_ids) + 2 * len(s.response_ids) for s in batch)
    assert len(data) == 24 + 8 * len(batch) + 4 * tokens, "no padding"


def batch_of_three() -> list[Sample]:
    return [sample([1, 2], [(3, -0.5)]), sample([], [(4, -1.0), (5, -2.0)]), sample([6], [])]


@pytest.mark.parametrize("slots", [[1], [2, 0], [1, 1], []])
def test_slots_are_chosen_in_any_order(slots: list[int]) -> None:
    batch = batch_of_three()
    out = unpack(memoryview(pack(batch)), slots)
    assert len(out) == len(slots)
    assert all(equal(got, batch[slot]) for got, slot in zip(out, slots, strict=True))


def test_slots_are_views_of_the_pack() -> None:
    data = pack(batch_of_three())
    (one,) = unpack(data, [1])
    assert one.response_ids.base is not None
    assert np.shares_memory(one.response_ids, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("slot", [3, -1])
def test_a_slot_that_is_not_there(slot: int) -> None:
    with pytest.raises(PackError, match=f"slot {slot} of a pack of 3 samples"):
        unpack(pack(batch_of_three()), [slot])


def test_lengths_that_differ_are_refused_when_packing() -> None:
    with pytest.raises(ValueError, match="1 response tokens but 0 log-probabilities"):
        Sample(prompt_ids=np.zeros(1, np.int32), response_ids=np.zeros(1, np.int32), logprobs=np.zeros(0, np.float32))


@settings(max_examples=300)
@given(st.data())
def test_no_single_change_goes_unnoticed(data: st.DataObject) -> None:
    good = pack(batch_of_three())
    position = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.integers(1, 255))
    bad = bytearray(good)
    bad[position] ^= change
    with pytest.raises(PackError):
        unpack(bytes(bad))


@given(st.integers(0, 200))
def test_cut_or_lengthened_bytes_are_refused(length: int) -> None:
    good = pack(batch_of_three())
    if length == len(good):
        return
    with pytest.raises(PackError):
        unpack((good + bytes(200))[:length])


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(PackError):
        unpack(data)


@given(st.integers(-3, 5), st.integers(-3, 5), st.integers(0, 5))
def test_lengths_that_do_not_add_up_are_refused_even_with_a_right_checksum(a: int, b: int, words: int) -> None:
    import struct
    import zlib

    body = struct.pack("<ii", a, b) + bytes(4 * words)
    data = struct.pack("<4sIIIQ", b"RLJP", 1, 1, zlib.crc32(body), len(body)) + body
    if a >= 0 and b >= 0 and a + 2 * b == words:
        assert len(unpack(data)[0].prompt_ids) == a
    else:
        with pytest.raises(PackError, match="do not add up"):
            unpack(data)
