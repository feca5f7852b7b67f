"""One local process that stands for a pod: started in a session of its own, watched, stopped, its last words read."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from rljob_core.api.report import TerminationMessage
from rljob_core.lifecycle.model import ObservedWorkload, Workload, WorkloadPhase

LOG_TAIL_BYTES = 2000


class Child:
    """A started workload. clock: unix seconds; changed: called when it has ended."""

    def __init__(
        self,
        workload: Workload,
        uid: str,
        log: Path,
        words: Path,
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.workload, self.uid, self.log, self.words = workload, uid, log, words
        self._clock, self._changed = clock, changed
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._started_at: float | None = None
        self._finished_at: float | None = None
        self.deleting = False

    async def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        """Raises OSError when the machine refuses. The log is appended to: it outlives the process."""
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                env=dict(env),
                cwd=cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._started_at = self._clock()
        self._tasks.append(asyncio.create_task(self._watch()))

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def live(self) -> bool:
        return self._finished_at is None

    def stop(self, grace_s: float) -> None:
        """Ask it to end; kill its whole session after the grace."""
        if self.deleting or not self.live:
            return
        self.deleting = True
        self._signal(signal.SIGTERM)
        self._tasks.append(asyncio.create_task(self._kill_later(grace_s)))

    def kill(self) -> None:
        """SIGKILL to everything in its session."""
        if self.live:
            self._signal_group(signal.SIGKILL)

    async def ended(self) -> None:
        await self._tasks[0]

    def observe(self) -> ObservedWorkload:
        """As a pod would look."""
        code = self._running().returncode
        seen = ObservedWorkload(
            name=self.workload.name,
            role=self.workload.role,
            index=self.workload.index,
            attempt=self.workload.attempt,
            uid=self.uid,
            phase=WorkloadPhase.RUNNING,
            ready=self.live,
            deleting=self.deleting,
            node=os.uname().nodename,
            started_at=self._started_at,
        )
        if self.live or code is None:
            return seen
        words, text = self._last_words()
        return replace(
            seen,
            phase=WorkloadPhase.FAILED if code else WorkloadPhase.SUCCEEDED,
            exit_code=code if code >= 0 else 128 - code,
            reason=signal.Signals(-code).name if code < 0 else ("Error" if code else "Completed"),
            message=text if code else "",
            last_words=words,
            finished_at=self._finished_at,
        )

    async def _watch(self) -> None:
        await self._running().wait()
        self._signal_group(signal.SIGKILL)
        self._finished_at = self._clock()
        self._changed()

    async def _kill_later(self, grace_s: float) -> None:
        await asyncio.wait([self._tasks[0]], timeout=grace_s)
        self.kill()

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "start() comes first"
        return self._process

    def _signal(self, which: signal.Signals) -> None:
        if self._running().returncode is None:
            self._running().send_signal(which)

    def _signal_group(self, which: signal.Signals) -> None:
        """To the session it leads: what a dying entry point left behind goes too."""
        try:
            os.killpg(self.pid, which)
        except ProcessLookupError:
            return

    def _last_words(self) -> tuple[TerminationMessage | None, str]:
        """What it wrote to its termination log; without that, the end of its log."""
        try:
            text = self.words.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None, _tail(self.log)
        try:
            words = TerminationMessage.model_validate_json(text)
        except ValidationError:
            return None, text
        return words, words.message


def _tail(log: Path) -> str:
    with log.open("rb") as lines:
        lines.seek(0, os.SEEK_END)
        lines.seek(max(0, lines.tell() - LOG_TAIL_BYTES))
        return lines.read().decode(errors="replace").strip()
