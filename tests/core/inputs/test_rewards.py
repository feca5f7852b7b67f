"""Built-in rewards, by hand."""

from __future__ import annotations

import pytest

from rljob_core.errors import InvalidInputError
from rljob_core.inputs import exact_match, per_position, split_entry_point


@pytest.mark.parametrize(
    ("response", "wanted"),
    [("4321", 1.0), (" 4321\n", 1.0), ("432", 0.0), ("43210", 0.0), ("", 0.0)],
)
def test_exact_match(response: str, wanted: float) -> None:
    assert exact_match(response, "4321") == wanted


@pytest.mark.parametrize(
    ("response", "wanted"),
    [
        ("4321", 1.5),
        ("4399", 0.5),
        ("4", 0.25),
        ("", 0.0),
        pytest.param("43217", 0.8, id="overlong-costs"),
        pytest.param("3214", 0.0, id="shifted"),
        pytest.param("\N{REPLACEMENT CHARACTER}321", 0.75, id="a-special-token-keeps-its-place"),
    ],
)
def test_per_position(response: str, wanted: float) -> None:
    assert per_position(response, "4321", exact_bonus=0.5) == pytest.approx(wanted)


def test_an_empty_answer_is_right_when_nothing_is_said() -> None:
    assert per_position("", "") == 1.0


def test_entry_points() -> None:
    assert split_entry_point("a.b:score") == ("a.b", "score")


@pytest.mark.parametrize("wrong", ["a.b", "a.b:", ":f", "a b:f", "a:f.g", "a/b.py:f"])
def test_a_malformed_entry_point_names_its_field(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match=r"spec.reward.function.entryPoint: .*package.module:function"):
        split_entry_point(wrong)
