"""Stages of a rollout group on the timeline."""

from __future__ import annotations

from contextlib import ExitStack

from rljob_core.api.directive import StageName
from rljob_workers.link import CoordinatorLink


class Stages:
    """One span for each stretch of the same stage, however many engine steps it holds."""

    def __init__(self, link: CoordinatorLink) -> None:
        self._link, self._stack = link, ExitStack()
        self._stage: StageName | None = None

    def enter(self, stage: StageName, step: int = -1) -> None:
        if stage is not self._stage:
            self._stack.close()
            self._stage = stage
            self._stack.enter_context(self._link.stage(stage, step))

    def close(self) -> None:
        self._stack.close()
        self._stage = None
