"""From pydantic models to a Kubernetes structural schema.

Pydantic's JSON schema is close, but a CRD knows no `$ref`, no `anyOf` with null, no `additionalProperties: false`; it
has defaults, CEL rules and list types of its own. What the translation does not know, it refuses, so that a new kind of
field never reaches a cluster half translated.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from rljob_core.api import Document, RLJob, Rule
from rljob_core.api.spec import RLJobSpec
from rljob_core.api.status import RLJobStatus

RULES = "x-kubernetes-validations"
FREE_FORM = "x-kubernetes-preserve-unknown-fields"
FORMATS = {"integer": "int64", "number": "double"}
KEPT = ("description", "enum", "maxItems", "maxLength", "maxProperties", "required", RULES)
DROPPED = ("title",)
TRANSLATED = ("$ref", "additionalProperties", "anyOf", "default", "items", "properties", "type")
LIST_TYPES = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys")


class UnsupportedSchemaError(Exception):
    """A model uses something that a structural schema cannot say."""


@cache
def object_schema() -> dict[str, Any]:
    """openAPIV3Schema of a whole RLJob: metadata is the API server's own, the rules of its root are ours."""
    name = {"type": "string"}
    return {
        "description": f"{_sentence(RLJobSpec.__doc__ or '')} One run of one policy.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": structural(RLJobSpec),
            "status": _open(structural(RLJobStatus)),
        },
        RULES: [_rule(rule) for rule in RLJob.rules],
    }


def structural(model: type[Document]) -> dict[str, Any]:
    """Schema node of a model and all below it, with nothing left to look up."""
    root = model.model_json_schema(by_alias=True, schema_generator=_WithRules)
    definitions = root.pop("$defs", {})
    return _node(root, definitions, model.__name__)


def is_free_form(node: dict[str, Any]) -> bool:
    """Whether the node is a map of any keys with any values.

    Said of its values, not of the map: `==` in a rule compares keys that no schema knows only where both sides have
    them, so one of them could turn into another unseen.
    """
    return bool(node.get("additionalProperties", {}).get(FREE_FORM))


def _open(node: dict[str, Any]) -> dict[str, Any]:
    """Without enums, which move to the description: an operator newer than its CRD must be able to write a status."""
    out = {key: value for key, value in node.items() if key != "enum"}
    if "enum" in node:
        out["description"] = f"{node.get('description', '')} One of {', '.join(node['enum'])}.".strip()
    if "properties" in node:
        out["properties"] = {key: _open(child) for key, child in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            out[key] = _open(node[key])
    return out


class _WithRules(GenerateJsonSchema):
    """Pydantic's generator, and each model's CEL rules, and defaults that come from a factory."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        out = super().model_schema(schema)
        rules: tuple[Rule, ...] = schema["cls"].rules
        if rules:
            out[RULES] = [_rule(rule) for rule in rules]
        return out

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        factory = schema.get("default_factory")
        return factory() if factory is not None else super().get_default_value(schema)  # type: ignore[call-arg]


def _rule(rule: Rule) -> dict[str, Any]:
    """A message is an expression when it formats values, otherwise plain text."""
    out: dict[str, Any] = {"rule": rule.rule}
    out["messageExpression" if rule.message.startswith("'") else "message"] = rule.message
    if rule.field:
        out["fieldPath"] = rule.field
    return out


def _node(node: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    node = _without_null(_resolved(node, definitions), definitions, path)
    known = {*KEPT, *DROPPED, *TRANSLATED, *LIST_TYPES}
    if unknown := sorted(set(node) - known):
        raise UnsupportedSchemaError(f"{path}: {', '.join(unknown)}: no counterpart in a structural schema")
    if not isinstance(node.get("type"), str):
        raise UnsupportedSchemaError(f"{path}: a node needs one type, not {node.get('type')!r}")
    out: dict[str, Any] = {}
    if "description" in node:
        out["description"] = _sentence(node["description"])
    out["type"] = node["type"]
    if node["type"] in FORMATS:
        out["format"] = FORMATS[node["type"]]
    out |= {key: node[key] for key in (*KEPT, *LIST_TYPES) if key in node and key != "description"}
    if "properties" in node:
        out["properties"] = {
            key: _node(child, definitions, f"{path}.{key}") for key, child in node["properties"].items()
        }
    if "items" in node:
        out["items"] = _node(node["items"], definitions, f"{path}[]")
    match node.get("additionalProperties", False):
        case True:
            out["additionalProperties"] = {FREE_FORM: True}
        case dict() as child:
            out["additionalProperties"] = _node(child, definitions, f"{path}{{}}")
        case _:
            pass
    if "default" in node and not is_free_form(out):
        out["default"] = _nested_default(out, node["default"], path) if "properties" in out else node["default"]
    return out


def _nested_default(node: dict[str, Any], declared: dict[str, Any], path: str) -> dict[str, Any]:
    """Written out in full: the API server runs the rules of a default before it fills in what lies below it."""
    below = {key: child["default"] for key, child in node["properties"].items() if "default" in child}
    if any(declared[key] != value for key, value in below.items() if not is_free_form(node["properties"][key])):
        raise UnsupportedSchemaError(f"{path}: its default differs from the defaults of its fields")
    return below


def _resolved(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The node with its `$ref` replaced by what it names; the node's own description and default win."""
    if "$ref" not in node:
        return node
    target: dict[str, Any] = definitions[node["$ref"].removeprefix("#/$defs/")]
    return target | {key: value for key, value in node.items() if key != "$ref"}


def _without_null(node: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    """`X | None` with default None becomes an optional X: absent, never null."""
    if "anyOf" not in node:
        return node
    choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
    if len(choices) != 1 or len(node["anyOf"]) != 2 or node.get("default") is not None:
        raise UnsupportedSchemaError(f"{path}: a union; use sibling optional objects and a one-of rule")
    rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
    return _resolved(choices[0], definitions) | rest


def _sentence(text: str) -> str:
    return " ".join(text.split())
