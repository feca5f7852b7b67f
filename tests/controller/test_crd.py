"""The generated CRD: what it must hold, and what the generator refuses."""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import cel
import pytest
from pydantic import Field

from rljob_core.api import Document, Rule
from rljob_core.api.changes import FIXED
from rljob_operator.cli import main
from rljob_operator.crd import UnsupportedSchemaError, definition, definition_yaml, object_schema, structural
from rljob_operator.crd.schema import FREE_FORM, RULES, is_free_form
from rljob_operator.validation.rules import OLD_SELF, is_transition

ROOT = Path(__file__).parents[2]


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema node with its path; what lies below a map of any keys has none."""
    yield path, node
    for key, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if key in node and not is_free_form(node):
            yield from nodes(node[key], f"{path}[]")


SPEC = list(nodes(object_schema()["properties"]["spec"], "spec"))
WHOLE = list(nodes(object_schema()))
TRANSITIONS = [rule.rule for rule in FIXED]
ALL_RULES = [(path, node, rule) for path, node in WHOLE for rule in node.get(RULES, ())]


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Inner(Document):
    """An inner
    thing."""

    count: int = 3
    """How many."""
    anything: dict[str, Any] = Field(default_factory=dict)


class Outer(Document):
    """All that a model may hold."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="self.share > 0.0", message="'share is %s: raise it'.format([self.share])", field=".share"),
        Rule(rule="has(self.name)", message="name it"),
    )
    share: float
    name: str | None = Field(default=None, max_length=8)
    colour: Colour = Colour.RED
    inner: Inner = Inner()
    optional: Inner | None = None
    made: Inner = Field(default_factory=Inner)
    names: list[str] = Field(default_factory=list, max_length=4)
    by_key: dict[str, Inner] = Field(default_factory=dict, max_length=2)


def test_models_become_a_structural_schema() -> None:
    inner = {
        "description": "An inner thing.",
        "type": "object",
        "properties": {
            "count": {"description": "How many.", "type": "integer", "format": "int64", "default": 3},
            "anything": {"type": "object", "additionalProperties": {FREE_FORM: True}},
        },
    }
    assert structural(Outer) == {
        "description": "All that a model may hold.",
        "type": "object",
        "required": ["share"],
        RULES: [
            {
                "rule": "self.share > 0.0",
                "messageExpression": "'share is %s: raise it'.format([self.share])",
                "fieldPath": ".share",
            },
            {"rule": "has(self.name)", "message": "name it"},
        ],
        "properties": {
            "share": {"type": "number", "format": "double"},
            "name": {"type": "string", "maxLength": 8},
            "colour": {"type": "string", "enum": ["Red", "Blue"], "default": "Red"},
            "inner": inner | {"default": {"count": 3}},
            "optional": inner,
            "made": inner | {"default": {"count": 3}},
            "names": {"type": "array", "maxItems": 4, "items": {"type": "string"}, "default": []},
            "byKey": {"type": "object", "maxProperties": 2, "additionalProperties": inner, "default": {}},
        },
    }


class Union(Document):
    value: int | str = 0


class NullDefault(Document):
    value: int | None = 3


class Pair(Document):
    value: tuple[int, str] = (1, "a")


class Bounded(Document):
    value: int = Field(default=1, ge=1)


class Untyped(Document):
    value: Any = None


class OtherDefault(Document):
    value: Inner = Inner(count=4)


@pytest.mark.parametrize("model", [Union, NullDefault, Pair, Bounded, Untyped, OtherDefault], ids=lambda m: m.__name__)
def test_what_a_structural_schema_cannot_say_is_refused(model: type[Document]) -> None:
    with pytest.raises(UnsupportedSchemaError, match=rf"^{model.__name__}\.value"):
        structural(model)


def test_committed_files_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "--check", str(ROOT / "crds/rljobs.yaml")]) == 0
    assert main(["reference", "--check", str(ROOT / "docs/reference.md")]) == 0
    assert capsys.readouterr().err == ""


def test_a_stale_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "--check", str(tmp_path / "absent.yaml")]) == 1
    assert "is stale: run `rljob crd >" in capsys.readouterr().err


def test_client_side_apply_can_keep_it() -> None:
    assert len(definition_yaml().encode()) < 256 * 1024


def test_columns_and_names() -> None:
    spec = definition()["spec"]
    columns = spec["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if not c.get("priority")] == [
        *("PHASE", "STEP", "REWARD", "LAG", "TOK/S", "READY", "AGE")
    ]
    assert [c["name"] for c in columns if c.get("priority")] == ["MODE", "BALANCE", "RESTARTS", "VERSION"]
    assert spec["names"]["shortNames"] == ["rlj"]
    assert spec["names"]["categories"] == ["all"]
    assert spec["versions"][0]["subresources"] == {"status": {}}
    paths = {path.replace("[]", "") for path, _ in WHOLE}
    assert {c["jsonPath"] for c in columns} - paths == {".metadata.creationTimestamp"}


def test_conditions_are_a_map_by_type() -> None:
    conditions = object_schema()["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_a_newer_operator_may_write_new_words_into_a_status() -> None:
    status = object_schema()["properties"]["status"]
    assert [path for path, node in nodes(status) if "enum" in node] == []


def test_ranges_are_rules_alone() -> None:
    """A `minimum` beside a rule would report twice, once without the remedy."""
    forbidden = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "nullable", "anyOf", "$ref"}
    assert [path for path, node in WHOLE if forbidden & set(node)] == []


def test_everything_in_a_spec_is_bounded() -> None:
    limits = {"string": ("maxLength", "enum"), "array": ("maxItems",)}
    unbounded = [path for path, node in SPEC if node["type"] in limits and not set(limits[node["type"]]) & set(node)]
    unbounded += [path for path, node in SPEC if is_free_form(node) and "maxProperties" not in node]
    assert unbounded == []


def test_every_field_says_what_it_is() -> None:
    assert [path for path, node in SPEC if not node.get("description")] == []


def test_no_word_that_yaml_turns_into_a_boolean() -> None:
    """An enum value or field called `off` would be false to kubectl."""
    words = {"y", "n", "on", "off", "yes", "no"}
    values = [value for _, node in WHOLE for value in (*node.get("enum", ()), *node.get("properties", ()))]
    assert [value for value in values if value.lower() in words] == []


@pytest.mark.parametrize(("path", "node", "rule"), ALL_RULES, ids=[f"{p}:{r['rule'][:50]}" for p, _, r in ALL_RULES])
def test_rules_keep_to_what_both_evaluators_share(path: str, node: dict[str, Any], rule: dict[str, str]) -> None:
    allowed = {"has", "size", "matches", "all", "exists", "filter", "map", "format", "@not_strictly_false"}
    for expression in filter(None, (rule["rule"], rule.get("messageExpression"))):
        program = cel.compile(expression)
        operators = {name for name in program.functions() if not name[0].isalpha()}
        assert set(program.functions()) - operators <= allowed
        assert "string(" not in expression, "refused by the API server's cost limit"
        assert OLD_SELF not in program.variables() or rule["rule"] in TRANSITIONS
    for key in rule.get("fieldPath", "").split(".")[1:]:
        node = node["properties"][key]
    assert "message" in rule or re.search(r"%[ds]", rule["messageExpression"])


def test_transition_rules_stand_on_the_spec_where_they_see_all_groups_come_and_go() -> None:
    found = [(path, rule["rule"]) for path, _, rule in ALL_RULES if is_transition(rule["rule"])]
    assert found == [(".spec", rule) for rule in TRANSITIONS]
