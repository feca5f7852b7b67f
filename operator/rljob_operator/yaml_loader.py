"""The one YAML loader: scalars mean what they mean to kubectl, keys appear once, and each field knows its line.

kubectl turns YAML into JSON with go-yaml, whose scalars differ from PyYAML's: `1e-3` is a number, `1.0` is the integer
1, `017` is octal, `12:30` and dates are strings. One word is ambiguous there: `Off` (on, yes, no, y, n in any of three
spellings) is a boolean to `kubectl -f` and a string to kustomize. Here it stays a string that remembers this
(`AmbiguousWord`), so that validation can say what a cluster will make of it.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rljob_core.errors import InvalidInputError

FieldPath = tuple[str | int, ...]
INT64 = range(-(2**63), 2**63)
NODE_LIMIT = 100_000
"""Values of one document, aliases counted as often as they are used: a few lines of aliases could fill any memory."""
EXACT_FLOAT = 1e21
"""From here on Go writes a whole float with an exponent, and it stays a float."""

_TAG = "tag:yaml.org,2002:"
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"(?P<sign>[-+]?)(?P<prefix>0[xX]|0[bB]|0[oO]?|)(?P<digits>[0-9a-fA-F]+)")
_BASES = {"0x": 16, "0b": 2, "0o": 8, "0": 8, "": 10}
_BOOLEANS = {"true": True, "false": False}
_WORDS = {"y": True, "yes": True, "on": True, "n": False, "no": False, "off": False}
_NULLS = ("", "~", "null", "Null", "NULL")
_TAGGED: dict[str, tuple[type, ...]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (type(None),),
}
_PLAIN, _QUOTED = "plain", "quoted"
_NOT_FINITE = {
    **{f"{sign}{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


class AmbiguousWord(str):
    """A plain `Off`: equal to its text, and a boolean to `kubectl -f`."""

    @property
    def boolean(self) -> bool:
        return _WORDS[self.lower()]


@dataclass(frozen=True, kw_only=True)
class LoadedDocument:
    """One document of a file. lines: path of keys and indices -> line, from 1."""

    body: dict[str, Any]
    source: str
    line: int
    lines: dict[FieldPath, int] = field(default_factory=dict)

    def line_of(self, path: FieldPath) -> int:
        """Line of a field; of its nearest parent when the field itself is not written."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, self.line)


def load_file(path: Path) -> list[LoadedDocument]:
    """Every document of a file that is not empty; InvalidInputError when it cannot be read or parsed."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidInputError(str(path), path.name, f"cannot be read ({why})", "name a YAML file") from error
    return load_text(text, str(path))


def load_text(text: str, source: str = "<text>") -> list[LoadedDocument]:
    """Every document of a text that is not empty. source: how errors call it."""
    try:
        return list(_documents(_Loader(text), source))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise InvalidInputError(where, "YAML", error.problem or str(error), "correct the syntax") from error
    except yaml.YAMLError as error:
        raise InvalidInputError(source, "YAML", str(error), "correct the syntax") from error
    except RecursionError as error:
        raise InvalidInputError(source, "YAML", "is nested too deeply", "flatten it") from error


def _documents(loader: _Loader, source: str) -> Iterator[LoadedDocument]:
    while loader.check_node():
        node = loader.get_node()
        assert node is not None
        line = node.start_mark.line + 1
        build = _Builder(source)
        body = build.value(node, ())
        if body is None:
            continue
        if not isinstance(body, dict):
            raise InvalidInputError(f"{source}:{line}", body, "is not an object", "start with apiVersion and kind")
        yield LoadedDocument(body=body, source=source, line=line, lines=build.lines)


class _Loader(yaml.SafeLoader):
    """PyYAML's parser; a scalar without a tag is told apart by its style only, and resolved by `resolve`."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if implicit[0] else _QUOTED
        return super().resolve(kind, value, implicit)  # type: ignore[no-any-return,no-untyped-call]


