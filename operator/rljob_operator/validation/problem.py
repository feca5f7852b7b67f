"""What is wrong with an RLJob, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass

FieldPath = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One refusal. field: path as the API server writes it. message: the value, what is wrong, and the remedy.

    path: keys and indices of the nearest written field, for its line.
    """

    field: str
    message: str
    path: FieldPath = ()

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def dotted(path: FieldPath) -> str:
    """`spec.items[0].name`."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def undotted(field: str) -> FieldPath:
    """The path of `spec.items[0].labels[a/b]`."""
    parts = re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", field)
    return tuple(key or (int(index) if index.isdigit() else index) for key, index in parts)
