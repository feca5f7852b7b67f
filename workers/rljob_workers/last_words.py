"""Last words of a process: a TerminationMessage as JSON, small enough for a Kubernetes termination log."""

from __future__ import annotations

import logging
from pathlib import Path

from rljob_core.api.bounded import bounded
from rljob_core.api.report import TerminationMessage

LIMIT_BYTES = 4096
_log = logging.getLogger(__name__)


def encode(words: TerminationMessage) -> bytes:
    """At most LIMIT_BYTES: long texts are cut, then the report loses its lists, then itself."""
    words = words.model_copy(update={"message": bounded(words.message)})
    if words.report is not None:
        report = words.report.model_copy(update={"outcome_message": bounded(words.report.outcome_message)})
        if report.cause is not None:
            report = report.model_copy(update={"cause": report.cause.model_copy(update={"message": ""})})
        lists = ("queues", "workers", "silent", "absent")
        cuts: tuple[dict[str, list[object]], ...] = ({}, {"stages": []}, {name: [] for name in lists})
        for smaller in cuts:
            report = report.model_copy(update=smaller)
            words = words.model_copy(update={"report": report})
            if len(_dump(words)) <= LIMIT_BYTES:
                return _dump(words)
        words = words.model_copy(update={"report": None})
    return _dump(words)


def write(path: Path, words: TerminationMessage) -> None:
    """Write them; a log that cannot be written must not change how the process ends."""
    try:
        path.write_bytes(encode(words))
    except OSError as error:
        _log.warning("last words cannot be written to %s: %s", path, error)


def _dump(words: TerminationMessage) -> bytes:
    return words.model_dump_json(by_alias=True, exclude_defaults=True).encode()
