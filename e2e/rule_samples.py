"""The tables below tests/samples that tests with an API server share with unit tests."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from rljob_operator.yaml_loader import load_file

SAMPLES = Path(__file__).resolve().parents[1] / "tests/samples"
TABLE: dict[str, Any] = load_file(SAMPLES / "rules.yaml")[0].body
"""`base`, and `cases` of new objects."""
CHANGES: list[dict[str, Any]] = load_file(SAMPLES / "changes.yaml")[0].body["cases"]
"""Updates of `base`."""


def patched(changes: dict[str, Any], base: dict[str, Any] = TABLE["base"]) -> dict[str, Any]:
    """A copy of base with dotted fields set; a missing parent is made."""
    body: dict[str, Any] = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        node = body
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    return body
