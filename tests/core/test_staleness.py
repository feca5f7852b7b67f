"""Lag is counted in versions at the oldest token, and admission keeps it within the bound (rl.md 25, 26)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rljob_core.staleness import lag, last_admissible_batch


def test_synchronous_admits_only_the_batch_to_be_trained_next() -> None:
    assert last_admissible_batch(step=7, version=7, serving=7, max_version_lag=0) == 7


def test_lag_two_runs_two_batches_ahead() -> None:
    assert last_admissible_batch(step=7, version=7, serving=7, max_version_lag=2) == 9


def test_after_a_rollback_versions_run_ahead_of_steps() -> None:
    assert last_admissible_batch(step=4, version=11, serving=11, max_version_lag=1) == 5
    assert lag(12, 11) == 1, "batch 5 is trained one step later, at version 12"


def test_older_serving_weights_cost_room() -> None:
    assert last_admissible_batch(step=7, version=9, serving=8, max_version_lag=0) < 7


@given(
    step=st.integers(0, 1000), extra=st.integers(0, 50), behind=st.integers(0, 3), bound=st.integers(0, 8),
    offset=st.integers(0, 20),
)  # fmt: skip
def test_whatever_is_admitted_is_within_the_bound_when_consumed(
    step: int, extra: int, behind: int, bound: int, offset: int
) -> None:
    version = step + extra + behind
    serving = version - behind
    last = last_admissible_batch(step=step, version=version, serving=serving, max_version_lag=bound)
    batch = step + offset
    consumed = version + batch - step
    assert (batch <= last) == (lag(consumed, serving) <= bound)
