"""Each rule and each step of admission, accepted and refused with the field named.

A new object: tests/samples/rules.yaml. An update: tests/samples/changes.yaml, by the transition rules alone.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cel
import pytest

from rljob_core.api.changes import FIXED
from rljob_operator.crd import object_schema
from rljob_operator.crd.schema import RULES
from rljob_operator.validation import admit
from rljob_operator.validation.rules import OLD_SELF, broken_rules, evaluate, is_transition
from rljob_operator.yaml_loader import load_file

SAMPLES = Path(__file__).parents[1] / "samples"
TABLE = load_file(SAMPLES / "rules.yaml")[0].body
CHANGES = load_file(SAMPLES / "changes.yaml")[0].body["cases"]
Rule = tuple[str, str]
"""Path of its schema node, and the expression: classes that two groups share have each rule twice."""


def patched(changes: dict[str, Any], base: dict[str, Any] = TABLE["base"]) -> dict[str, Any]:
    """A copy of base with dotted fields set; a missing parent is made."""
    body = copy.deepcopy(base)
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
    every = {(path, rule) for path, node in schema_nodes(schema) for rule in of_new_objects(node)}
    verdicts: dict[bool, set[Rule]] = {True: set(), False: set()}
    for case in TABLE["cases"]:
        admission = admit(patched(case["set"]))
        if list(broken_rules(admission.body, schema)) == list(admission.problems):  # it got as far as the rules
            for path, node, value in visited(schema, admission.body):
                for rule in of_new_objects(node):
                    verdicts[evaluate(rule, value)].add((path, rule))
    assert every - verdicts[False] == set(), "no case breaks these"
    assert every - verdicts[True] == set(), "no case keeps these"


def of_new_objects(node: dict[str, Any]) -> list[str]:
    return [rule["rule"] for rule in node.get(RULES, ()) if not is_transition(rule["rule"])]


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: f"{case.get('from', '')}->{case['to']}")
def test_an_update_is_refused_where_a_transition_rule_says_so(case: dict[str, Any]) -> None:
    old, new = before_and_after(case)
    broken = {f"spec{rule.field}" for rule in FIXED if not holds(rule.rule, old, new)}
    others = {problem.field for problem in admit(patched(case["to"], patched(case.get("from", {})))).problems}
    assert broken | others == set(case.get("refused", ()))


def test_every_transition_rule_is_refused_and_accepted_by_some_change() -> None:
    pairs = [before_and_after(case) for case in CHANGES]
    for rule in FIXED:
        assert {holds(rule.rule, old, new) for old, new in pairs} == {True, False}, rule.field


def test_all_of_a_spec_but_retries_and_the_deadline_is_fixed() -> None:
    """So is a group or a lifecycle field that comes later, until someone decides."""
    spec = object_schema()["properties"]["spec"]
    groups = {f".{group}" for group in spec["properties"]}
    lifecycle = {f".lifecycle.{field}" for field in spec["properties"]["lifecycle"]["properties"]}
    free = (groups - {".lifecycle"} | lifecycle) - {rule.field for rule in FIXED}
    assert free == {".lifecycle.backoffLimit", ".lifecycle.activeDeadlineSeconds"}


def before_and_after(case: dict[str, Any]) -> tuple[Any, Any]:
    """Both specs as the API server has them: nulls dropped, defaults applied, numbers in the type of their field."""
    old = patched(case.get("from", {}))
    assert not admit(old).problems
    return admit(old).body["spec"], admit(patched(case["to"], old)).body["spec"]


def holds(expression: str, old: Any, new: Any) -> bool:
    verdict = cel.compile(expression).execute(cel.Context(variables={"self": new, OLD_SELF: old}))
    assert isinstance(verdict, bool)
    return verdict


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
