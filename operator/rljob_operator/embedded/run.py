"""`rljob run FILE`: train on this machine, without a cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from rljob_core.api import RLJob
from rljob_core.api.status import Phase, Reason, RLJobStatus
from rljob_core.errors import EXIT_DRAINED, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID_INPUT, InvalidInputError
from rljob_operator.embedded import display, earlier, ending, inputs, summary
from rljob_operator.embedded.display import Display
from rljob_operator.embedded.memory_use import command_started_at
from rljob_operator.embedded.rundir import Identity, RunDirectory, write_atomically
from rljob_operator.embedded.stores import FileStatus
from rljob_operator.embedded.supervisor import Result, Supervisor
from rljob_operator.report_html import write_report


def main(args: argparse.Namespace) -> int:
    """Exit code, see `cli_exit_codes`. args: file, runs (folder of run directories), quiet, fresh."""
    started_at = command_started_at(time.time())
    console = Console(stderr=False)
    try:
        job = inputs.load_job(args.file, os.environ.get("PYTHONPATH", ""))
    except inputs.RefusedFileError as refused:
        print(refused, file=sys.stderr)
        return EXIT_INVALID_INPUT
    run = RunDirectory(args.runs / job.metadata.name)
    folder = args.file.parent
    show = display.choose(console, quiet=args.quiet, clock=time.monotonic)
    if args.fresh:
        _keep_earlier(run, job, folder, show)
    with run.locked():
        known, status = run.identity(), FileStatus(run).current
        if known is not None and status.phase is Phase.SUCCEEDED:
            earlier.same_work(run, known, job)
            return _already_succeeded(run, known.job, folder, status, show)
        if known is not None:
            identity = earlier.go_on(run, known, job, folder, show.say, started_at)
        else:
            identity = _begin(run, job, folder, show, started_at)
        return _supervise(run, identity, folder, show, started_at)


def _supervise(run: RunDirectory, identity: Identity, folder: Path, show: Display, started_at: float) -> int:
    run.make_checkpoint_directory(identity.job, folder)
    with show:
        supervisor = Supervisor(run, identity, folder, show, environ=os.environ)
        result = asyncio.run(supervisor.supervise())
    with _undisturbed():
        figures = _summarize(run, identity, result, started_at)
        write_report(run.path, run.report_file)
        for line in ending.lines(run, identity.job, folder, result, figures):
            show.say(line)
    return _exit_code(result)


def _already_succeeded(run: RunDirectory, job: RLJob, folder: Path, status: RLJobStatus, show: Display) -> int:
    if not run.report_file.exists():  # that command was killed before it came to its report
        write_report(run.path, run.report_file)
    for line in ending.already_succeeded(run, job, folder, status):
        show.say(line)
    return 0


@contextmanager
def _undisturbed() -> Iterator[None]:
    """The run is over: a Ctrl-C now would only cost its report."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(run: RunDirectory, job: RLJob, folder: Path, show: Display, started_at: float) -> Identity:
    run.make_checkpoint_directory(job, folder)
    step = run.newest_checkpoint(job, folder)
    if step is not None:
        where = run.places(job, folder).checkpoints
        show.say(f"{job.metadata.name} goes on from the checkpoints in {where} (step {step})")
    metadata = job.metadata.model_copy(update={"uid": str(uuid.uuid4())})
    identity = Identity(job=job.model_copy(update={"metadata": metadata}), created_at=started_at)
    run.begin(identity)
    return identity


def _keep_earlier(run: RunDirectory, job: RLJob, folder: Path, show: Display) -> None:
    """--fresh: the old run stays, under another name."""
    volume = job.spec.checkpoint.volume
    if volume is not None and volume.host_path is not None and run.newest_checkpoint(job, folder) is not None:
        raise InvalidInputError(
            "--fresh",
            str(run.places(job, folder).checkpoints),
            "(in spec.checkpoint.volume.hostPath) holds checkpoints that would be resumed",
            "move it away, or name another hostPath",
        )
    with run.locked():
        moved = run.move_aside()
    if moved is not None:
        show.say(f"kept the earlier run as {moved}")


def _summarize(run: RunDirectory, identity: Identity, result: Result, started_at: float) -> dict[str, Any]:
    written = summary.coordinator_summary(run.summary_file, started_at)
    figures = summary.merged(
        written,
        result.report,
        result.status,
        created_at=identity.created_at,
        started_at=started_at,
        ended_at=time.time(),
        peak_pss_bytes=result.peak_pss_bytes,
    )
    write_atomically(run.summary_file, json.dumps(figures, indent=1) + "\n")
    return figures


def _exit_code(result: Result) -> int:
    if result.status.phase is Phase.SUCCEEDED:
        return 0
    if result.status.phase is Phase.FAILED:
        return EXIT_INVALID_INPUT if result.status.reason == Reason.INVALID_INPUT else EXIT_FAILED
    return EXIT_INTERRUPTED if result.killed else EXIT_DRAINED
