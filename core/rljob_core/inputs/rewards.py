"""Built-in rewards, one formula per function."""

from __future__ import annotations

from rljob_core.errors import InvalidInputError

ENTRY_POINT_FIELD = "spec.reward.function.entryPoint"


def exact_match(response: str, answer: str) -> float:
    """1 when the response equals the answer, blanks at both ends aside, else 0."""
    return float(response.strip() == answer.strip())


def per_position(response: str, answer: str, exact_bonus: float = 0.0) -> float:
    """Share of positions that are right, over the longer of response and answer, plus the bonus when all are.

    Counting the longer one makes an overlong response cost something: without it nothing would teach the end.
    """
    response, answer = response.strip(), answer.strip()
    positions = max(len(response), len(answer))
    if positions == 0:
        return 1.0 + exact_bonus
    right = sum(r == a for r, a in zip(response, answer, strict=False))
    return right / positions + (exact_bonus if response == answer else 0.0)


def split_entry_point(entry_point: str) -> tuple[str, str]:
    """`package.module:function` -> (module, function); InvalidInputError when it has another form."""
    module, colon, function = entry_point.partition(":")
    if not colon or not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InvalidInputError(
            ENTRY_POINT_FIELD,
            entry_point,
            "is not of the form package.module:function",
            "name an importable module and a function of it",
        )
    return module, function
