"""A reward function that fails, in a job: a real coordinator, the real reward loop, the function in its own process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rljob_core.api.inputs import Reward
from rljob_core.api.report import Outcome, TerminationMessage
from rljob_core.errors import EXIT_INVALID_INPUT, InvalidInputError
from rljob_core.names import Role
from rljob_workers.reward import main as reward

pytestmark = pytest.mark.processes

MODULE = """
import time
def nan(*a): return float("nan")
def infinite(*a): return -float("inf")
def nothing(*a): return None
def text(*a): return "1.0"
def raises(*a): raise ValueError("分数不对")
def hangs(prompt, response, answer, fields):
    if answer[0] == "8": time.sleep(600)
    return 0.5
"""
FUNCTION = "spec.reward.function.entryPoint"


@pytest.fixture
def scored_by(stage: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A job of one step whose rewards come from a function of MODULE."""
    (tmp_path / "faulty_rewards.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(function: str) -> Any:
        job = stage(steps=1)
        spec = {"function": {"entryPoint": f"faulty_rewards:{function}", "timeoutSeconds": 0.2}}
        changed = job.job.spec.model_copy(update={"reward": Reward.model_validate(spec)})
        job.job = job.job.model_copy(update={"spec": changed})
        job.reward = lambda: reward.main(job.context(Role.REWARD))
        monkeypatch.setattr(reward, "open_store", lambda context, budgets: job.store())
        return job

    return make


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("nan", "returned nan"),
        ("infinite", "returned -inf"),
        ("nothing", "returned a NoneType"),
        ("text", "returned a str"),
        ("raises", "raised ValueError: 分数不对"),
    ],
)
async def test_what_is_no_score_fails_the_job_in_words(
    scored_by: Callable[[str], Any], function: str, problem: str
) -> None:
    job = scored_by(function)
    async with job.coordinator() as coordinator:
        workers = [job.trainer, job.reward, lambda: job.rollout(0), lambda: job.rollout(1)]
        results = await asyncio.gather(*(asyncio.to_thread(w) for w in workers), return_exceptions=True)
        assert await coordinator == EXIT_INVALID_INPUT
    assert [type(result) for result in results] == [type(None), InvalidInputError, type(None), type(None)]
    words = TerminationMessage.model_validate_json((job.path / "coordinator-0.json").read_bytes())
    assert words.invalid_input
    assert words.report is not None
    assert words.report.outcome is Outcome.INVALID_INPUT
    said = f"{FUNCTION}: 'faulty_rewards:{function}' {problem}"
    assert words.report.outcome_message.startswith(said)
    assert job.trained == []


async def test_41_a_call_that_hangs_scores_0_is_counted_and_the_job_goes_on(scored_by: Callable[[str], Any]) -> None:
    job = scored_by("hangs")
    async with job.coordinator() as coordinator:
        assert await job.run_workers(coordinator) == 0
    samples = [json.loads(line) for line in (job.path / "run" / "samples.jsonl").read_text().splitlines()]
    hung = [sample["answer"][0] == "8" for sample in samples]
    assert {True, False} == set(hung)
    assert [sample["reward"] for sample in samples] == [0.0 if h else 0.5 for h in hung]
    summary = json.loads((job.path / "run" / "summary.json").read_text())
    assert summary["reward_timeouts"] == sum(hung) + 1, "one of the four held-out prompts"
