"""Refusals that no retry can cure: wrong spec, template, model, data or reward."""

from __future__ import annotations

from rljob_core.api.report import Outcome
from rljob_core.api.status import Phase, Reason
from rljob_core.errors import EXIT_INVALID_INPUT
from rljob_core.lifecycle.model import Ending, Memory, Observed, ObservedWorkload
from rljob_core.lifecycle.view import View


def invalid(observed: Observed, view: View, memory: Memory) -> Ending | None:
    """Failed at once: known beforehand, refused by the API as malformed, or a worker's exit code 64."""
    if observed.invalid_input:
        return _failed(Reason.INVALID_INPUT, observed.invalid_input)
    for error in observed.errors:
        if error.reason == Reason.INVALID_TEMPLATE:
            where = f"{error.field}: " if error.field else ""
            return _failed(Reason.INVALID_TEMPLATE, f"{where}{error.message}")
    guilty = invalid_input_pod(view)
    if guilty is not None:
        words = guilty.last_words.message if guilty.last_words else ""
        return _failed(Reason.INVALID_INPUT, words or guilty.message or f"{guilty.name} ended with exit code 64")
    if memory.final_report and memory.final_report.outcome is Outcome.INVALID_INPUT:
        return _failed(Reason.INVALID_INPUT, memory.final_report.outcome_message)
    return None


def invalid_input_pod(view: View) -> ObservedWorkload | None:
    """The pod that found the input wrong: the one with words of its own before one with a bare exit code."""
    guilty = [
        pod
        for pod in view.current.values()
        if pod.exit_code == EXIT_INVALID_INPUT or (pod.last_words is not None and pod.last_words.invalid_input)
    ]
    return min(guilty, key=lambda pod: (not (pod.last_words and pod.last_words.message), pod.name), default=None)


def _failed(reason: Reason, message: str) -> Ending:
    return Ending(phase=Phase.FAILED, reason=reason, message=message)
