"""docs/reference.md: every field of an RLJob, its type, default and meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rljob_operator.crd.schema import RULES, is_free_form, object_schema

HEADER = """# RLJob reference

Generated from the models by `rljob reference`. Types: an `object` has a heading of its own; a `map` keeps any keys.
A field without default is optional when it is not marked *required*. "Refused" lists what the CEL rules of the CRD say,
to the API server and to `rljob validate` alike; values stand for the dots. What "cannot change on an existing RLJob" is
refused by the API server alone: a file has nothing before it.
"""


def reference() -> str:
    """The whole page."""
    schema = object_schema()
    parts = [HEADER]
    for name in ("spec", "status"):
        for path, node in _objects(name, schema["properties"][name]):
            parts.append(_section(path, node))
    return "\n".join(parts)


def _objects(path: str, node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The node and every object below it, parents first."""
    yield path, node
    for key, child in node["properties"].items():
        for suffix, inner in (("", child), ("[]", child.get("items")), (".<key>", child.get("additionalProperties"))):
            if inner and "properties" in inner:
                yield from _objects(f"{path}.{key}{suffix}", inner)


def _section(path: str, node: dict[str, Any]) -> str:
    required = node.get("required", [])
    lines = [f"## {path}", "", node.get("description", ""), ""]
    lines += ["| field | type | default | meaning |", "|---|---|---|---|"]
    lines += [_row(path, key, child, key in required) for key, child in node["properties"].items()]
    if RULES in node:
        lines += ["", "Refused:", *(f"- {_refusal(rule)}" for rule in node[RULES])]
    return "\n".join([*lines, ""])


def _refusal(rule: dict[str, str]) -> str:
    """A rule's message with dots for its values."""
    template = rule.get("message") or rule["messageExpression"].split("'.format(")[0].removeprefix("'")
    return re.sub("%[ds]", "…", template)


def _row(path: str, key: str, node: dict[str, Any], required: bool) -> str:
    default = "*required*" if required else ""
    if "default" in node and "properties" not in node:
        default = f"`{json.dumps(node['default'])}`"
    meaning = node.get("description", "")
    if "enum" in node:
        meaning += f" One of {', '.join(f'`{value}`' for value in node['enum'])}."
    cells = (f"`{key}`", _type(node, f"{path}.{key}"), default, meaning)
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _type(node: dict[str, Any], path: str) -> str:
    if is_free_form(node):
        return "map"
    if node["type"] == "array":
        return f"list of {_type(node['items'], f'{path}[]')}"
    if "additionalProperties" in node:
        return f"map to {_type(node['additionalProperties'], f'{path}.<key>')}"
    if "properties" in node:
        return f"[object](#{re.sub('[^a-z]', '', path.lower())})"
    return str(node["type"])


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
