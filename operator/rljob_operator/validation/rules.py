"""The CRD's CEL rules, evaluated without an API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import cel

from rljob_operator.crd.schema import FREE_FORM, RULES
from rljob_operator.validation.problem import FieldPath, Problem, dotted

OLD_SELF = "oldSelf"
_VERB = re.compile(r"%(.)")


def broken_rules(value: Any, schema: dict[str, Any], path: FieldPath = ()) -> Iterator[Problem]:
    """Every rule of the node and of all below it that a new object does not keep. value: defaults applied, types
    right."""
    if schema.get(FREE_FORM):
        return
    for rule in schema.get(RULES, ()):
        if is_transition(rule["rule"]):
            continue  # as in a create request: nothing was there before
        problem = _broken(rule, value, path)
        if problem is not None:
            yield problem
    if isinstance(value, dict):
        known, below = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key, child in value.items():
            yield from broken_rules(child, known.get(key, below), (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from broken_rules(item, schema.get("items", {}), (*path, i))


def is_transition(expression: str) -> bool:
    """Whether a rule compares with what was there before: the API server runs it on updates alone."""
    return OLD_SELF in _compiled(expression).variables()


def _broken(rule: dict[str, Any], value: Any, path: FieldPath) -> Problem | None:
    try:
        if evaluate(rule["rule"], value) is True:
            return None
    except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
        # As on the API server: a rule that cannot be evaluated refuses the object at its own node.
        return Problem(field=dotted(path), message=f"{error} evaluating rule: {rule['rule']}", path=path)
    message = rule["message"] if "message" in rule else evaluate(rule["messageExpression"], value)
    where = (*path, *rule.get("fieldPath", "").split(".")[1:])
    return Problem(field=dotted(where), message=message, path=where)


def evaluate(expression: str, value: Any) -> Any:
    """A CEL expression over `self`, with the API server's string function `format`."""
    context = cel.Context(variables={"self": value}, functions={"format": format_string})
    return _compiled(expression).execute(context)


@cache
def _compiled(expression: str) -> cel.Program:
    return cel.compile(expression)


def format_string(template: str, values: list[Any]) -> str:
    """`template.format(values)` of the Kubernetes CEL library: %d for integers, %s for anything, %% for itself."""
    remaining = iter(values)

    def replace(match: re.Match[str]) -> str:
        match match[1]:
            case "%":
                return "%"
            case "d":
                return str(int(next(remaining)))
            case "s":
                return _text(next(remaining))
            case verb:
                raise ValueError(f"format verb %{verb} is not one of %d, %s, %%")

    return _VERB.sub(replace, template)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
