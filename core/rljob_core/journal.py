"""The coordinator's journal: JSON lines that make versions unique and say what was trained, over all restarts.

Records, by `kind`: `start` (a coordinator began at `step`), `version` (a policy version was issued; on disk before
anybody may use it), `trained` (`step` consumed `prompts` prompts from `first_prompt` on), `rolled_back` (steps above
`step` are undone: the checkpoint resumed from is older), `first_token` (sampled `at`, unix seconds), `checkpoint`,
`end`. Unknown kinds are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rljob_core.errors import ProtocolVersionError, RLJobError

FILE_NAME = "journal.jsonl"
STATE_MAJOR = 1
"""Of the coordinator's state in a checkpoint."""


class JournalError(RLJobError):
    """A line in the middle of the journal cannot be read: versions could be issued twice, so nothing starts."""


@dataclass(kw_only=True)
class Replay:
    """What a journal says. trained: step -> prompt ids, along the lineage that leads to the current state."""

    highest_version: int = -1
    trained: dict[int, range] = field(default_factory=dict)
    first_token_at: float | None = None
    """Unix seconds."""
    whole_bytes: int = 0
    """Length of the readable part: what follows is a line torn by a crash."""

    @property
    def last_step(self) -> int:
        return max(self.trained, default=0)

    @property
    def next_prompt(self) -> int:
        """First prompt id that the lineage has not trained."""
        return max((ids.stop for ids in self.trained.values()), default=0)

    def apply(self, record: dict[str, Any]) -> None:
        kind = record.get("kind")
        if kind == "version":
            self.highest_version = max(self.highest_version, record["version"])
        elif kind == "trained":
            first = record["first_prompt"]
            self.trained[record["step"]] = range(first, first + record["prompts"])
        elif kind == "first_token":
            self.first_token_at = min(self.first_token_at or record["at"], record["at"])
        elif kind == "rolled_back":
            self.trained = {s: ids for s, ids in self.trained.items() if s <= record["step"]}


def encode(record: dict[str, Any]) -> bytes:
    """One line."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def replay(data: bytes) -> Replay:
    """Read a journal. A torn last line is left out; a bad line before it raises JournalError."""
    out = Replay()
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            out.apply(record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise JournalError(f"{FILE_NAME} line {number} cannot be read ({error}): {line[:80]!r}") from error
        out.whole_bytes += len(line) + 1
    return out


@dataclass(frozen=True, kw_only=True)
class Start:
    """Where a session begins.

    next_prompt: first prompt id that is not trained, whatever the size of the steps before. highest_version: never to
    be issued again. state: of the checkpoint, empty without. first_token_at: of the job, when an earlier start of it
    has sampled; unix seconds.
    """

    step: int = 0
    next_prompt: int = 0
    highest_version: int = -1
    state: dict[str, Any] = field(default_factory=dict)
    first_token_at: float | None = None
    records: tuple[dict[str, Any], ...] = ()
    """To be appended before anything else."""


def start_from(
    journal: Replay,
    *,
    step: int,
    version: int,
    state: dict[str, Any],
    job_started_at: float = 0.0,
) -> Start:
    """Begin at a checkpoint (`step` 0 and version -1: at none), settling what the journal says differently.

    job_started_at: unix seconds; an earlier token was another job's, from whose checkpoint this one goes on.
    Steps trained after the checkpoint are rolled back; a checkpoint whose step had not reached the journal is added.
    Raises ProtocolVersionError for a checkpoint of an unknown format.
    """
    if step and state.get("format_major") != STATE_MAJOR:
        raise ProtocolVersionError(
            f"the coordinator's state in the checkpoint of step {step}: format_major {state.get('format_major')!r} is"
            f" not supported; this version reads {STATE_MAJOR}: use the version that wrote it, or another checkpoint"
            " directory"
        )
    next_prompt: int = state["next_prompt"] if step else 0
    records: list[dict[str, Any]] = []
    if journal.last_step > step:
        records.append({"kind": "rolled_back", "step": step, "from_step": journal.last_step})
    records += _not_journalled(journal, step, next_prompt)
    records.append({"kind": "start", "step": step})
    first = journal.first_token_at
    return Start(
        step=step,
        next_prompt=next_prompt,
        highest_version=max(journal.highest_version, version),
        state=state,
        first_token_at=first if first is not None and first >= job_started_at else None,
        records=tuple(records),
    )


def _not_journalled(journal: Replay, step: int, next_prompt: int) -> list[dict[str, Any]]:
    """Steps that the checkpoint knows and the journal does not: they share the prompts between the two."""
    first, done = journal.next_prompt, journal.last_step
    borders = (
        [first + (next_prompt - first) * i // (step - done) for i in range(step - done + 1)] if step > done else []
    )
    return [
        {"kind": "trained", "step": done + i, "first_prompt": begin, "prompts": end - begin}
        for i, (begin, end) in enumerate(pairwise(borders), start=1)
    ]


def lineage_prompts(journal: Iterable[dict[str, Any]] | Replay) -> list[int]:
    """Every prompt id trained along the lineage, in order of training, for audits."""
    if not isinstance(journal, Replay):
        records, journal = journal, Replay()
        for record in records:
            journal.apply(record)
    return [prompt for step in sorted(journal.trained) for prompt in journal.trained[step]]


__all__ = [
    "FILE_NAME",
    "STATE_MAJOR",
    "JournalError",
    "Replay",
    "Start",
    "encode",
    "lineage_prompts",
    "replay",
    "start_from",
]
