"""The coordinator's process: from checkpoint and journal to an exit code."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path

from aiohttp import web

from rljob_core.api.report import Outcome, Report, TerminationMessage
from rljob_core.errors import EXIT_DRAINED, EXIT_INVALID_INPUT, StoreError
from rljob_core.journal import Start, start_from
from rljob_core.session import Session, Settings
from rljob_core.session.reporting import report
from rljob_workers import checkpoints, last_words
from rljob_workers.context import Context, split_address
from rljob_workers.coordinator import journal_file
from rljob_workers.coordinator.desk import Desk
from rljob_workers.coordinator.garbage import Garbage
from rljob_workers.coordinator.journal_file import JournalFile
from rljob_workers.coordinator.prompts import JobPrompts
from rljob_workers.coordinator.run_files import RunFiles
from rljob_workers.coordinator.server import Server
from rljob_workers.coordinator.summary import summary
from rljob_workers.kv_store import open_store, probe
from rljob_workers.seams import KVStore

EXIT_CODES = {
    Outcome.STEPS_DONE: 0,
    Outcome.TARGET_REACHED: 0,
    Outcome.DRAINED: EXIT_DRAINED,
    Outcome.INVALID_INPUT: EXIT_INVALID_INPUT,
    Outcome.FAILED: 1,
}
SIGNAL_GRACE_S = 25.0
"""SIGTERM and SIGINT drain within this: with what follows it fits into a pod's grace period of 60 s. Of a coordinator
that the operator itself deletes nothing more is wanted: it is killed before, after 10 s."""
STOP_S = 15.0
"""How long workers may take to stop once told to."""
TICK_S = 1.0
_log = logging.getLogger(__name__)


def main(context: Context) -> int:
    """Serve the job to its end. InvalidInputError when tokenizer or data are wrong."""
    prompts = JobPrompts.open(context.spec)
    settings = Settings.of(context.spec)
    if context.spec.kv_store.external is not None:
        probe.require(context, known=_reached_before(context))
    with closing(open_store(context, {})) as store, swept(context, store):
        return asyncio.run(serve(context, settings, prompts, store))


@contextmanager
def swept(context: Context, store: KVStore) -> Iterator[None]:
    """A store that others run holds no key of this job before (a key there would keep its old value) and after, when
    workers have stopped. A managed one dies with the job."""
    external = context.spec.kv_store.external
    if external is None:
        yield
        return
    store.sweep("")
    try:
        yield
    finally:
        try:
            _log.info("%d keys removed from the store", store.sweep(""))
        except StoreError as error:  # how the job ended does not change with it
            uid = context.job.metadata.uid
            _log.error(
                "keys below %s/ stay in the store at %s, remove them there: %s", uid, context.store_master, error
            )


def _reached_before(context: Context) -> bool:
    """Whether this job has had its store before: the journal of its volume knows; without one, a second attempt may."""
    if not context.checkpoint_durable:
        return context.attempt > 0
    return journal_file.read(_directory(context)).highest_version >= 0


def _directory(context: Context) -> Path:
    """Of checkpoints and journal."""
    return context.checkpoint_dir or context.run_dir or Path.cwd()


def begin(context: Context, directory: Path) -> tuple[Start, int]:
    """(where to begin, length of the readable journal): the newest complete checkpoint, settled with the journal."""
    journal = journal_file.read(directory)
    checkpoint = checkpoints.newest(directory)
    step, version = (0, -1) if checkpoint is None else (checkpoint.meta.step, checkpoint.meta.version)
    state = {} if checkpoint is None else checkpoint.coordinator_state()
    if step:
        _log.info("resuming from step %d, highest version so far %d", step, journal.highest_version)
    start = start_from(
        journal,
        step=step,
        version=version,
        state=state,
        job_started_at=context.started_at,
    )
    return start, journal.whole_bytes


async def serve(context: Context, settings: Settings, prompts: JobPrompts, store: KVStore) -> int:
    """Exit code."""
    directory = _directory(context)
    start, whole_bytes = begin(context, directory)
    garbage = Garbage(store)
    async with AsyncExitStack() as stack:
        clock = steady_clock()
        journal = JournalFile(directory, whole_bytes, clock)
        stack.callback(journal.close)
        files = None if context.run_dir is None else RunFiles(context.run_dir, clock())
        if files is not None:
            stack.callback(files.close)
        session = Session(settings, prompts, start)
        desk = Desk(session, journal, files, garbage.discard, clock, prompts.dropped)
        server = Server(desk, token=context.token, instance=uuid.uuid4().hex)
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(server.close)
        await web.TCPSite(runner, *split_address(context.listen)).start()
        _log.info("serving on %s", context.listen)
        await _run(desk, server, garbage)
        final = report(session, 1 << 31, dropped_prompts=prompts.dropped)
        await journal.synced()
        if files is not None:
            files.summary(
                summary(
                    final,
                    started_at=context.started_at,
                    now=clock(),
                    attempt=context.attempt,
                    tokens_here=final.tokens_generated - session.tokens_at_start,
                    sampling_since=session.sampling.first_token_at,
                )
            )
    return _end(context, final)


def steady_clock() -> Callable[[], float]:
    """Unix seconds that no clock adjustment makes jump: leases and heartbeats depend on differences."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


async def _run(desk: Desk, server: Server, garbage: Garbage) -> None:
    """Until the session has an outcome and everybody has stopped, or does not within STOP_S."""
    loop = asyncio.get_running_loop()
    drains: set[asyncio.Task[None]] = set()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: drains.add(loop.create_task(desk.drain(SIGNAL_GRACE_S))))
    helpers = [loop.create_task(garbage.run()), loop.create_task(_tick(server))]
    over = loop.create_task(desk.stopping())
    try:
        await asyncio.wait([over, *helpers], return_when=asyncio.FIRST_COMPLETED)
        for helper in helpers:
            if helper.done():
                helper.result()  # a broken disk or a bug: nothing may go on
        await desk.stopped(STOP_S)
    finally:
        for task in (over, *helpers, *drains):
            task.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def _tick(server: Server) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        await server.tick()


def _end(context: Context, final: Report) -> int:
    """Last words with the final report, and the exit code of its outcome."""
    code = EXIT_CODES[final.outcome]
    cause = "" if final.cause is None else f"{final.cause.pod}: {final.cause.message}"
    words = TerminationMessage(
        invalid_input=final.outcome is Outcome.INVALID_INPUT,
        exit_code=code,
        message=cause or final.outcome_message,
        report=final,
    )
    last_words.write(context.termination_log, words)
    _log.info("%s: %s", final.outcome, final.outcome_message)
    return code
