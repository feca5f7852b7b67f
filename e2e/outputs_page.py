"""docs/outputs.md as tests read it: which keys, files and codes each section documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs/outputs.md"
_ROW = re.compile(r"^\| `?([\w./]+)`? \| (.+?) \|", re.MULTILINE)


def documented(section: str) -> dict[str, str]:
    """First column -> second column of the table below a heading."""
    _, heading, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    assert heading, f"{PAGE.name} has no section {section!r}"
    rows = _ROW.findall(rest.partition("\n## ")[0])
    return {key: meaning for key, meaning in rows if key not in ("key", "file", "code")}


def flat(summary: Mapping[str, Any]) -> set[str]:
    """Keys of a summary as its section writes them: `kv.puts`; `phase_seconds` has keys by role and stage."""
    keys = set()
    for key, value in summary.items():
        below = isinstance(value, dict) and key != "phase_seconds"
        keys |= {f"{key}.{name}" for name in value} if below else {key}
    return keys
