"""Directive policy: what the coordinator shall do now; the revision grows with every change."""

from __future__ import annotations

from rljob_core.api.directive import Action, Directive, StaleSyncLimits
from rljob_core.api.spec import RLJob
from rljob_core.lifecycle.model import Memory, Observed

DRAIN_DEADLINE_S = 60.0
"""Drain: checkpoint and exit within this."""


def directed(job: RLJob, observed: Observed, memory: Memory) -> Memory:
    """Memory holding the directive in force, under a new revision when it says something new."""
    stale = job.spec.stale_sync
    directive = Directive(
        revision=memory.directive_revision,
        action=Action.DRAIN if observed.drain_requested else Action.RUN,
        drain_deadline_seconds=DRAIN_DEADLINE_S,
        stale_sync=StaleSyncLimits(max_version_lag=stale.max_version_lag, ready_share=stale.ready_share),
    )
    if directive == memory.last_directive:
        return memory
    revision = memory.directive_revision + 1
    return memory.model_copy(
        update={
            "directive_revision": revision,
            "last_directive": directive.model_copy(update={"revision": revision}),
        }
    )
