"""DistQueue table: readiness, leases, at-most-once commit (rl.md 33, 34, 36, 38, 42)."""

from __future__ import annotations

import pytest

from rljob_core.distqueue import Table
from rljob_core.errors import QueueError

A, B = 1, 2


def table(*rows: int, ready: bool = True) -> Table:
    out = Table()
    out.offer(rows, rows, ready=ready)
    return out


def test_best_priority_goes_first_whatever_the_order_of_offers() -> None:
    queue = Table()
    queue.offer([10, 11, 12], [3, 1, 2])
    assert queue.lease(A, 2, now=0, lease_s=10).rows == [11, 12]
    assert queue.lease(B, 9, now=0, lease_s=10).rows == [10]


def test_commit_is_accepted_once() -> None:
    queue = table(1)
    leased = queue.lease(A, 1, now=0, lease_s=10)
    assert queue.commit(leased.rows, leased.attempts) == [True]
    assert queue.commit(leased.rows, leased.attempts) == [False]
    assert 1 not in queue


def test_late_commit_after_expiry_does_not_touch_the_next_lease_rl33() -> None:
    queue = table(1)
    old = queue.lease(A, 1, now=0, lease_s=10)
    assert queue.expire(now=10) == [1]
    new = queue.lease(B, 1, now=11, lease_s=10)
    assert queue.commit(old.rows, old.attempts) == [False]
    assert queue.held_by(B) == 1
    assert queue.commit(new.rows, new.attempts) == [True]


def test_late_commit_does_not_touch_a_row_offered_again_under_the_same_id_rl33() -> None:
    queue = table(1)
    old = queue.lease(A, 1, now=0, lease_s=10)
    queue.remove([1])
    queue.offer([1], [1])
    assert queue.commit(old.rows, old.attempts) == [False]
    assert queue.ready() == 1


def test_rows_gain_readiness_while_others_are_leased_rl34() -> None:
    queue = table(1, 2, ready=False)
    assert queue.lease(A, 9, now=0, lease_s=10).rows == []
    queue.set_ready([2])
    assert queue.lease(A, 9, now=0, lease_s=10).rows == [2]
    queue.set_ready([1])
    assert queue.lease(B, 9, now=0, lease_s=10).rows == [1]


def test_row_that_lost_its_readiness_waits_after_its_return() -> None:
    queue = table(1)
    leased = queue.lease(A, 1, now=0, lease_s=10)
    queue.set_ready([1], False)
    queue.release(leased.rows, leased.attempts)
    assert queue.ready() == 0
    queue.set_ready([1])
    assert queue.ready() == 1


def test_readiness_taken_and_given_again_offers_the_row_once() -> None:
    queue = table(1)
    queue.set_ready([1], False)
    queue.set_ready([1])
    assert queue.lease(A, 9, now=0, lease_s=10).rows == [1]
    assert queue.lease(B, 9, now=0, lease_s=10).rows == []


def test_lost_consumer_returns_only_what_it_had_not_finished_rl36_rl38() -> None:
    queue = table(*range(8))
    leased = queue.lease(A, 8, now=0, lease_s=10)
    assert queue.commit(leased.rows[:3], leased.attempts[:3]) == [True] * 3
    assert queue.release_consumer(A) == [3, 4, 5, 6, 7]
    assert queue.lease(B, 9, now=1, lease_s=10).rows == [3, 4, 5, 6, 7]


def test_counts_return_to_zero_after_failures_rl42_d4() -> None:
    queue = table(1, 2, 3)
    for now in range(5):
        queue.lease(A, 3, now=now, lease_s=10)
        queue.release_consumer(A)
        assert (queue.leased, queue.held_by(A), queue.ready()) == (0, 0, 3)


def test_expiry_is_per_lease() -> None:
    queue = table(1, 2)
    queue.lease(A, 1, now=0, lease_s=5)
    queue.lease(A, 1, now=3, lease_s=5)
    assert queue.expire(now=4.9) == []
    assert queue.expire(now=5) == [1]


def test_renewal_keeps_all_leases_of_one_consumer_and_never_shortens_any() -> None:
    queue = table(1, 2, 3)
    kept = queue.lease(A, 1, now=0, lease_s=5)
    long = queue.lease(A, 1, now=0, lease_s=30)
    queue.lease(B, 1, now=0, lease_s=5)
    queue.renew(A, 20)
    assert queue.expire(now=19) == [3]
    queue.renew(A, 25)
    assert queue.expire(now=24) == []
    assert queue.commit(kept.rows, kept.attempts) == [True]
    assert queue.expire(now=29) == []
    assert queue.expire(now=30) == long.rows


def test_partitions_keep_consumers_apart() -> None:
    queue = Table()
    queue.offer([1, 2, 3], [1, 2, 3], partitions=[0, 1, 0])
    assert queue.lease(A, 9, now=0, lease_s=10, partition=1).rows == [2]
    assert queue.lease(A, 9, now=0, lease_s=10, partition=0).rows == [1, 3]


def test_offering_a_row_twice_is_an_error() -> None:
    queue = table(1)
    with pytest.raises(QueueError, match="row 1 is offered twice"):
        queue.offer([1], [1])
