"""Prompt rows, and JSON lines text turned into them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from rljob_core.inputs.data_file import DataFile


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
    if not isinstance(value, dict):
        raise file.invalid(f"is not a JSON object: {_short(line)}", "write one JSON object a line", line=number)
    return PromptRow(
        prompt=_text(value, file.prompt_key, file, number, "promptField"),
        answer=_text(value, file.answer_key, file, number, "answerField"),
        fields={k: v for k, v in value.items() if k not in (file.prompt_key, file.answer_key)},
        line=number,
    )


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
