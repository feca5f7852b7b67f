"""Requests of workers to events of the session: long polls, effects, and journal before answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from rljob_core.api.directive import Directive
from rljob_core.api.messages import (
    Ack,
    CheckpointDone,
    Committed,
    CompletePrefill,
    CompleteReward,
    CompleteRollout,
    Goodbye,
    Heartbeat,
    Message,
    Published,
    Pulled,
    Register,
    StepDone,
    TakeReward,
    TakeRollout,
    TakeTrain,
    TrainCommand,
    WorkKind,
)
from rljob_core.api.report import Outcome, Report
from rljob_core.errors import InvalidInputError, QueueError
from rljob_core.session import Discarded, EvaluationLogged, Journalled, Noticed, Session, StepLogged, Worker
from rljob_core.session.reporting import report
from rljob_workers.coordinator.journal_file import JournalFile
from rljob_workers.coordinator.pulse import Pulse
from rljob_workers.coordinator.run_files import RunFiles

LONGEST_WAIT_S = 30.0
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Desk:
    """One session, served. discard: removes store keys in the background. clock: unix seconds."""

    def __init__(
        self,
        session: Session,
        journal: JournalFile,
        files: RunFiles | None,
        discard: Callable[[tuple[str, ...]], None],
        clock: Callable[[], float],
        dropped_prompts: int = 0,
    ) -> None:
        self.session = session
        self._journal, self._files, self._discard, self._clock = journal, files, discard, clock
        self._dropped = dropped_prompts
        self._pulse = Pulse()
        self._sequence = 0
        self._shown: object = None
        self._dirty = False
        self._settle(changed=True)

    # Events.

    async def register(self, message: Register) -> Worker:
        worker = self._event(lambda: self.session.register(message, self._clock()))
        _log.info("%s rank %d is here (%s)", worker.role, worker.rank, worker.pod)
        await self._journal.synced()
        return worker

    async def lost(self, worker: Worker, why: str) -> None:
        self._event(lambda: self.session.lost(worker.worker_id, why, self._clock()))
        await self._journal.synced()

    async def direct(self, directive: Directive) -> int:
        """The revision in force afterwards."""
        if self._event(lambda: self.session.direct(directive, self._clock())):
            _log.info("directive %d: %s", directive.revision, directive.action)
        await self._journal.synced()
        return self.session.applied_revision

    async def drain(self, grace_s: float) -> None:
        now = self._clock()
        self._event(lambda: self.session.drain(now + grace_s, now))
        await self._journal.synced()

    async def tick(self) -> None:
        """Call about once a second: time passes, and small changes show in the report."""
        self._sequence += self._dirty
        self._event(lambda: self.session.tick(self._clock()))
        self._dirty = False
        await self._journal.synced()

    async def report(self, after: int, wait_s: float) -> Report:
        """The current report; long poll for one whose sequence is above `after`."""
        await self._until(lambda: self._sequence, lambda sequence: sequence > after, wait_s)
        return report(self.session, self._sequence, dropped_prompts=self._dropped)

    async def stopped(self, wait_s: float) -> bool:
        """Wait until everybody has stopped."""
        return await self._until(lambda: self.session.stopped, bool, wait_s)

    async def stopping(self) -> None:
        """Wait until the session tells everybody to stop."""
        while not await self._until(lambda: self.session.stopping, bool, LONGEST_WAIT_S):
            pass

    async def answer(self, worker: Worker, message: Message) -> Message:
        """The reply to one request. QueueError for a request that makes no sense from this worker."""
        if self.session.registry.get(worker.worker_id) is not worker:
            raise QueueError(f"{worker.role} rank {worker.rank} ({worker.pod}) is not registered any more")
        worker.last_seen = self._clock()
        reply = await self._dispatch(worker, message)
        await self._journal.synced()
        return reply

    async def _dispatch(self, worker: Worker, message: Message) -> Message:
        session, now = self.session, self._clock
        match message:
            case TakeRollout():
                return await self._take(
                    lambda: session.take_rollout(
                        worker, message.free_sequences, message.in_flight, message.version, now()
                    ),
                    lambda work: work.kind is not WorkKind.WAIT,
                    message.wait_s,
                )
            case TakeReward():
                return await self._take(
                    lambda: session.take_reward(worker, message.max_rows, now()),
                    lambda work: work.kind is not WorkKind.WAIT,
                    message.wait_s,
                )
            case TakeTrain():
                return await self._take(
                    lambda: session.take_train(worker, now()),
                    lambda work: work.command is not TrainCommand.WAIT,
                    message.wait_s,
                )
            case CompleteRollout():
                return Committed(accepted=self._event(lambda: session.complete_rollout(message)))
            case CompleteReward():
                return Committed(accepted=self._event(lambda: session.complete_reward(message, now())))
        self._event(lambda: self._note(worker, message))
        return Ack()

    def _note(self, worker: Worker, message: Message) -> None:
        session, now = self.session, self._clock()
        match message:
            case Heartbeat():
                session.heartbeat(worker, message, now)
                if self._files is not None:
                    self._files.spans(worker, message.spans)
            case CompletePrefill():
                session.complete_prefill(message)
            case Pulled():
                session.pulled(worker, message, now)
            case StepDone():
                session.step_done(worker, message, now)
            case Published():
                session.published(worker, message, now)
            case CheckpointDone():
                session.checkpoint_done(message, now)
            case Goodbye():
                if message.error:
                    _log.error("%s rank %d: %s", worker.role, worker.rank, message.error)
                session.goodbye(worker, message, now)
            case _:
                raise QueueError(f"{type(message).__name__} is not expected here")

    # How an event is carried through.

    async def _take(self, attempt: Callable[[], T], good: Callable[[T], bool], wait_s: float) -> T:
        """Long poll for work: an attempt that finds some is an event."""

        def event() -> T:
            try:
                result = self._guarded(attempt)
            except InvalidInputError:
                result = attempt()  # the job is over: this one is told to stop like everybody else
            self._settle(changed=good(result))
            return result

        return await self._until(event, good, wait_s)

    async def _until(self, attempt: Callable[[], T], good: Callable[[T], bool], wait_s: float) -> T:
        """Try now and after every beat until the result is good or the time is over; the last result."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(0.0, wait_s), LONGEST_WAIT_S)
        while True:
            beat = self._pulse.next()
            result = attempt()
            remaining = deadline - loop.time()
            if good(result) or remaining <= 0:
                return result
            try:
                async with asyncio.timeout(remaining):
                    await beat.wait()
            except TimeoutError:
                return result

    def _event(self, event: Callable[[], T]) -> T:
        result = self._guarded(event)
        self._dirty = True
        self._settle(changed=True)
        return result

    def _guarded(self, event: Callable[[], T]) -> T:
        """The user's mistakes end the job."""
        try:
            return event()
        except InvalidInputError as error:
            _log.error("%s", error)
            self.session.fail(str(error), outcome=Outcome.INVALID_INPUT)
            self._settle(changed=True)
            raise

    def _settle(self, changed: bool) -> None:
        """Do what the session wants done, then wake those who wait."""
        effects = self.session.take_effects()
        for effect in effects:
            match effect:
                case Journalled():
                    self._journal.append(effect.record)
                case Noticed():
                    _log.info("%s", effect.message)
                case Discarded():
                    self._discard(effect.keys)
                case StepLogged() if self._files is not None:
                    self._files.metrics(effect.metrics, "train", self._clock())
                    self._files.samples(effect.samples)
                case EvaluationLogged() if self._files is not None:
                    self._files.metrics(effect.metrics, "evaluation", self._clock())
        session = self.session
        shown = (
            session.step,
            session.version,
            session.stopping,
            session.applied_revision,
            session.evaluations.last,
            session.last_checkpoint_step,
            len(session.registry),
        )
        if shown != self._shown:
            self._sequence, self._shown = self._sequence + 1, shown
        if changed or effects:
            self._pulse.beat()
