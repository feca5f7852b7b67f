"""Each rule and each step of admission, over tests/samples/rules.yaml, accepted and refused with the field named."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rljob_operator.crd import object_schema
from rljob_operator.crd.schema import RULES
from rljob_operator.validation import admit
from rljob_operator.validation.rules import broken_rules, evaluate
from rljob_operator.yaml_loader import load_file

TABLE = load_file(Path(__file__).parents[1] / "samples" / "rules.yaml")[0].body
Rule = tuple[str, str]
"""Path of its schema node, and the expression: classes that two groups share have each rule twice."""


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


def test_every_rule_is_refused_and_accepted_by_some_case() -> None:
    schema = object_schema()
    every = {(path, rule["rule"]) for path, node in schema_nodes(schema) for rule in node.get(RULES, ())}
    verdicts: dict[bool, set[Rule]] = {True: set(), False: set()}
    for case in TABLE["cases"]:
        admission = admit(patched(case["set"]))
        if list(broken_rules(admission.body, schema)) == list(admission.problems):  # it got as far as the rules
            for path, node, value in visited(schema, admission.body):
                for rule in node.get(RULES, ()):
                    verdicts[evaluate(rule["rule"], value)].add((path, rule["rule"]))
    assert every - verdicts[False] == set(), "no case breaks these"
    assert every - verdicts[True] == set(), "no case keeps these"


def schema_nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node with its path."""
    yield path, node
    for key, child in node.get("properties", {}).items():
        yield from schema_nodes(child, f"{path}.{key}")


def visited(node: dict[str, Any], value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Schema nodes that an object has a value for: rules stand on those alone."""
    yield path, node, value
    for key, child in node.get("properties", {}).items():
        if isinstance(value, dict) and key in value:
            yield from visited(child, value[key], f"{path}.{key}")
