"""`rljob run FILE`: train on this machine, without a cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from rich.console import Console

from rljob_core.api import RLJob
from rljob_core.api.status import Phase, Reason, RLJobStatus
from rljob_core.errors import EXIT_DRAINED, EXIT_INVALID_INPUT, InvalidInputError
from rljob_core.lifecycle.failure import begin_again
from rljob_operator.embedded import display, ending, inputs, summary
from rljob_operator.embedded.memory_use import command_started_at
from rljob_operator.embedded.rundir import Identity, RunDirectory
from rljob_operator.embedded.stores import FileMemory, FileStatus
from rljob_operator.embedded.supervisor import Result, Supervisor
from rljob_operator.report_html import write_report

EXIT_FAILED = 1
EXIT_KILLED = 130


def main(args: argparse.Namespace) -> int:
    """Exit code: 0 Succeeded, 1 Failed, 64 invalid, 75 drained, 130 killed by a second Ctrl-C.

    args: file, runs (folder of run directories), quiet, fresh.
    """
    started_at = command_started_at(time.time())
    console = Console(stderr=False)
    try:
        job = inputs.load_job(args.file, os.environ.get("PYTHONPATH", ""))
    except inputs.RefusedFileError as refused:
        print(refused, file=sys.stderr)
        return EXIT_INVALID_INPUT
    run = RunDirectory(args.runs / job.metadata.name)
    folder = args.file.parent
    if args.fresh:
        _keep_earlier(run, job, folder, console)
    with run.locked():
        known = run.identity()
        if known is not None:
            status = FileStatus(run).current
            if status.phase.terminal:
                return _already_ended(run, job, status, console)
            _refuse_other_spec(run, known.job, job)
        run.make_checkpoint_directory(job, folder)
        if known is None and run.has_checkpoints(job, folder):
            console.print(
                f"{job.metadata.name} goes on from the checkpoints in {run.places(job, folder).checkpoints}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        identity = known or _begin(run, job, started_at)
        return _supervise(run, identity, args, console, started_at)


def _supervise(
    run: RunDirectory, identity: Identity, args: argparse.Namespace, console: Console, started_at: float
) -> int:
    asyncio.run(_take_over(run, identity.job))
    show = display.choose(console, quiet=args.quiet, clock=time.monotonic)
    with show:
        supervisor = Supervisor(run, identity, args.file.parent, show, started_at=started_at, environ=os.environ)
        result = asyncio.run(supervisor.supervise())
    figures = _summarize(run, result, started_at)
    write_report(run.path, run.report_file)
    for line in ending.lines(run, result, figures):
        show.say(line)
    return _exit_code(result)


def _begin(run: RunDirectory, job: RLJob, started_at: float) -> Identity:
    metadata = job.metadata.model_copy(update={"uid": str(uuid.uuid4())})
    identity = Identity(job=job.model_copy(update={"metadata": metadata}), created_at=started_at)
    run.begin(identity)
    return identity


async def _take_over(run: RunDirectory, job: RLJob) -> None:
    """No process of an earlier command lives: what it had started begins again from the last checkpoint."""
    memories = FileMemory(run)
    memory = await memories.load(job)
    again = begin_again(memory)
    if again is not memory:
        await memories.save(job, again)


def _keep_earlier(run: RunDirectory, job: RLJob, folder: Path, console: Console) -> None:
    """--fresh: the old run stays, under another name."""
    volume = job.spec.checkpoint.volume
    if volume is not None and volume.host_path is not None and run.has_checkpoints(job, folder):
        raise InvalidInputError(
            "--fresh",
            volume.host_path.path,
            "(spec.checkpoint.volume.hostPath) holds checkpoints that would be resumed",
            "move them away, or name another directory",
        )
    with run.locked():
        moved = run.move_aside()
    if moved is not None:
        console.print(f"kept the earlier run as {moved}", markup=False, highlight=False)


def _refuse_other_spec(run: RunDirectory, old: RLJob, new: RLJob) -> None:
    changes = inputs.changed_fields(old.spec, new.spec)
    if changes:
        raise InvalidInputError(
            "spec",
            "; ".join(changes[:5]),
            f"differs from the unfinished run in {run.path}",
            "undo the change to resume it, or run with --fresh (keeps the old run under another name), "
            "or give metadata.name a new value",
        )


def _already_ended(run: RunDirectory, job: RLJob, status: RLJobStatus, console: Console) -> int:
    name = job.metadata.name
    console.print(
        f"{name} has already ended: {status.phase} ({status.message}); see {run.path}. To train again give "
        "metadata.name a new value, or run with --fresh (keeps the old run under another name).",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 0 if status.phase is Phase.SUCCEEDED else EXIT_FAILED


def _summarize(run: RunDirectory, result: Result, started_at: float) -> dict[str, Any]:
    written = summary.coordinator_summary(run.summary_file, started_at)
    figures = summary.merged(
        written,
        result.report,
        result.status,
        started_at=started_at,
        ended_at=time.time(),
        peak_pss_bytes=result.peak_pss_bytes,
    )
    run.summary_file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return figures


def _exit_code(result: Result) -> int:
    if result.status.phase is Phase.SUCCEEDED:
        return 0
    if result.status.phase is Phase.FAILED:
        return EXIT_INVALID_INPUT if result.status.reason == Reason.INVALID_INPUT else EXIT_FAILED
    return EXIT_KILLED if result.killed else EXIT_DRAINED
