"""The loop of `rljob run`: passes over one job with local processes, until it ended, drained or was killed."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from rljob_core.api.report import Report
from rljob_core.api.status import Reason, RLJobStatus
from rljob_core.tokens import job_token
from rljob_operator.embedded.display import Display
from rljob_operator.embedded.memory_use import PeakPss
from rljob_operator.embedded.rundir import Identity, RunDirectory
from rljob_operator.embedded.stores import FileEvents, FileMemory, FileStatus
from rljob_operator.links import JobLinks
from rljob_operator.reconcile import Circumstances, Reconciler
from rljob_operator.substrates.processes import ProcessSubstrate

LONGEST_PAUSE_S = 1.0
"""Between two passes when nothing calls for one: the display shows that it lives."""

DRAIN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How the loop ended. killed: by a second Ctrl-C, without a checkpoint."""

    status: RLJobStatus
    report: Report | None
    peak_pss_bytes: int
    killed: bool


class Supervisor:
    """Runs the job of a locked run directory.

    folder: of the RLJob file. environ: what workers inherit.
    """

    def __init__(
        self,
        run: RunDirectory,
        identity: Identity,
        folder: Path,
        display: Display,
        *,
        environ: Mapping[str, str],
    ) -> None:
        self._run, self._job, self._created_at = run, identity.job, identity.created_at
        self._display = display
        self._wake = asyncio.Event()
        self._status = FileStatus(run)
        self._pss = PeakPss()
        self._drain = self._killed = False
        self._report: Report | None = None
        places = run.places(identity.job, folder)
        self._key = secrets.token_bytes(32)
        run.write_token(places.token_file, job_token(self._key, identity.job.metadata.uid))
        self._substrate = ProcessSubstrate(
            places=places,
            environ=environ,
            parent_pid=os.getpid(),
            started_at=identity.created_at,
            clock=time.time,
            wake=self._wake.set,
            rng=random.SystemRandom(),
        )

    async def supervise(self) -> Result:
        """Until nothing of the job lives any more."""
        loop = asyncio.get_running_loop()
        for which in DRAIN_SIGNALS:
            loop.add_signal_handler(which, self._interrupted)
        sampling = asyncio.create_task(self._pss.sample_forever())
        try:
            async with aiohttp.ClientSession() as session:
                links = JobLinks(session, self._key, lambda uid: self._wake.set())
                await self._passes(links)
                await links.close()
        finally:
            sampling.cancel()
            await self._substrate.kill()
            for which in DRAIN_SIGNALS:
                loop.remove_signal_handler(which)
        return Result(
            status=self._status.current, report=self._report, peak_pss_bytes=self._pss.bytes, killed=self._killed
        )

    async def _passes(self, links: JobLinks) -> None:
        reconciler = Reconciler(
            substrate=self._substrate,
            memories=FileMemory(self._run),
            statuses=self._status,
            events=FileEvents(self._run, time.time, self._display.event),
            links=links,
            clock=time.time,
        )
        while not self._killed:
            self._wake.clear()
            circumstances = Circumstances(
                created_at=self._created_at,
                durable_checkpoints=True,
                drain_requested=self._drain,
                units="processes",
            )
            plan = await reconciler.reconcile(self._job, self._status.current, circumstances)
            self._report = plan.memory.final_report or links.latest(self._job)[0] or self._report
            self._display.update(plan.status, self._report)
            if over(plan.status) and not self._substrate.pids():
                return
            pause_s = LONGEST_PAUSE_S if plan.requeue_after is None else min(plan.requeue_after, LONGEST_PAUSE_S)
            await self._pause(pause_s)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return

    def _interrupted(self) -> None:
        """First time: checkpoint and stop. Second time: stop now."""
        if self._drain:
            self._killed = True
            self._display.say("killing all processes; the last checkpoint stays")
        elif self._status.current.phase.terminal:
            self._display.say("the job has ended, its processes are stopping (Ctrl-C again kills them)")
        else:
            self._display.say("draining: checkpoint, then stop (Ctrl-C again kills at once)")
        self._drain = True
        self._wake.set()


def over(status: RLJobStatus) -> bool:
    """Ended for good, or drained."""
    return status.phase.terminal or status.reason == Reason.DRAINED
