"""PromptStream: position -> row, endless and pure."""

from __future__ import annotations

from rljob_core.api.inputs import Generator, Task
from rljob_core.inputs import PromptRow, PromptStream, Split, generate
from rljob_core.inputs.counter_rng import below, bits64, permutation

ROWS = [PromptRow(prompt=str(i), answer="") for i in range(10)]


def order(stream: PromptStream, first: int, count: int = 10) -> list[str]:
    return [stream.row(i).prompt for i in range(first, first + count)]


def test_rows_repeat_in_order_without_shuffling() -> None:
    stream = PromptStream(ROWS)
    assert order(stream, 0) == order(stream, 10) == [r.prompt for r in ROWS]
    assert stream.size == 10


def test_each_epoch_holds_every_row_once_in_an_order_of_its_own() -> None:
    stream = PromptStream(ROWS, seed=3, shuffle=True)
    epochs = [order(stream, 10 * e) for e in range(5)]
    assert all(sorted(e) == [r.prompt for r in ROWS] for e in epochs)
    assert len({tuple(e) for e in epochs}) == 5


def test_a_stream_needs_no_history() -> None:
    walked, jumped = PromptStream(ROWS, seed=3, shuffle=True), PromptStream(ROWS, seed=3, shuffle=True)
    everything = order(walked, 0, 100)
    assert [jumped.row(i).prompt for i in (99, 0, 57, 13, 98)] == [everything[i] for i in (99, 0, 57, 13, 98)]
    assert order(PromptStream(ROWS, seed=4, shuffle=True), 0, 100) != everything


def test_a_generator_never_ends() -> None:
    generator = Generator(task=Task.COPY_DIGITS)
    stream = PromptStream(generator, split=Split.EVALUATION)
    assert stream.size is None
    assert stream.row(10**9) == generate(generator, 10**9, Split.EVALUATION)


def test_the_counter_generator_is_uniform_and_sensitive_to_every_part_of_its_key() -> None:
    counts = [0] * 10
    for i in range(10_000):
        counts[below(10, 7, i)] += 1
    assert all(850 < c < 1150 for c in counts)
    assert len({bits64(1, 2), bits64(2, 1), bits64(1, 2, 0), bits64(-1, 2), bits64(1)}) == 5
    assert sorted(permutation(100, 1)) == list(range(100))
    assert permutation(0, 1) == []


def test_first_places_of_a_shuffle_are_uniform() -> None:
    counts = [0] * 5
    for epoch in range(5_000):
        counts[permutation(5, 1, epoch)[0]] += 1
    assert all(900 < c < 1100 for c in counts)
