"""Leader election by one coordination.k8s.io Lease.

The holder renews every RENEW_S and gives up by itself RENEW_DEADLINE_S after its last success, before any other
candidate may take the Lease (DURATION_S after the last renewal it saw). One that failed is tried again RETRY_S after it
began, at once when it took longer: a connection whose other end is gone costs one attempt, not the Lease. Clocks of two
machines are never compared: a candidate measures how long the record it sees has not changed. The same rules as
client-go; what is added is `held()`, which every write asks, so that a leader paused past its deadline writes nothing
on waking up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from rljob_operator.cluster.api import LEASES, ApiError, KubeApi, Object

DURATION_S = 15.0
RENEW_DEADLINE_S = 10.0
RENEW_S = 3.0
RETRY_S = 1.0
ATTEMPT_S = 5.0

logger = logging.getLogger(__name__)


class Lease:
    """One candidate.

    clock: monotonic seconds, for deadlines. now: wall time, for the record people read.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._namespace, self._name, self._identity = api, namespace, name, identity
        self._clock, self._now = clock, now
        self._renewed_at: float | None = None
        self._record: Object | None = None
        self._seen: tuple[str, float] | None = None
        self.standby = asyncio.Event()
        """Set once another holder was seen."""

    def held(self) -> bool:
        """Whether this process may act now."""
        return self._left() > 0

    async def acquire(self) -> None:
        """Return once the Lease is ours; waits while another holds it or the API is away."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(RENEW_S)
        logger.info("holding lease %s/%s as %s", self._namespace, self._name, self._identity)

    async def keep(self) -> None:
        """Renew until the Lease is lost, then return: the process must end."""
        pause = RENEW_S
        while (left := self._left()) > 0:
            await asyncio.sleep(min(pause, left))
            began = self._clock()
            if (left := self._left()) > 0:
                period = RENEW_S if await self._try(min(ATTEMPT_S, left)) else RETRY_S
                pause = max(0.0, began + period - self._clock())
        logger.error("lease %s/%s is lost", self._namespace, self._name)

    async def release(self) -> None:
        """Hand the Lease over at once, on an orderly end. Nothing may be written afterwards."""
        if not self.held() or self._record is None:
            return
        self._renewed_at = None
        self._record["spec"] |= {"holderIdentity": "", "renewTime": self._time()}
        try:
            await self._api.replace(LEASES, self._namespace, self._record)
        except ApiError as error:
            logger.warning("the lease was not released and will expire: %s", error)

    def _left(self) -> float:
        """Seconds this process may act for without another renewal."""
        return 0.0 if self._renewed_at is None else self._renewed_at + RENEW_DEADLINE_S - self._clock()

    async def _try(self, within_s: float = ATTEMPT_S) -> bool:
        """One attempt to take or renew. False: another holds it, or the API is away."""
        asked_at = self._clock()
        try:
            async with asyncio.timeout(within_s):
                record = await self._read()
                if record is not None and self._of_another(record):
                    self._renewed_at = None
                    self.standby.set()
                    return False
                write = self._api.replace if record is not None else self._api.create
                self._record = await write(LEASES, self._namespace, self._claim(record))
        except (ApiError, TimeoutError) as error:
            problem = str(error) or f"no answer within {within_s:.1f} s"
            logger.warning("lease %s/%s: %s", self._namespace, self._name, problem)
            return False
        self._renewed_at = asked_at
        return True

    async def _read(self) -> Object | None:
        try:
            return await self._api.get(LEASES, self._namespace, self._name)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def _of_another(self, record: Object) -> bool:
        """Whether someone else holds it: their record changed within its duration, by our clock."""
        if record["spec"].get("holderIdentity") in (None, "", self._identity):
            return False
        version = record["metadata"]["resourceVersion"]
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, self._clock())
        return self._clock() - self._seen[1] <= float(record["spec"].get("leaseDurationSeconds") or DURATION_S)

    def _claim(self, record: Object | None) -> Object:
        """The record that makes us holder; keeps resourceVersion, so that a race is a conflict."""
        now = self._time()
        old = record["spec"] if record else {}
        mine = old.get("holderIdentity") == self._identity
        transitions = int(old.get("leaseTransitions") or 0) + (0 if mine or not record else 1)
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": record["metadata"] if record else {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": round(DURATION_S),
                "acquireTime": old["acquireTime"] if mine and old.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }

    def _time(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
