"""Each rule and each step of admission, over tests/samples/rules.yaml, accepted and refused with the field named."""

import copy
from pathlib import Path
from typing import Any

import pytest

from rljob_operator.validation import admit
from rljob_operator.yaml_loader import load_file

TABLE = load_file(Path(__file__).parents[1] / "samples" / "rules.yaml")[0].body


def patched(changes: dict[str, Any]) -> dict[str, Any]:
    """The base object with dotted fields set; a missing parent is made."""
    body = copy.deepcopy(TABLE["base"])
    for path, value in changes.items():
        *parents, last = path.split(".")
        node = body
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    return body


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: ",".join(f"{k}={v}" for k, v in case["set"].items()))
def test_verdict_and_field(case: dict[str, Any]) -> None:
    problems = admit(patched(case["set"])).problems
    assert sorted(p.field for p in problems) == sorted(case.get("refused", [])), [str(p) for p in problems]
