"""A job's keys in a store that outlives it."""

from __future__ import annotations

from typing import Any

import pytest

from rljob_core.api.placement import ExternalStore, KVStore
from rljob_core.names import Role
from rljob_workers.coordinator.main import swept


def external(stage: Any) -> Any:
    """The coordinator's context of a job on somebody else's store."""
    job = stage()
    store = KVStore(external=ExternalStore(master_address="store:50051"))
    job.job = job.job.model_copy(update={"spec": job.job.spec.model_copy(update={"kv_store": store})})
    return job, job.context(Role.COORDINATOR)


def test_nothing_of_an_earlier_attempt_is_found_and_nothing_is_left(stage: Any) -> None:
    job, context = external(stage)
    job.store().put({"weights/3/0": b"an earlier attempt's"})
    with swept(context, job.store()):
        assert job.pool.values == {}
        job.store().put({"weights/3/0": b"ours"})
    assert job.pool.values == {}


def test_keys_stay_in_a_managed_store_which_dies_with_the_job(stage: Any) -> None:
    job = stage()
    with swept(job.context(Role.COORDINATOR), job.store()):
        job.store().put({"weights/3/0": b"ours"})
    assert len(job.pool.values) == 1


def test_a_store_that_is_gone_at_the_end_is_said_and_changes_no_outcome(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job, context = external(stage)
    store = job.store()
    with swept(context, store):
        store.close()
    assert "keys below uid/ stay in the store" in caplog.text
