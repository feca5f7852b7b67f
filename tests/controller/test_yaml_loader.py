"""Scalars as kubectl reads them (each value below was read by kubectl 1.32), keys once, lines known."""

from pathlib import Path
from typing import Any

import pytest

from rljob_core.errors import InvalidInputError
from rljob_operator.yaml_loader import AmbiguousWord, load_file, load_text


def loaded(text: str) -> Any:
    return load_text(f"a: {text}\n")[0].body["a"]


NUMBERS = {
    "1e-3": 0.001, "1e3": 1000, "1E5": 100000, "1.0": 1, "1.": 1, ".5": 0.5, "-.5": -0.5, "+1": 1, "-0": 0,
    "017": 15, "0o17": 15, "0O17": 15, "-017": -15, "08": 8, "09.5": 9.5, "0x1F": 31, "0X1f": 31, "-0x10": -16,
    "0b11": 3, "-0b11": -3, "1_000": 1000, "1_0.5": 10.5, "1e5_0": 1e50, "00": 0, "1e-7": 1e-7, "1e20": 10**20,
    "1e21": 1e21, "9223372036854775807": 2**63 - 1, "9223372036854775808": 2.0**63, "!!int '5'": 5, "!!float 5": 5,
}  # fmt: skip
STRINGS = [
    *("12:30:45", "1:20", "2024-01-01", "2024-01-01T00:00:00Z", "=", "_1", "0b2", "0o8", "0xg", "0x", "1e", "1..2"),
    *("1e400", "YeS", "oN", "tRue", "nUll", ".", "+", "a#b", "0x1p-2", "+.inf2"),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_numbers(text: str, value: float) -> None:
    assert (loaded(text), type(loaded(text))) == (value, type(value))


@pytest.mark.parametrize("text", STRINGS)
def test_strings(text: str) -> None:
    assert loaded(text) == text


@pytest.mark.parametrize("text", ["Off", "on", "yes", "No", "y", "N", "OFF"])
def test_a_word_that_kubectl_and_kustomize_read_differently_stays_a_string(text: str) -> None:
    value = loaded(text)
    assert value == text
    assert isinstance(value, AmbiguousWord)
    assert value.boolean is (text.lower() in {"on", "yes", "y"})
    assert not isinstance(loaded(f'"{text}"'), AmbiguousWord)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("TRUE", True), ("False", False), ("!!bool 'yes'", True),
        ("", None), ("~", None), ("null", None), ("NULL", None), ("!!null ''", None),
        ("'1'", "1"), ('"a\\x41"', "aA"), ("!!str 5", "5"), ("!foo bar", "bar"), ("!!binary aGVsbG8=", "hello"),
        ("!!timestamp 2001-01-01", "2001-01-01"), ("|\n  x\n  y\n", "x\ny\n"), ("[1, a, 1e-3]", [1, "a", 0.001]),
    ],
)  # fmt: skip
def test_other_values(text: str, value: object) -> None:
    assert loaded(text) == value


def test_keys_are_strings() -> None:
    assert load_text("1: a\ntrue: b\n1.5: c\non: d\n")[0].body == {"1": "a", "true": "b", "1.5": "c", "on": "d"}


def test_anchors_and_merges() -> None:
    text = "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {<<: [{x: 9}, *b]}\n"
    body = load_text(text)[0].body
    assert body["one"] == {"x": 1, "y": 3}
    assert body["two"] == {"x": 9, "y": 2}


def test_documents_of_a_stream_without_the_empty_ones() -> None:
    documents = load_text("---\n# nothing\n---\na: 1\n---\n---\nb: 2\n...\n")
    assert [(d.body, d.line) for d in documents] == [({"a": 1}, 4), ({"b": 2}, 7)]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbfkind: RLJob\n")
    assert load_file(path)[0].body == {"kind": "RLJob"}


def test_lines_of_fields_and_of_fields_that_are_not_written() -> None:
    document = load_text("a:\n  b:\n    - c: 1\n    - d: 2\n")[0]
    assert document.line_of(("a", "b", 1, "d")) == 4
    assert document.line_of(("a", "b", 1, "absent", "deeper")) == 4
    assert document.line_of(("nowhere",)) == 1


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "job.yaml:3", "appears twice"),
        ("a:\n  b: 1\n  'b': 2\n", "job.yaml:3", "appears twice"),
        ("a: .inf\n", "job.yaml:1", "JSON"),
        ("a: !!float .NaN\n", "job.yaml:1", "JSON"),
        ("a: !!int 1.5\n", "job.yaml:1", "not of type int"),
        ("a: !!binary '///'\n", "job.yaml:1", "base64"),
        ("~: 1\n", "job.yaml:1", "key"),
        ("? [a]\n: 1\n", "job.yaml:1", "key"),
        ("a: 1\n\tb: 2\n", "job.yaml:2", "token"),
        ("a: [1\n", "job.yaml:2", "expected"),
        ("a: *nowhere\n", "job.yaml:1", "undefined alias"),
        ("a: &x [*x]\n", "job.yaml:1", "itself"),
        ("a: {<<: 5}\n", "job.yaml:1", "merged"),
        ("- a\n", "job.yaml:1", "not an object"),
        ("just text\n", "job.yaml:1", "not an object"),
        ("a: \x07\n", "job.yaml", "special characters"),
        ("a: " + "[" * 2_000, "job.yaml", "nested too deeply"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"{k}: &{k} [{','.join(10 * [f'*{j}'])}]\n" for j, k in zip("abcde", "bcdef", strict=True)),
            "job.yaml:1",
            "over 100000 values",
        ),
    ],
)
def test_what_is_refused_and_where(text: str, field: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        load_text(text, "job.yaml")
    assert caught.value.field == field


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_file(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_file(tmp_path / "latin.yaml")
