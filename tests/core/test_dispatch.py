"""Who gets which work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_core.dispatch import check_shares, decode_priority, fair_share, prefill_room, trainer_share
from rljob_core.errors import InvalidInputError


@pytest.mark.parametrize(
    ("ready", "held", "own", "room", "taken"),
    [
        pytest.param(512, [0, 0], 0, 512, 256, id="two idle groups halve the work"),
        pytest.param(512, [0], 0, 256, 256, id="a lone group fills its room"),
        pytest.param(10, [90, 0], 90, 10, 0, id="a loaded group leaves the rest to the idle one"),
        pytest.param(10, [90, 0], 0, 100, 10, id="which takes it all"),
        pytest.param(1, [0, 0, 0], 0, 8, 1, id="one row goes to whoever asks first"),
        pytest.param(0, [0, 0], 0, 8, 0, id="nothing is nothing"),
    ],
)
def test_fair_share(ready: int, held: list[int], own: int, room: int, taken: int) -> None:
    assert fair_share(ready, held, own, room) == taken


@given(ready=st.integers(0, 500), rooms=st.lists(st.integers(1, 64), min_size=1, max_size=6))
def test_nothing_stays_while_somebody_has_room(ready: int, rooms: list[int]) -> None:
    """Equal groups that keep asking empty the queue or fill up (rl.md 42: no room is lost to bookkeeping)."""
    room = max(rooms)
    held = [0] * len(rooms)
    progress = True
    while progress:
        progress = False
        for i in range(len(rooms)):
            taken = fair_share(ready, held, held[i], room - held[i])
            held[i], ready, progress = held[i] + taken, ready - taken, progress or taken > 0
    assert ready == 0 or all(h == room for h in held)


def test_prefill_batch_is_bounded_by_sequences_and_by_tokens() -> None:
    assert prefill_room(256, 8) == 256
    assert prefill_room(256, 64) == 128
    assert prefill_room(4, 100_000) == 1


def test_samples_of_a_prompt_are_spread_and_older_batches_go_first() -> None:
    def order(deterministic: bool) -> list[tuple[int, int, int]]:
        keys = [(b, p, s) for b in (0, 1) for p in range(2) for s in range(3)]
        return sorted(
            keys,
            key=lambda k: decode_priority(k[1], k[2], batch=k[0], prompts=2, group_size=3, deterministic=deterministic),
        )

    assert order(False)[:4] == [(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)]
    assert order(True) == sorted(order(True))


def test_trainer_shares_are_whole_groups_in_order_equal_a_rank_and_minibatch() -> None:
    shares = [trainer_share(range(100, 108), dp_rank=r, dp=2, minibatches=2) for r in (0, 1)]
    assert [s.prompts for s in shares] == [(100, 101, 104, 105), (102, 103, 106, 107)]
    assert shares[0].minibatches == (0, 0, 1, 1)


def test_arrival_order_does_not_change_a_share() -> None:
    assert trainer_share([3, 1, 2, 0], dp_rank=1, dp=2, minibatches=1) == trainer_share(
        [0, 1, 2, 3], dp_rank=1, dp=2, minibatches=1
    )


def test_a_batch_that_does_not_divide_names_field_value_and_remedy() -> None:
    with pytest.raises(InvalidInputError, match=r"spec.algorithm.promptsPerStep: 10 does not divide .* 2 x 3"):
        check_shares(10, dp=2, minibatches=3)
