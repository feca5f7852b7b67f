"""The base of all API documents: frozen, camelCase on the wire, unknown keys refused, CEL rules attached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Name = Annotated[str, Field(max_length=253)]
"""Name of an object, a key or a field. Every string, list and map of a spec is bounded: CEL cost depends on it."""
Text = Annotated[str, Field(max_length=1024)]
"""Path, address, image or entry point."""
FreeForm = Annotated[dict[str, Any], Field(max_length=256)]
"""A map whose keys the CRD does not know; kept as it is."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One CEL rule. The API server runs it and `rljob validate` runs the same string.

    rule: CEL over `self`, using has, size, matches, all, exists, filter, map, arithmetic and format only. One that
        reads `oldSelf` is a transition rule (`changes`).
    message: CEL string expression naming field, value and remedy (`'… %d …'.format([self.n])`), or a plain
        sentence where the value adds nothing. field: JSON path below the node, `.clipLow`.
    """

    rule: str
    message: str
    field: str = ""


class Document(BaseModel):
    """Frozen record; `rules` become `x-kubernetes-validations` of its schema node."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        ser_json_inf_nan="constants",
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    def to_wire(self) -> dict[str, Any]:
        """JSON-ready dict with camelCase keys; what is absent is absent, never null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
