"""The Report of the largest job there is stays below what the operator reads."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rljob_core.api.bounded import MESSAGE_BYTES, bounded
from rljob_core.api.directive import StageName
from rljob_core.api.messages import Heartbeat, Register, Span
from rljob_core.api.report import REPORT_LIMIT_BYTES, Report
from rljob_core.names import NAME_LIMIT, Role
from rljob_core.session.reporting import report

CHARACTERS = ["x", "é", "\U0001f600", '"', "\0", "\ud800"]
WORKERS = 200
LARGE = sys.maxsize


@pytest.mark.parametrize("character", CHARACTERS)
def test_the_largest_report_fits(job: Callable[..., Any], character: str) -> None:
    """Hundreds of workers silent, hundreds absent, every stage timed, counters at their end, and the longest error."""
    running = job(steps=2, reward_workers=WORKERS, startup_s=1.0)
    running.run(until=lambda: running.session.step == 1)
    session, now = running.session, running.now + 1e9
    for role in (Role.TRAINER, Role.ROLLOUT, Role.REWARD):
        spans = [Span(stage=str(stage), start=0.0, end=1e9 / 3) for stage in StageName]
        session.heartbeat(session.registry.of(role)[0], Heartbeat(spans=spans), running.now)
    for rank in range(1, WORKERS):
        pod = f"{rank:03d}".rjust(NAME_LIMIT, "x")
        message = Register(role="reward", pod=pod, pod_uid="u", rank=rank)
        session.register(message, running.now)
    totals = session.sampling.totals
    for counters in ("kv", "queue", "weights"):
        full = dict.fromkeys(type(getattr(totals, counters)).model_fields, LARGE)
        setattr(totals, counters, getattr(totals, counters).model_copy(update=full))
    totals.tokens_generated = LARGE
    session.settings = dataclasses.replace(session.settings, rollout_groups=WORKERS, reward_workers=3 * WORKERS)
    for worker in session.registry.of(Role.TRAINER):
        worker.last_seen = now
    session.tick(now)
    session.fail(character * 5000, session.registry.of(Role.TRAINER)[0])
    largest = report(session, LARGE, dropped_prompts=LARGE)
    assert len(largest.silent) == len(largest.absent) == 64
    assert len(largest.stages) == 3 * len(StageName)
    assert largest.cause is not None
    wire = json.dumps(largest.to_wire(), ensure_ascii=False).encode()
    assert len(wire) <= REPORT_LIMIT_BYTES
    assert Report.model_validate_json(wire).cause == largest.cause


@pytest.mark.parametrize("character", CHARACTERS)
def test_a_bounded_text_is_as_long_as_it_may_be(character: str) -> None:
    for text in (bounded(character * 5000), bounded(character * 3)):
        taken = len(json.dumps(text, ensure_ascii=False).encode()) - 2
        assert taken <= MESSAGE_BYTES
    longest = bounded(character * 5000)
    assert len(json.dumps(longest + longest[0], ensure_ascii=False).encode()) - 2 > MESSAGE_BYTES
    assert bounded("short") == "short"