class _Builder:
    """Turns composed nodes into plain values, and notes lines."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[yaml.Node] = []
        self._built = 0
        self.lines: dict[FieldPath, int] = {}

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        self._built += 1
        if self._built > NODE_LIMIT:
            raise self._error(node, "the document", f"has over {NODE_LIMIT} values", "split it, or use fewer aliases")
        if node in self._open:
            raise self._error(node, "an anchor", "contains itself", "write the value out")
        self._open.append(node)
        try:
            match node:
                case yaml.MappingNode():
                    return self._mapping(node, path)
                case yaml.SequenceNode():
                    return [self._noted(child, (*path, i)) for i, child in enumerate(node.value)]
                case yaml.ScalarNode():
                    return self._scalar(node)
                case _:
                    raise AssertionError(f"unknown kind of node: {node!r}")
        finally:
            self._open.pop()

    def _noted(self, node: yaml.Node, path: FieldPath, line: int | None = None) -> Any:
        self.lines[path] = line if line is not None else node.start_mark.line + 1
        return self.value(node, path)

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        """Keys as strings; a key twice is refused, since one of the two would be lost without a word."""
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _PLAIN and key_node.value == "<<":
                merged = self._merge(value_node, path) | merged
                continue
            key = self._key(key_node)
            if key in own:
                raise self._error(key_node, key, "appears twice in one map", "keep one")
            own[key] = self._noted(value_node, (*path, key), key_node.start_mark.line + 1)
        return merged | own

    def _merge(self, node: yaml.Node, path: FieldPath) -> dict[str, Any]:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in parts:
            value = self.value(part, path)
            if not isinstance(value, dict):
                raise self._error(part, value, "cannot be merged", "merge maps only")
            merged = value | merged
        return merged

    def _key(self, node: yaml.Node) -> str:
        value = self._scalar(node) if isinstance(node, yaml.ScalarNode) else node
        match value:
            case str():
                return str(value)
            case bool():
                return str(value).lower()
            case int() | float():
                return f"{value:g}" if isinstance(value, float) else str(value)
            case _:
                raise self._error(node, node.value, "cannot be a key", "write a string")

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        if node.tag == _PLAIN:
            return self._finite(node, resolve(text))
        if node.tag == f"{_TAG}binary":
            try:
                return base64.b64decode(text, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise self._error(node, text, f"is not base64 of a text ({error})", "correct it") from error
        if node.tag not in _TAGGED:
            return text
        value = resolve(text)
        if isinstance(value, AmbiguousWord):
            value = value.boolean
        if not isinstance(value, _TAGGED[node.tag]) or (isinstance(value, bool) and node.tag != f"{_TAG}bool"):
            raise self._error(node, text, f"is not of type {node.tag.removeprefix(_TAG)}", "correct value or tag")
        return self._finite(node, value)

    def _finite(self, node: yaml.Node, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error(node, node.value, "is not a number JSON can hold", "write a finite number")
        return value

    def _error(self, node: yaml.Node, value: object, problem: str, remedy: str) -> InvalidInputError:
        return InvalidInputError(f"{self._source}:{node.start_mark.line + 1}", value, problem, remedy)


def resolve(text: str) -> Any:
    """Value of a plain scalar by go-yaml's rules, after its way through JSON: a whole float becomes an integer."""
    if text in _NULLS:
        return None
    word = text.lower()
    if text in (word, word.upper(), word.capitalize()):
        if word in _BOOLEANS:
            return _BOOLEANS[word]
        if word in _WORDS:
            return AmbiguousWord(text)
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    if text[0] not in "+-.0123456789":
        return text
    return _number(text.replace("_", ""), text)


def _number(plain: str, text: str) -> Any:
    """Integer (any base), else float, else the text itself."""
    integer = _INTEGER.fullmatch(plain)
    if integer:
        base = _BASES[integer["prefix"].lower()]
        try:
            value = int(integer["sign"] + integer["digits"], base)
        except ValueError:  # 08, 0b2: not an integer in its base
            pass
        else:
            return value if value in INT64 else float(value)
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if math.isinf(number):
            return text
        return int(number) if number.is_integer() and abs(number) < EXACT_FLOAT else number
    return text
