"""JSON lines become prompts; what is wrong names its line."""

from __future__ import annotations

import json

import msgpack
import pytest

from rljob_core.errors import InvalidInputError
from rljob_core.inputs import DataFile, PromptRow, parse_json_lines

FILE = DataFile(path="/d.jsonl", field="spec.evaluation.jsonLines.path")


def test_further_keys_are_fields_and_blank_lines_are_skipped() -> None:
    text = '{"prompt": "1=", "answer": "1", "level": 3}\n\n  \n{"answer": "é", "prompt": "\\u2028="}\r\n'
    assert parse_json_lines(text, FILE) == [
        PromptRow(prompt="1=", answer="1", fields={"level": 3}, line=1),
        PromptRow(prompt="\u2028=", answer="é", line=4),
    ]


def test_the_field_names_are_the_users() -> None:
    file = DataFile(path="d", field="spec.data.configMap.key", prompt_key="q", answer_key="a")
    rows = parse_json_lines('{"q": "1", "a": "2", "prompt": "x"}', file)
    assert rows == [PromptRow(prompt="1", answer="2", fields={"prompt": "x"}, line=1)]


def test_whatever_msgpack_carries_is_a_field() -> None:
    fields = {
        "least": -(1 << 63),
        "most": (1 << 64) - 1,
        "share": 0.5,
        "none": None,
        "pair": "\U0001f600",
        "all": [[True]],
    }
    assert msgpack.unpackb(msgpack.packb(fields)) == fields
    (row,) = parse_json_lines(json.dumps({"prompt": "1", "answer": "2", **fields}), FILE)
    assert row.fields == fields


GOOD = '{"prompt": "1", "answer": "2"}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(GOOD + "\n{bad", r"line 3 is not JSON \(.* at column 2\): \{bad; write one", id="not-json"),
        pytest.param(GOOD + "[1]", r"line 2 is not a JSON object: \[1\]; write one", id="not-an-object"),
        pytest.param(
            '{"prompt": "1"}',
            r"line 1 has no field 'answer' among \['prompt'\]; add it, or set spec\.evaluation\.jsonLines\.answerField",
            id="missing",
        ),
        pytest.param(
            '{"prompt": 7, "answer": "2"}', r"line 1 has a field 'prompt' that is not text: 7; write it", id="not-text"
        ),
        pytest.param(
            GOOD + '{"prompt": "1", "answer": "\\ud83d"}',
            r"line 2 has half of a surrogate pair in field 'answer'; write the whole character",
            id="half-a-character",
        ),
        pytest.param(
            '{"prompt": "1", "answer": "2", "tests": [{"want": 18446744073709551616}]}',
            r"line 1 has an integer of more than 64 bits in field 'tests'; write it as a JSON string",
            id="long-integer",
        ),
        pytest.param(
            f'{{"prompt": "1", "answer": "2", "n": {"1" * 5000}}}',
            r'line 1 cannot be read \(.* 5000 digits.*\): \{"prompt"',
            id="very-long-integer",
        ),
        pytest.param(
            f'{{"prompt": "1", "answer": "2", "n": {"[" * 101}{"]" * 101}}}',
            r"line 1 has more than 100 levels in field 'n'; write it flatter",
            id="deep",
        ),
        pytest.param(
            f'{{"prompt": "1", "answer": "2", "n": {"[" * 100_000}{"]" * 100_000}}}',
            r"line 1 cannot be read \(maximum recursion depth exceeded.*\): ",
            id="very-deep",
        ),
        pytest.param(" \n\n", r"holds no prompt; write one", id="empty"),
    ],
)
def test_a_malformed_line_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"^spec\.evaluation\.jsonLines\.path: '/d\.jsonl' {message}"):
        parse_json_lines(text, FILE)
