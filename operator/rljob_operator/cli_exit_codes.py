"""Exit codes of the commands: what they return, what `--help` and docs/outputs.md say of it."""

from __future__ import annotations

from rljob_core.errors import EXIT_DRAINED, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID_INPUT

RUN = {
    0: "Succeeded: all steps are done or evaluation.targetExactMatch is reached, by this command or an earlier one",
    EXIT_FAILED: "Failed: out of restarts (spec.lifecycle.backoffLimit) or of time (activeDeadlineSeconds)",
    EXIT_INVALID_INPUT: "RLJob, model, data, reward or command line are wrong: the message names field and remedy",
    EXIT_DRAINED: "stopped as asked (Ctrl-C, SIGTERM, SIGHUP), checkpoint written: the same command goes on from it",
    EXIT_INTERRUPTED: "killed: Ctrl-C before anything had begun, or a second one; earlier checkpoints stay",
}

VALIDATE = {
    0: "every RLJob of the files is valid, as far as its model and data can be read here",
    EXIT_INVALID_INPUT: "an RLJob, its model, data or reward, or the command line is wrong: one line a problem",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
}
