"""Master and segment as processes: they come up, watch each other, and end cleanly."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from rljob_core.api.placement import DevicePreset
from rljob_core.errors import InvalidInputError, StoreError
from rljob_core.names import Role
from rljob_workers.kv_store import health, mooncake, segment
from rljob_workers.kv_store.master import command


@pytest.mark.parametrize("address", ["0.0.0.0", "localhost", "", "::", "store-0.job.svc"])
def test_k8_an_address_that_others_cannot_reach_is_refused(address: str) -> None:
    from rljob_core.api.placement import StoreProtocol
    from rljob_workers.kv_store.mooncake import MooncakeStore

    with pytest.raises(InvalidInputError, match=r"RLJOB_POD_IP.*status\.podIP"):
        MooncakeStore(uid="u", master="127.0.0.1:1", local_ip=address, protocol=StoreProtocol.TCP, budgets={})


def test_a_master_that_is_not_there_is_a_clear_error_in_bounded_time(own_cluster: Any) -> None:
    with pytest.raises(StoreError, match=f"{own_cluster.address}.*no store master answered within 0.1 s"):
        own_cluster.client(wait_s=0.1)


def test_an_external_store_that_does_not_answer_is_named_by_its_field() -> None:
    from rljob_core.api.placement import StoreProtocol
    from rljob_workers.kv_store.mooncake import MooncakeStore

    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1'.*; correct spec\.kvStore\.external\.masterAddress"):
        MooncakeStore(
            uid="u",
            master="127.0.0.1:1",
            local_ip="127.0.0.1",
            protocol=StoreProtocol.TCP,
            budgets={},
            wait_s=0.0,
            remedy="correct spec.kvStore.external.masterAddress",
        )


@pytest.mark.parametrize("device", list(DevicePreset))
def test_a4_the_master_is_patient_with_npu_nodes_and_never_evicts(device: DevicePreset) -> None:
    line = command(Path("/bin/mooncake_master"), "0.0.0.0", 50051, 9003, device)
    assert "--eviction_high_watermark_ratio=1.0" in line
    patience = 60 if device is DevicePreset.NPU else 10
    assert f"--client_ttl={patience}" in line


def test_a_master_that_is_not_there_is_not_ready(own_cluster: Any) -> None:
    assert not health.service_ready("127.0.0.1", own_cluster.metrics_port)


def test_a_segment_gives_up_on_a_master_that_stays_away(own_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "CHECK_S", 0.0)
    monkeypatch.setattr(segment, "MASTER_GONE_S", 0.05)
    segment._watch("127.0.0.1", own_cluster.metrics_port)


@pytest.mark.processes
def test_sigterm_deregisters_a_segment_and_ends_the_master_with_0(own_cluster: Any) -> None:
    own_cluster.up()
    master, store = own_cluster.processes
    store.send_signal(signal.SIGTERM)
    assert store.wait(20) == 0
    assert own_cluster.segments() == 0, "at once, not after client_ttl"
    master.send_signal(signal.SIGTERM)
    assert master.wait(20) == 0


@pytest.mark.processes
def test_the_master_binary_dies_with_the_process_that_started_it(own_cluster: Any) -> None:
    own_cluster.up(segments=0)
    own_cluster.processes[0].kill()
    own_cluster.wait_until(lambda: not own_cluster.ready())


@pytest.mark.processes
def test_a_port_in_use_ends_the_second_master_with_its_code(own_cluster: Any) -> None:
    own_cluster.up(segments=0)
    own_cluster.metrics_port += 1
    assert own_cluster.start(Role.STORE_MASTER).wait(40) != 0


@pytest.mark.processes
def test_a_dead_segment_is_a_miss_and_a_dead_master_an_error(own_cluster: Any) -> None:
    own_cluster.up()
    store = own_cluster.client()
    store.put({"kv/1/a": b"a"})
    os.kill(own_cluster.processes[1].pid, signal.SIGKILL)
    own_cluster.processes[1].wait()
    assert store.get(["kv/1/a"]) == [None]
    own_cluster.processes[0].kill()
    own_cluster.wait_until(lambda: not own_cluster.ready())
    with pytest.raises(StoreError, match=r"-900.*is the store master running"):
        store.get(["kv/1/a"])
    store.close()


@pytest.mark.processes
def test_k2_puts_find_the_segment_that_lives(own_cluster: Any) -> None:
    own_cluster.up(segments=2)
    store = own_cluster.client()
    own_cluster.processes[2].kill()
    own_cluster.processes[2].wait()
    values = {f"kv/1/{i}": bytes([i]) * 1000 for i in range(20)}
    for key, value in values.items():
        store.put({key: value})
    assert store.get(list(values)) == list(values.values())
    assert store.retried > 0
    store.close()


@pytest.mark.processes
def test_k1_a_master_whose_address_swallows_packets_is_given_up_in_bounded_time(
    own_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default of the library is two minutes a call. A listener whose queue is full answers nothing, as a node that
    is gone; the bound is made smaller here to wait less."""
    monkeypatch.delenv(mooncake.CONNECT_TIMEOUT_VARIABLE, raising=False)
    monkeypatch.setattr(mooncake, "CONNECT_TIMEOUT_S", 0.2)
    own_cluster.up()
    store = own_cluster.client()
    assert os.environ[mooncake.CONNECT_TIMEOUT_VARIABLE] == "200"
    own_cluster.kill()
    with socket.socket() as hole, socket.socket() as first, socket.socket() as second:
        hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hole.bind(("127.0.0.1", own_cluster.port))
        hole.listen(0)
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex(("127.0.0.1", own_cluster.port))
        start = time.monotonic()
        with pytest.raises(StoreError, match="is the store master running"):
            store.get(["kv/1/a"])
        assert 0.2 <= time.monotonic() - start < 10
        store.close()
