"""What an update of an existing RLJob may change: `lifecycle.backoffLimit` and `lifecycle.activeDeadlineSeconds`.

The operator reads those two at every pass. Everything else is read by processes once, at their start: a change would
reach the pods made after it and no others. So transition rules refuse it, group by group.
"""

from __future__ import annotations

from rljob_core.api.rules import fixed_yet

_GOES_ON = "with a checkpoint.volume it goes on from the last checkpoint there"
_ANEW = f"delete the RLJob and apply this one ({_GOES_ON})"
_OTHER_MODEL = "apply this one under another name (under its own, a checkpoint.volume has the old model's checkpoints)"
_OTHER_LAYOUT = (
    f"delete the RLJob and apply this one ({_GOES_ON}, but under the same layout alone: for another layout use another "
    "name, and model.path for that checkpoint's model directory)"
)

FIXED = (
    fixed_yet("model", _OTHER_MODEL),
    fixed_yet("data", _ANEW),
    fixed_yet("reward", _ANEW),
    fixed_yet("algorithm", _ANEW),
    fixed_yet("evaluation", _ANEW, optional=True),
    fixed_yet("deployment", _ANEW),
    fixed_yet("trainer", _OTHER_LAYOUT),
    fixed_yet("rollout", _ANEW),
    fixed_yet("coordinator", _ANEW),
    fixed_yet("staleSync", _ANEW),
    fixed_yet("experts", _ANEW),
    fixed_yet("kvStore", _ANEW),
    fixed_yet("checkpoint", _ANEW),
    fixed_yet("scheduling", _ANEW),
    fixed_yet("lifecycle.startupDeadlineSeconds", _ANEW),
)
"""Rules of the spec as a whole: one on `evaluation` itself would not see it come or go."""
