"""How a response becomes a reward: the built-in rewards, or the user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rljob_core.api.inputs import Reward
from rljob_core.inputs import exact_match, per_position
from rljob_workers.reward.function import FunctionProcess


@dataclass(frozen=True, kw_only=True)
class Scored:
    """reward: 0 when the deadline passed."""

    reward: float
    timed_out: bool = False


class Scorer(Protocol):
    def score(self, prompt: str, response: str, answer: str, fields: Mapping[str, Any]) -> Scored:
        """Raises InvalidInputError when the user's function fails or returns no number."""
        ...

    def close(self) -> None: ...


class FormulaScorer:
    """A built-in reward: immediate, never fails."""

    def __init__(self, formula: Callable[[str, str], float]) -> None:
        self._formula = formula

    def score(self, prompt: str, response: str, answer: str, fields: Mapping[str, Any]) -> Scored:
        return Scored(reward=self._formula(response, answer))

    def close(self) -> None:
        """Nothing is held."""


class FunctionScorer:
    """The user's function behind a deadline."""

    def __init__(self, process: FunctionProcess) -> None:
        self._process = process

    def score(self, prompt: str, response: str, answer: str, fields: Mapping[str, Any]) -> Scored:
        value = self._process.call(prompt, response, answer, dict(fields))
        return Scored(reward=0.0, timed_out=True) if value is None else Scored(reward=value)

    def close(self) -> None:
        self._process.close()


def open_scorer(reward: Reward) -> Scorer:
    """The scorer a spec asks for. InvalidInputError when the user's function cannot be imported."""
    if reward.function is not None:
        return FunctionScorer(FunctionProcess(reward.function.entry_point, reward.function.timeout_seconds))
    if reward.per_position is not None:
        bonus = reward.per_position.exact_bonus
        return FormulaScorer(lambda response, answer: per_position(response, answer, bonus))
    return FormulaScorer(exact_match)
