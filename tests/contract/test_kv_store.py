"""What every KVStore does, in memory and on a real MooncakeStore. K ids: known faults of such stores."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rljob_core.errors import StoreError, StoreFullError, StoreMissError
from rljob_workers.kv_store.base import BaseStore

StoreFactory = Callable[..., BaseStore]
MIB = 1 << 20


class FakeTime:
    """A clock that moves only by sleeping; what happens meanwhile is given."""

    def __init__(self, *meanwhile: Callable[[], None]) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self._meanwhile = list(meanwhile)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)
        if self._meanwhile:
            self._meanwhile.pop(0)()

    def options(self) -> dict[str, Any]:
        return {"clock": lambda: self.now, "sleep": self.sleep}


def test_values_come_back_in_the_order_of_the_keys(open_store: StoreFactory) -> None:
    store = open_store()
    store.put({f"kv/1/{i}": bytes([i]) * (i + 1) for i in range(20)})
    assert store.get(["kv/1/7", "kv/1/x", "kv/1/0"]) == [b"\x07" * 8, None, b"\x00"]
    assert store.get([]) == []


def test_a_large_value_passes_through_a_small_buffer(open_store: StoreFactory) -> None:
    store = open_store()
    value = bytes(range(256)) * (20 * MIB // 256)
    store.put({"kv/1/large": value, "kv/1/small": b"s"})
    assert store.get(["kv/1/small", "kv/1/large"]) == [b"s", value]


def test_ranges_land_where_they_belong(open_store: StoreFactory) -> None:
    store = open_store()
    store.put({"weights/1/b": bytes(range(200))})
    into = bytearray(b"." * 12)
    store.get_ranges("weights/1/b", [(100, 0, 4), (10, 8, 3)], memoryview(into))
    assert bytes(into) == bytes([100, 101, 102, 103]) + b"...." + bytes([10, 11, 12]) + b"."


def test_ranges_of_a_missing_value_are_a_miss(open_store: StoreFactory) -> None:
    with pytest.raises(StoreMissError, match="-704"):
        open_store().get_ranges("weights/1/none", [(0, 0, 4)], memoryview(bytearray(4)))


def test_a_range_beyond_the_value_is_an_error(open_store: StoreFactory) -> None:
    store = open_store()
    store.put({"weights/1/b": b"12345678"})
    with pytest.raises(StoreError, match="-600"):
        store.get_ranges("weights/1/b", [(6, 0, 4)], memoryview(bytearray(4)))


def test_an_existing_key_of_equal_size_keeps_its_first_value(open_store: StoreFactory) -> None:
    store = open_store()
    store.put({"kv/1/a": b"first"})
    store.put({"kv/1/a": b"other"})
    assert store.get(["kv/1/a"]) == [b"first"]
    assert store.used("kv") == 5


def test_an_existing_key_of_another_size_is_an_error(open_store: StoreFactory) -> None:
    store, other = open_store(), open_store()
    other.put({"kv/1/a": b"first"})
    with pytest.raises(StoreError, match="exists with 5 bytes, not 6"):
        store.put({"kv/1/a": b"second", "kv/1/b": b"b"})
    assert other.get(["kv/1/a"]) == [b"first"]
    assert store.used("kv") == 1, "what was not stored is not counted"


def test_an_empty_value_is_refused(open_store: StoreFactory) -> None:
    with pytest.raises(StoreError, match="may not be empty"):
        open_store().put({"kv/1/a": b""})


def test_removing_what_was_just_read_and_what_is_missing(open_store: StoreFactory) -> None:
    store = open_store()
    store.put({"queue/a": b"a", "queue/b": b"b"})
    assert store.get(["queue/a"]) == [b"a"]  # leased now
    store.remove(["queue/a", "queue/none"])
    store.remove([])
    assert store.get(["queue/a", "queue/b"]) == [None, b"b"]


def test_a_budget_is_enforced_before_the_put(open_store: StoreFactory) -> None:
    store = open_store(budgets={"kv": 10, "queue": 100})
    store.put({"kv/1/a": b"123456"})
    with pytest.raises(StoreFullError, match="budget of kv: 6 of 10 bytes used, 5 more wanted"):
        store.put({"kv/1/b": b"12345", "queue/1": b"q"})
    assert store.get(["kv/1/b", "queue/1"]) == [None, None]
    store.put({"queue/1": b"q" * 100})
    with pytest.raises(ValueError, match="no budget for use 'park'"):
        store.put({"park/1": b"p"})


def test_a_budget_is_free_again_when_another_process_removed_the_keys(open_store: StoreFactory) -> None:
    writer, reader = open_store(budgets={"queue": 10}), open_store()
    writer.put({"queue/1": b"12345678"})
    reader.remove(["queue/1"])
    writer.put({"queue/2": b"12345678"})
    assert writer.used("queue") == 8


def test_k4_only_refused_keys_are_put_again(open_store: StoreFactory) -> None:
    other = open_store()
    other.put({"queue/blocker": bytes(50 * MIB)})
    time = FakeTime(lambda: None, lambda: other.remove(["queue/blocker"]))
    store = open_store(**time.options())
    values = {f"kv/1/{i}": bytes([i + 1]) * (10 * MIB) for i in range(3)}
    store.put(values)
    assert store.get(list(values)) == list(values.values())
    assert time.pauses == [0.02, 0.04]
    assert 2 <= store.retried <= 2 * 2, "the key that was stored at once is not written twice"


def test_k4_a_pool_that_stays_full_is_an_error_after_the_patience(open_store: StoreFactory) -> None:
    open_store().put({"queue/blocker": bytes(50 * MIB)})
    time = FakeTime()
    store = open_store(patience_s=5.0, **time.options())
    with pytest.raises(StoreFullError, match=r"code -200; refused for 5.0 s: raise kvStore.managed.segmentBytes"):
        store.put({"kv/1/big": bytes(30 * MIB), "kv/1/small": b"s"})
    assert 3.0 < time.now <= 5.0
    assert store.get(["kv/1/big", "kv/1/small"]) == [None, b"s"]
    assert store.used("kv") == 1


def test_k6_a_sweep_takes_this_job_and_this_prefix_only(open_store: StoreFactory) -> None:
    store, other = open_store(uid="a.b-1"), open_store(uid="axb-1")
    for client in (store, other):
        client.put(dict.fromkeys(("kv/1/x", "kv/1/y", "kv/10/x", "weights/1/x"), b"v"))
    assert store.sweep("kv/1") == 2
    assert store.get(["kv/1/x", "kv/1/y", "kv/10/x", "weights/1/x"]) == [None, None, b"v", b"v"]
    assert other.get(["kv/1/x", "kv/10/x"]) == [b"v", b"v"]
    assert store.used("kv") == 1
    assert store.sweep("") == 2
    assert store.sweep("kv/") == 0
    assert other.get(["weights/1/x"]) == [b"v"]


def test_k6_a_job_without_a_uid_is_refused(open_store: StoreFactory) -> None:
    with pytest.raises(ValueError, match="uid"):
        open_store(uid="")


def test_k11_every_call_after_close_is_an_error(open_store: StoreFactory) -> None:
    store = open_store(uid="closed")
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.put({"kv/1/a": b"a"}),
        lambda: store.get(["kv/1/a"]),
        lambda: store.get_ranges("kv/1/a", [(0, 0, 1)], memoryview(bytearray(1))),
        lambda: store.remove(["kv/1/a"]),
        lambda: store.sweep(""),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="the store is closed"):
            call()


def test_threads_share_a_store(open_store: StoreFactory) -> None:
    store = open_store()
    wrong: list[object] = []

    def work(thread: int) -> None:
        for i in range(20):
            values = {f"kv/1/{thread}-{i}-{j}": bytes([thread + 1]) * (100 + j) for j in range(4)}
            store.put(values)
            if store.get(list(values)) != list(values.values()):
                wrong.append((thread, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert store.used("kv") == sum(100 + j for j in range(4)) * 80
