"""Drain policy: the coordinator checkpoints and lets all go; then, or with nobody to ask, what is left is deleted."""

from __future__ import annotations

from rljob_core.lifecycle.directive import DRAIN_DEADLINE_S
from rljob_core.lifecycle.model import Memory, Observed
from rljob_core.lifecycle.view import View
from rljob_core.names import Role

MARGIN_S = 10.0
"""Beyond the coordinator's own deadline, for its exit to be seen."""


def must_go(observed: Observed, view: View, memory: Memory, now: float) -> bool:
    """Whatever still lives is deleted: the coordinator has ended, never answered, or the deadline passed."""
    if memory.drain_since is None:
        return False
    unasked = not view.live(Role.COORDINATOR) or observed.report is None
    return unasked or now - memory.drain_since >= DRAIN_DEADLINE_S + MARGIN_S


def drained(observed: Observed, view: View) -> bool:
    """Asked for, and nothing lives any more."""
    return observed.drain_requested and not view.live() and not any(pod.live for pod in view.stale)
