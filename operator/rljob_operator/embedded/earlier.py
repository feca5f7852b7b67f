"""The run of an earlier command, met again by a new one: an unfinished one is taken over, a Failed one tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rljob_core.api import RLJob
from rljob_core.api.status import Phase
from rljob_core.errors import InvalidInputError
from rljob_core.lifecycle.new_command import take_over, try_again
from rljob_operator.embedded import inputs
from rljob_operator.embedded.rundir import Identity, RunDirectory
from rljob_operator.embedded.stores import FileMemory, FileStatus

RETRIES = "spec.lifecycle."
"""Says how long to try, not what to train. All of it may change: a new command starts every process anew."""
BEGIN_ANEW = "run with --fresh (keeps the old run under another name), or give metadata.name a new value"


def go_on(
    run: RunDirectory, known: Identity, job: RLJob, folder: Path, say: Callable[[str], None], now: float
) -> Identity:
    """The job to run in a directory that holds `known`, its state ready for a next attempt. now: unix seconds.

    InvalidInputError: job trains something else. A run that Failed before its first checkpoint takes any new spec.
    """
    statuses, step = FileStatus(run), run.newest_checkpoint(known.job, folder)
    failed = statuses.current.phase is Phase.FAILED
    changes = [c for c in inputs.changed_fields(known.job.spec, job.spec) if not c.startswith(RETRIES)]
    if changes and not (failed and step is None):
        raise InvalidInputError(
            "spec",
            "; ".join(changes[:5]),
            f"cannot change on an existing run yet ({run.path})",
            f"undo the change to resume it, or {BEGIN_ANEW}",
        )
    if job.spec != known.job.spec:
        known = replace(known, job=known.job.model_copy(update={"spec": job.spec}))
        run.begin(known)
    if failed:
        start = "the beginning" if step is None else f"the checkpoint of step {step}"
        budget = f"{job.spec.lifecycle.backoff_limit} restarts (spec.lifecycle.backoffLimit)"
        say(f"{run.path.name} ended Failed ({statuses.current.reason}): trying again from {start}, with {budget}")
    asyncio.run(_next_attempt(FileMemory(run), statuses, known.job, failed, now))
    return known


def same_work(run: RunDirectory, known: Identity, job: RLJob) -> None:
    """InvalidInputError when a run that succeeded trained something else than the job asks for now."""
    changes = [c for c in inputs.changed_fields(known.job.spec, job.spec) if not c.startswith(RETRIES)]
    if changes:
        raise InvalidInputError(
            "spec", "; ".join(changes[:5]), f"is not what {run.path} trained: that run has succeeded", BEGIN_ANEW
        )


async def _next_attempt(memories: FileMemory, statuses: FileStatus, job: RLJob, failed: bool, now: float) -> None:
    """No process of the earlier command lives: what it had started begins again from the last checkpoint."""
    before = await memories.load(job)
    if failed:
        memory, status = try_again(before, statuses.current, now)
        await memories.save(job, memory)
        await statuses.write(job, status)
    elif (memory := take_over(before)) is not before:
        await memories.save(job, memory)
