"""A job on a MooncakeStore that somebody else runs: it is left as it was found."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_processes import StoreProcesses

pytestmark = [pytest.mark.processes, pytest.mark.timeout(200)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcesses]:
    folder = tmp_path / "store"
    folder.mkdir()
    running = StoreProcesses(folder)
    yield running.up()
    running.kill()


def test_a_job_takes_its_keys_along_when_it_is_drained_and_when_it_ends(rljob_run, tiny, store) -> None:
    other = store.client("another-job")
    other.put({"kv/1/a": b"stays"})
    found = store.all_keys()
    command = rljob_run(tiny(12, kvStore={"external": {"masterAddress": store.address}}))
    process = command.start()
    command.wait_for_step(process, 2)
    uid = json.loads((command.run / "job.json").read_text())["metadata"]["uid"]
    assert any(key.startswith(f"{uid}/weights/") for key in store.all_keys())
    process.send_signal(signal.SIGINT)
    command.finish(process, 75)
    assert store.all_keys() == found

    command.finish(command.start(), 0)
    assert store.all_keys() == found
    assert other.get(["kv/1/a"]) == [b"stays"]
    assert store.metric("master_evicted_key_count") == 0, "all keys are hard-pinned, within budgets (K9)"
    other.close()
