"""Prompt rows, and JSON lines text turned into them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from rljob_core.inputs.data_file import DataFile

DEEPEST = 100
"""Levels of lists and objects in a field."""
_INTEGERS = (-(1 << 63), (1 << 64) - 1)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class PromptRow:
    """One prompt with its reference answer.

    fields: further keys of the line, handed to the user's reward function. line: number in its file, 0 when generated.
    """

    prompt: str
    answer: str
    fields: dict[str, Any] = field(default_factory=dict)
    line: int = 0


def parse_json_lines(text: str, file: DataFile) -> list[PromptRow]:
    """One row a line that is not blank.

    Raises InvalidInputError naming the line: not JSON, not an object, a field missing or not text, an empty set.
    """
    rows = [_parse_line(line, number, file) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not rows:
        raise file.invalid("holds no prompt", "write one JSON object a line")
    return rows


def _parse_line(line: str, number: int, file: DataFile) -> PromptRow:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        problem = f"is not JSON ({error.msg} at column {error.colno}): {_short(line)}"
        raise file.invalid(problem, "write one JSON object a line", line=number) from error
    except (ValueError, RecursionError) as error:  # thousands of digits, or of brackets
        raise file.invalid(f"cannot be read ({error}): {_short(line)}", "write less of it", line=number) from error
    if not isinstance(value, dict):
        raise file.invalid(f"is not a JSON object: {_short(line)}", "write one JSON object a line", line=number)
    _check_carried(value, file, number)
    return PromptRow(
        prompt=_text(value, file.prompt_key, file, number, "promptField"),
        answer=_text(value, file.answer_key, file, number, "answerField"),
        fields={k: v for k, v in value.items() if k not in (file.prompt_key, file.answer_key)},
        line=number,
    )


def _check_carried(row: dict[str, Any], file: DataFile, number: int) -> None:
    """A row travels to the reward workers as msgpack, which has neither halves of characters nor longer integers."""
    waiting: list[tuple[str, Any, int]] = [(key, part, 1) for key, value in row.items() for part in (key, value)]
    while waiting:
        key, value, depth = waiting.pop()
        problem, remedy = "", ""
        if isinstance(value, dict):
            waiting += [(key, inner, depth + 1) for pair in value.items() for inner in pair]
        elif isinstance(value, list):
            waiting += [(key, inner, depth + 1) for inner in value]
        elif isinstance(value, str) and _SURROGATE.search(value):
            problem, remedy = "half of a surrogate pair", "write the whole character"
        elif isinstance(value, int) and not _INTEGERS[0] <= value <= _INTEGERS[1]:
            problem, remedy = "an integer of more than 64 bits", "write it as a JSON string"
        if depth > DEEPEST:
            problem, remedy = f"more than {DEEPEST} levels", "write it flatter, or as a JSON string"
        if problem:
            raise file.invalid(f"has {problem} in field {key!r}", remedy, line=number)


def _text(value: dict[str, Any], key: str, file: DataFile, number: int, setting: str) -> str:
    if key not in value:
        remedy = f"add it, or set {file.setting(setting)}"
        raise file.invalid(f"has no field {key!r} among {sorted(value)}", remedy, line=number)
    if not isinstance(value[key], str):
        problem = f"has a field {key!r} that is not text: {_short(json.dumps(value[key]))}"
        raise file.invalid(problem, "write it as a JSON string", line=number)
    text: str = value[key]
    return text


def _short(line: str) -> str:
    return line if len(line) <= 80 else line[:77] + "..."
