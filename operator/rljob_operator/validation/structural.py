"""What the API server does to an object before any rule runs: unknown fields, nulls, defaults, types, sizes.

Order and verdicts follow k8s.io/apiextensions-apiserver: unknown fields end the request at once (strict decoding);
then nulls of known fields are dropped and defaults filled in; a missing, mistyped or oversized field, or a value
outside its enum, blocks the rules.
"""

from __future__ import annotations

import copy
import difflib
from dataclasses import dataclass, field
from typing import Any

from rljob_operator.crd.schema import FREE_FORM
from rljob_operator.validation.problem import FieldPath, Problem, dotted
from rljob_operator.yaml_loader import INT64, AmbiguousWord

Schema = dict[str, Any]
_TYPE_NAMES = {dict: "a map", list: "a list", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}
_WANTED = {
    "object": "a map",
    "array": "a list",
    "string": "a string",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
}
_METADATA = frozenset(
    {"annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"}
    | {"generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"}
    | {"resourceVersion", "selfLink", "uid"}
)
_ROOT_METADATA: FieldPath = ("metadata",)


@dataclass
class Findings:
    """blocking: rules must not run, since what they read is missing or wrong in itself."""

    problems: list[Problem] = field(default_factory=list)
    blocking: bool = False

    def add(self, path: FieldPath, message: str, *, blocks: bool = False) -> None:
        self.problems.append(Problem(field=dotted(path), message=message, path=path))
        self.blocking |= blocks


def unknown_fields(value: Any, schema: Schema, path: FieldPath = ()) -> list[Problem]:
    """Every key the schema does not have, nearest known name beside it."""
    if path == _ROOT_METADATA:
        schema = {"properties": {name: {FREE_FORM: True} for name in sorted(_METADATA)}}
    if schema.get(FREE_FORM):
        return []
    if isinstance(value, list) and "items" in schema:
        return [p for i, item in enumerate(value) for p in unknown_fields(item, schema["items"], (*path, i))]
    if not isinstance(value, dict):
        return []
    found = []
    for key, child in value.items():
        if "additionalProperties" in schema:
            found += unknown_fields(child, schema["additionalProperties"], (*path, key))
        elif key in schema.get("properties", {}):
            found += unknown_fields(child, schema["properties"][key], (*path, key))
        else:
            found.append(_unknown(key, list(schema.get("properties", {})), (*path, key)))
    return found


def _unknown(key: str, known: list[str], path: FieldPath) -> Problem:
    near = difflib.get_close_matches(key, known, 1, 0.6)
    remedy = f"write {near[0]}" if near else f"use one of {', '.join(known)}"
    return Problem(field=dotted(path), message=f"is not a field; {remedy}", path=path)


def with_defaults(value: Any, schema: Schema) -> Any:
    """A copy with nulls of known fields dropped, and defaults filled in, level by level."""
    if schema.get(FREE_FORM):
        return copy.deepcopy(value)
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    out = {key: child for key, child in value.items() if child is not None}
    out |= {
        key: copy.deepcopy(child["default"]) for key, child in known.items() if "default" in child and key not in out
    }
    below = schema.get("additionalProperties", {})
    return {key: with_defaults(child, known.get(key, below)) for key, child in out.items()}


def typed(value: Any, schema: Schema, findings: Findings, path: FieldPath = ()) -> Any:
    """The value with numbers in the type of their field; what is missing, mistyped or oversized goes to findings."""
    wanted = schema.get("type")
    value = _coerced(value, wanted)
    if wanted is not None and not _is(value, wanted):
        findings.add(path, _mistyped(value, wanted), blocks=True)
        return value
    _check_sizes(value, schema, findings, path)
    if "enum" in schema and value not in schema["enum"]:
        findings.add(path, f"is {value!r}; use one of {', '.join(schema['enum'])}", blocks=True)
    if isinstance(value, list) and "items" in schema:
        return [typed(item, schema["items"], findings, (*path, i)) for i, item in enumerate(value)]
    if isinstance(value, dict) and not schema.get(FREE_FORM):
        return _typed_map(value, schema, findings, path)
    return value


def _typed_map(value: dict[str, Any], schema: Schema, findings: Findings, path: FieldPath) -> dict[str, Any]:
    for key in schema.get("required", ()):
        if key not in value:
            meaning = schema["properties"][key].get("description", "")
            findings.add((*path, key), f"is required, but absent; {meaning or 'set it'}", blocks=True)
    known, below = schema.get("properties", {}), schema.get("additionalProperties", {})
    return {key: typed(child, known.get(key, below), findings, (*path, key)) for key, child in value.items()}


def _coerced(value: Any, wanted: str | None) -> Any:
    """Numbers and kubectl's booleans in the type their field asks for, where that loses nothing."""
    if isinstance(value, AmbiguousWord):
        return value.boolean if wanted == "boolean" else value
    if isinstance(value, bool):
        return value
    if wanted == "number" and isinstance(value, int):
        return float(value)
    if wanted == "integer" and isinstance(value, float) and value.is_integer() and int(value) in INT64:
        return int(value)
    return value


def _is(value: Any, wanted: str) -> bool:
    if isinstance(value, AmbiguousWord) or (wanted == "integer" and isinstance(value, int) and value not in INT64):
        return False
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": float}
    return isinstance(value, kinds[wanted]) and not (isinstance(value, bool) and wanted != "boolean")


def _mistyped(value: Any, wanted: str) -> str:
    if isinstance(value, AmbiguousWord):
        return f"is {value}, a boolean to kubectl; write it in quotes"
    if wanted == "integer" and isinstance(value, int) and not isinstance(value, bool):
        return f"is {value}, beyond 64 bits; write a smaller integer"
    return f"is {value!r}, {_TYPE_NAMES.get(type(value), 'of another type')}; write {_WANTED[wanted]}"


def _check_sizes(value: Any, schema: Schema, findings: Findings, path: FieldPath) -> None:
    for keyword, kind, what in (
        ("maxLength", str, "characters"),
        ("maxItems", list, "items"),
        ("maxProperties", dict, "keys"),
    ):
        limit = schema.get(keyword)
        if limit is not None and isinstance(value, kind) and len(value) > limit:
            findings.add(path, f"has {len(value)} {what}; at most {limit} are allowed", blocks=True)
