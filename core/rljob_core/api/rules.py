"""Builders of the CEL rules that repeat: ranges, choices, what is not there yet, and the shapes of strings.

Each gives one `Rule`, whose string the API server and `rljob validate` both run. Field names are wire names.
"""

from __future__ import annotations

from rljob_core.api.base import Rule

DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN = f"{DNS_LABEL}([.]{DNS_LABEL})*"
IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
MAX_STEPS = 10_000_000
MAX_SEED = 2**31 - 1
MAX_PODS = 10_000
"""Pods of a role: an index has at most four digits (`rljob_core.names.LONGEST_SUFFIX`)."""
MAX_DEGREE = 4096


def between(field: str, low: int, high: int, *, why: str = "", optional: bool = False) -> Rule:
    """An integer in low..high, both included. why: a clause before the remedy. optional: it may be absent."""
    test = f"self.{field} >= {low} && self.{field} <= {high}"
    return Rule(
        rule=f"!has(self.{field}) || {test}" if optional else test,
        message=f"'{field} is %d{', ' + why if why else ''}: use {low} to {high}'.format([self.{field}])",
        field=f".{field}",
    )


def ratio(
    field: str, low: float, high: float, *, low_open: bool = False, high_open: bool = False, optional: bool = False
) -> Rule:
    """A double between low and high; an open end is itself refused. optional: the field may be absent."""
    above, below = ">" if low_open else ">=", "<" if high_open else "<="
    test = f"self.{field} {above} {low!r} && self.{field} {below} {high!r}"
    remedy = f"{'above' if low_open else 'at least'} {low:g} and {'below' if high_open else 'at most'} {high:g}"
    return Rule(
        rule=f"!has(self.{field}) || {test}" if optional else test,
        message=f"'{field} is %s: use a number {remedy}'.format([self.{field}])",
        field=f".{field}",
    )


def exactly_one(*fields: str) -> Rule:
    """One of sibling optional objects, no more and no less."""
    count = f"size([{', '.join(f'has(self.{f})' for f in fields)}].filter(set, set))"
    return Rule(
        rule=f"{count} == 1",
        message=f"'%d of {_listed(fields)} are set: set exactly one'.format([{count}])",
    )


def at_most_one(*fields: str) -> Rule:
    """One of sibling optional objects, or none."""
    count = f"size([{', '.join(f'has(self.{f})' for f in fields)}].filter(set, set))"
    return Rule(
        rule=f"{count} <= 1",
        message=f"'%d of {_listed(fields)} are set: keep one of them'.format([{count}])",
    )


def only_one_yet(field: str) -> Rule:
    """A degree that may be 1 only, for now."""
    return Rule(
        rule=f"self.{field} == 1",
        message=f"'{field} is %d: only 1 works, other values not yet'.format([self.{field}])",
        field=f".{field}",
    )


def only_yet(field: str, value: str) -> Rule:
    """A choice of which one value works, for now."""
    return Rule(
        rule=f"self.{field} == '{value}'",
        message=f"'{field} is %s: only {value} works, other values not yet'.format([self.{field}])",
        field=f".{field}",
    )


def fixed_yet(field: str, remedy: str, *, optional: bool = False) -> Rule:
    """What an update may not change, for now. remedy: what to do instead of undoing it. optional: it may be absent.

    A transition rule (`oldSelf`): the API server runs it on updates alone, `rljob validate` never.
    """
    same = f"self.{field} == oldSelf.{field}"
    both = f"has(self.{field}) == has(oldSelf.{field})"
    return Rule(
        rule=f"{both} && (!has(self.{field}) || {same})" if optional else same,
        message=f"{field} cannot change on an existing RLJob yet: undo the change, or {remedy}",
        field=f".{field}",
    )


def shaped(field: str, pattern: str, remedy: str, *, optional: bool = False) -> Rule:
    """A string that matches the whole of a regular expression that RE2 and Rust read alike."""
    test = f"self.{field}.matches(r'^({pattern})$')"
    return Rule(
        rule=f"!has(self.{field}) || {test}" if optional else test,
        message=f"'{field} is \"%s\": {remedy}'.format([self.{field}])",
        field=f".{field}",
    )


def filled(field: str, remedy: str, *, optional: bool = False) -> Rule:
    """A string with at least one character that is not blank."""
    test = f"self.{field}.matches('[^[:space:]]')"
    return Rule(
        rule=f"!has(self.{field}) || {test}" if optional else test,
        message=f"'{field} is \"%s\": {remedy}'.format([self.{field}])",
        field=f".{field}",
    )


def without_parent_parts(field: str) -> Rule:
    """A path that cannot leave its folder."""
    return Rule(
        rule=f"!self.{field}.matches('(^|/)[.][.](/|$)')",
        message=f"'{field} is \"%s\": write it without .. parts'.format([self.{field}])",
        field=f".{field}",
    )


def _listed(fields: tuple[str, ...]) -> str:
    return f"{', '.join(fields[:-1])} and {fields[-1]}"
