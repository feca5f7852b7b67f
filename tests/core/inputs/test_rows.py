"""JSON lines become prompts; what is wrong names its line."""

from __future__ import annotations

import pytest

from rljob_core.errors import InvalidInputError
from rljob_core.inputs import PromptRow, parse_json_lines


def test_further_keys_are_fields_and_blank_lines_are_skipped() -> None:
    text = '{"prompt": "1=", "answer": "1", "level": 3}\n\n  \n{"answer": "é", "prompt": "\\u2028="}\r\n'
    assert parse_json_lines(text, "d.jsonl") == [
        PromptRow(prompt="1=", answer="1", fields={"level": 3}, line=1),
        PromptRow(prompt="\u2028=", answer="é", line=4),
    ]


def test_the_field_names_are_the_users() -> None:
    rows = parse_json_lines('{"q": "1", "a": "2", "prompt": "x"}', "d", prompt_field="q", answer_field="a")
    assert rows == [PromptRow(prompt="1", answer="2", fields={"prompt": "x"}, line=1)]


GOOD = '{"prompt": "1", "answer": "2"}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(GOOD + "\n{bad", r"d\.jsonl line 3: '\{bad' is not JSON", id="not-json"),
        pytest.param(GOOD + "[1]", r"line 2: '\[1\]' is not a JSON object", id="not-an-object"),
        pytest.param('{"prompt": "1"}', r"line 1: \['prompt'\] has no field 'answer'; .*answerField", id="missing"),
        pytest.param('{"prompt": 7, "answer": "2"}', r"line 1 field 'prompt': 7 is not text", id="not-text"),
        pytest.param(" \n\n", r"d\.jsonl: '' holds no prompt", id="empty"),
    ],
)
def test_a_malformed_line_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parse_json_lines(text, "d.jsonl")
