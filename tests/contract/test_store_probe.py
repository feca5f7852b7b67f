"""An external store that does not answer is named by its field within bounded time, by real processes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from rljob_core.api.spec import RLJob
from rljob_core.errors import InvalidInputError, StoreError
from rljob_core.names import Role
from rljob_workers.context import Context
from rljob_workers.kv_store import probe

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


def context(address: str) -> Context:
    spec = {
        "model": {"init": {"config": {"model_type": "qwen3_moe"}}},
        "data": {"generator": {"task": "reverse-digits"}},
        "reward": {"perPosition": {}},
        "algorithm": {},
        "kvStore": {"external": {"masterAddress": address}},
    }
    job = RLJob.from_object({"metadata": {"name": "rl", "uid": "u"}, "spec": spec})
    return Context(job=job, role=Role.COORDINATOR, store_master=address)


@pytest.fixture
def other_server() -> Iterator[str]:
    """Address of something that listens and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_store_that_answers(cluster: Any) -> None:
    probe.require(context(cluster.address), known=False)


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "CONNECT_S", 0.1)
    with pytest.raises(InvalidInputError, match=r"no store master answered within 0\.1 s \(.*refused\)\)") as caught:
        probe.require(context("127.0.0.1:1"), known=False)
    assert (caught.value.field, caught.value.value) == ("spec.kvStore.external.masterAddress", "127.0.0.1:1")


def test_a_store_that_answered_before_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "CONNECT_S", 0.1)
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1.*spec\.kvStore\.external\.masterAddress"):
        probe.require(context("127.0.0.1:1"), known=True)


def test_another_server_listens(other_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "ANSWER_S", 5.0)
    with pytest.raises(InvalidInputError, match="it is no store master: no answer within 5 s"):
        probe.require(context(other_server), known=False)
