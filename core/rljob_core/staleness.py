"""StaleSync: how old a sample may be. The one place that defines lag.

Lag of a sample = the trainer's policy version at consumption - the version that produced its oldest token, counted in
versions, never in steps: after a rollback a restored step has a higher version than the first time.

Batches are consumed whole and in order, one a step, and every step adds one version. So the version at which batch b
will be consumed is known when its work is handed out, and the bound holds by construction: nothing is dropped for
being too old (rl.md 25, 26, 28).
"""

from __future__ import annotations


def lag(consumed_at: int, oldest_token: int) -> int:
    """Lag of a sample, in versions."""
    return consumed_at - oldest_token


def updates_behind(versions: int, minibatches: int) -> int:
    """The same lag in optimizer updates: a version is `minibatches` of them, and the last minibatch of a step is
    trained after the updates of all others (rl.md 29)."""
    return versions * minibatches + minibatches - 1


def last_admissible_batch(*, step: int, version: int, serving: int, max_version_lag: int) -> int:
    """Newest batch whose samples may be generated with weights `serving` now; below `step` when there is none.

    version: of the trainer; serving: what rollouts generate with, at most `version`.
    """
    return step + max_version_lag - (version - serving)
