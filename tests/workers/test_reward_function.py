"""The user's reward function: its results, its failures, and a call that hangs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from rljob_core.api.inputs import Reward
from rljob_core.errors import InvalidInputError
from rljob_workers.reward.function import FunctionProcess
from rljob_workers.reward.scorer import Scored, open_scorer

pytestmark = pytest.mark.processes

MODULE = '''
import time, os
import numpy
calls = 0
def share(prompt, response, answer, fields):
    """A float."""
    global calls
    calls += 1
    return (response == answer) + fields.get("bonus", 0)
def count(prompt, response, answer, fields): share(prompt, response, answer, fields); return calls
def hang(prompt, response, answer, fields):
    while response == "hang": time.sleep(0.01)
    return numpy.float32(0.5)
def raises(*a): raise KeyError("no such thing")
def text(*a): return "1.0"
def nothing(*a): return None
def nan(*a): return float("nan")
def dies(*a): os._exit(3)
async def later(*a): return 1.0
number = 3
'''


@pytest.fixture(scope="module", autouse=True)
def user_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("user")
    (folder / "user_reward.py").write_text(MODULE)
    (folder / "user_broken.py").write_text("import not_installed_anywhere")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


def test_the_function_gets_everything_and_its_process_lives_on() -> None:
    process = FunctionProcess("user_reward:share", 10.0)
    try:
        assert process.call("p", "a", "a", {"bonus": 0.25}) == 1.25
        assert process.call("p", "b", "a", {}) == 0.0
    finally:
        process.close()
    counting = FunctionProcess("user_reward:count", 10.0)
    try:
        assert [counting.call("p", "a", "a", {}) for _ in range(3)] == [1.0, 2.0, 3.0]
    finally:
        counting.close()


def test_41_a_call_that_hangs_scores_0_and_is_marked_and_the_next_one_is_served() -> None:
    scorer = open_scorer(Reward.model_validate({"function": {"entryPoint": "user_reward:hang", "timeoutSeconds": 0.2}}))
    try:
        assert scorer.score("p", "hang", "a", {}) == Scored(reward=0.0, timed_out=True)
        assert scorer.score("p", "fine", "a", {}) == Scored(reward=0.5)
    finally:
        scorer.close()


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("text", "returned a str"),
        ("nothing", "returned a NoneType"),
        ("nan", "returned nan"),
        ("dies", "ended its process with exit code 3"),
        pytest.param(
            "later", "returned a coroutine", marks=pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
        ),
    ],
)
def test_a_failing_function_ends_the_job_in_its_own_words(function: str, problem: str) -> None:
    process = FunctionProcess(f"user_reward:{function}", 10.0)
    try:
        with pytest.raises(InvalidInputError, match=rf"entryPoint: 'user_reward:{function}' {problem}; it must be f\("):
            process.call("p", "r", "a", {})
    finally:
        process.close()


def test_an_exception_ends_the_job_and_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    process = FunctionProcess("user_reward:raises", 10.0)
    line = 1 + MODULE.splitlines().index('def raises(*a): raise KeyError("no such thing")')
    words = rf"'user_reward:raises' raised KeyError: 'no such thing' \(user_reward.py, line {line}\); correct it"
    try:
        with pytest.raises(InvalidInputError, match=words):
            process.call("p", "r", "a", {})
    finally:
        process.close()
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("entry_point", "problem"),
    [
        ("user_missing:f", "ModuleNotFoundError: No module named 'user_missing'"),
        ("user_broken:f", "No module named 'not_installed_anywhere'"),
        ("user_reward:missing", "AttributeError"),
        ("user_reward:number", "number is a int, not a function"),
    ],
)
def test_what_cannot_be_imported_is_invalid_input(entry_point: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"cannot be imported \(.*{problem}"):
        FunctionProcess(entry_point, 1.0)


def test_a_malformed_entry_point_starts_nothing() -> None:
    with pytest.raises(InvalidInputError, match=r"package\.module:function"):
        FunctionProcess("user_reward", 1.0)
