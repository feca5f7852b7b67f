"""Prompt rows, and JSON lines text turned into them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from rljob_core.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class PromptRow:
    """One prompt with its reference answer.

    fields: further keys of the line, handed to the user's reward function. line: number in its file, 0 when generated.
    """

    prompt: str
    answer: str
    fields: dict[str, Any] = field(default_factory=dict)
    line: int = 0


def parse_json_lines(
    text: str, source: str, *, prompt_field: str = "prompt", answer_field: str = "answer"
) -> list[PromptRow]:
    """One row a line that is not blank. source: name used in errors.

    Raises InvalidInputError naming the line: not JSON, not an object, a field missing or not text, an empty set.
    """
    rows = [
        _parse_line(line, f"{source} line {number}", number, prompt_field, answer_field)
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise InvalidInputError(source, "", "holds no prompt", "write one JSON object a line")
    return rows


def _parse_line(line: str, where: str, number: int, prompt_field: str, answer_field: str) -> PromptRow:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            where, _short(line), f"is not JSON ({error.msg} at column {error.colno})", "write one JSON object a line"
        ) from error
    if not isinstance(value, dict):
        raise InvalidInputError(where, _short(line), "is not a JSON object", "write one JSON object a line")
    return PromptRow(
        prompt=_text(value, prompt_field, where, "promptField"),
        answer=_text(value, answer_field, where, "answerField"),
        fields={k: v for k, v in value.items() if k not in (prompt_field, answer_field)},
        line=number,
    )


def _text(value: dict[str, Any], key: str, where: str, setting: str) -> str:
    if key not in value:
        raise InvalidInputError(where, sorted(value), f"has no field {key!r}", f"add it, or set {setting}")
    if not isinstance(value[key], str):
        raise InvalidInputError(f"{where} field {key!r}", value[key], "is not text", "write it as a JSON string")
    text: str = value[key]
    return text


def _short(line: str) -> str:
    return line if len(line) <= 80 else line[:77] + "..."
