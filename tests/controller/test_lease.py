"""Leader election against an in-memory API with optimistic locking, on virtual time."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Callable

import pytest

from rljob_operator.cluster.api import ApiError, Object, Resource
from rljob_operator.cluster.lease import DURATION_S, RENEW_DEADLINE_S, Lease

pytestmark = pytest.mark.looptime


OK, REFUSED, SILENT = 0.0, -1.0, math.inf
"""How one attempt is answered; a positive number: after so many seconds."""


class LeaseApi:
    """One Lease object. answers: how the next attempts are answered; asked: when each began."""

    def __init__(self) -> None:
        self.stored: Object | None = None
        self.away = False
        self.answers: list[float] = []
        self.asked: list[float] = []
        self._version = 0

    def _store(self, body: Object) -> Object:
        self._version += 1
        self.stored = copy.deepcopy(body)
        self.stored["metadata"]["resourceVersion"] = str(self._version)
        return copy.deepcopy(self.stored)

    def _check(self, verb: str) -> None:
        if self.away:
            raise ApiError(verb, "leases", "x", 0, {"reason": "Unreachable"})

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        self.asked.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if self.answers else OK
        if answer == REFUSED:
            raise ApiError("get", "leases", name, 0, {"reason": "Unreachable"})
        await asyncio.sleep(min(answer, 3600.0))
        self._check("get")
        if self.stored is None:
            raise ApiError("get", "leases", name, 404, {})
        return copy.deepcopy(self.stored)

    async def create(self, resource: Resource, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        self._check("create")
        if self.stored is not None:
            raise ApiError("create", "leases", "x", 409, {"reason": "AlreadyExists"})
        return self._store(body)

    async def replace(self, resource: Resource, namespace: str, body: Object) -> Object:
        self._check("update")
        assert self.stored is not None
        if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise ApiError("update", "leases", "x", 409, {"reason": "Conflict"})
        return self._store(body)

    @property
    def holder(self) -> str:
        return str(self.stored["spec"]["holderIdentity"]) if self.stored else ""


def candidate(api: LeaseApi, name: str, clock: Callable[[], float] | None = None) -> Lease:
    return Lease(api, "ns", "l", name, clock or asyncio.get_running_loop().time)  # type: ignore[arg-type]


async def test_the_first_lease_is_created() -> None:
    api = LeaseApi()
    lease = candidate(api, "a")
    assert not lease.held()
    await lease.acquire()
    assert lease.held()
    assert api.holder == "a"


async def test_a_standby_waits_for_as_long_as_the_holder_renews_b41() -> None:
    api = LeaseApi()
    first, second = candidate(api, "a"), candidate(api, "b")
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(10 * DURATION_S)
    assert first.held()
    assert not second.held()
    assert second.standby.is_set()
    for task in (keeping, waiting):
        task.cancel()


async def test_a_dead_holder_is_followed_within_its_duration_and_a_renewal() -> None:
    api = LeaseApi()
    await candidate(api, "a").acquire()
    second = candidate(api, "b")
    started = asyncio.get_running_loop().time()
    await second.acquire()
    assert DURATION_S < asyncio.get_running_loop().time() - started < DURATION_S + 7
    assert api.stored is not None
    assert api.stored["spec"]["leaseTransitions"] == 1


async def test_an_orderly_end_hands_over_at_once() -> None:
    api = LeaseApi()
    first = candidate(api, "a")
    await first.acquire()
    await first.release()
    assert not first.held()
    second = candidate(api, "b")
    await asyncio.wait_for(second.acquire(), 0.1)
    assert api.holder == "b"


async def test_it_ends_by_itself_before_anyone_else_may_lead_when_the_api_is_away() -> None:
    api = LeaseApi()
    lease = candidate(api, "a")
    await lease.acquire()
    api.away = True
    started = asyncio.get_running_loop().time()
    await lease.keep()
    assert not lease.held()
    assert RENEW_DEADLINE_S <= asyncio.get_running_loop().time() - started < DURATION_S


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([OK, OK], [3, 6, 9, 12]),
        ([SILENT], [3, 8, 11, 14]),
        ([OK, SILENT], [3, 6, 11, 14]),
        ([SILENT, REFUSED], [3, 8, 9, 12]),
        ([4.0, 4.0, 4.9], [3, 7, 11, 15.9]),
        ([SILENT, 1.5], [3, 8, 11, 14]),
        ([REFUSED], [3, 4, 7, 10]),
        ([REFUSED] * 6, [3, 4, 5, 6, 7, 8, 9, 12]),
    ],
    ids=str,
)
async def test_a_renewal_that_failed_is_tried_again_before_the_deadline(
    answers: list[float], asked: list[float]
) -> None:
    api, lease, began = await leading(answers)
    keeping = asyncio.create_task(lease.keep())
    while len(api.asked) < len(asked):
        await asyncio.sleep(0.1)
        assert lease.held()
    keeping.cancel()
    assert [at - began for at in api.asked] == pytest.approx(asked)


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([REFUSED] * 7, [3, 4, 5, 6, 7, 8, 9]),
        ([SILENT, SILENT], [3, 8]),
        ([SILENT, 2.5], [3, 8]),
        ([OK, SILENT, SILENT], [3, 6, 11]),
    ],
    ids=str,
)
async def test_however_it_fails_it_is_over_at_the_deadline(answers: list[float], asked: list[float]) -> None:
    api, lease, began = await leading(answers)
    renewed = asked[answers.count(OK) - 1] if OK in answers else 0
    await lease.keep()
    assert not lease.held()
    assert asyncio.get_running_loop().time() - began == pytest.approx(renewed + RENEW_DEADLINE_S)
    assert [at - began for at in api.asked] == pytest.approx(asked)


async def leading(answers: list[float]) -> tuple[LeaseApi, Lease, float]:
    """A holder whose next renewals are answered so, and when it began."""
    api = LeaseApi()
    lease = candidate(api, "a")
    await lease.acquire()
    api.answers, api.asked = list(answers), []
    return api, lease, asyncio.get_running_loop().time()


async def test_a_paused_leader_does_not_hold_on_waking_up_b41() -> None:
    api = LeaseApi()
    now = 0.0
    lease = candidate(api, "a", lambda: now)
    await lease.acquire()
    now = RENEW_DEADLINE_S + 0.1
    assert not lease.held()
    await lease.keep()
    assert api.holder == "a"


async def test_a_restart_under_the_same_name_goes_on_at_once() -> None:
    api = LeaseApi()
    await candidate(api, "a").acquire()
    again = candidate(api, "a")
    await asyncio.wait_for(again.acquire(), 0.1)
    assert api.stored is not None
    assert api.stored["spec"]["leaseTransitions"] == 0
