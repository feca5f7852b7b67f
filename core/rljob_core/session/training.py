"""The trainer ranks: one script of commands that every rank reads in the same order, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rljob_core.api.messages import Published, StepDone, TrainCommand, TrainWork
from rljob_core.dispatch import trainer_share
from rljob_core.session.records import Batch
from rljob_core.session.settings import Settings


@dataclass(kw_only=True)
class Command:
    """One entry of the script; done and published: ranks that have reported it."""

    kind: TrainCommand
    step: int = 0
    version: int = 0
    batch: Batch | None = None
    checkpoint_after: bool = False
    state: dict[str, Any] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    published: set[int] = field(default_factory=set)
    publish_bytes: int = 0
    publish_seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    expert_counts: list[list[int]] = field(default_factory=list)
    issued_at: float = 0.0


class Trainers:
    """Issues one command at a time. Collectives need all ranks in the same command, so no rank is ever skipped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._script: dict[int, Command] = {}
        self._issued = 0
        self._cursors = dict.fromkeys(range(settings.trainer_ranks), 0)
        self.present: set[int] = set()
        self.current: Command | None = None
        """PUBLISH or TRAIN in progress."""
        self.checkpoint_pending: int | None = None
        """Step whose checkpoint was ordered and is not complete."""

    @property
    def complete(self) -> bool:
        """Every rank has registered."""
        return len(self.present) == self._settings.trainer_ranks

    def issue(self, command: Command) -> None:
        self._script[self._issued] = command
        self._issued += 1
        if command.kind in (TrainCommand.PUBLISH, TrainCommand.TRAIN):
            self.current = command
        if command.kind is TrainCommand.CHECKPOINT or command.checkpoint_after:
            self.checkpoint_pending = command.step

    def take(self, rank: int) -> TrainWork | None:
        """The rank's next command; None when it has read all there are."""
        position = self._cursors[rank]
        command = self._script.get(position)
        if command is None:
            return None
        self._cursors[rank] = position + 1
        if min(self._cursors.values()) > position:
            del self._script[position]
        return self._work(command, rank)

    def step_done(self, rank: int, message: StepDone) -> Command | None:
        """The command this completes, once every rank has trained and published."""
        command = self.current
        if command is None or command.kind is not TrainCommand.TRAIN or message.step != command.step:
            return None
        command.done.add(rank)
        if rank == 0:
            command.metrics, command.expert_counts = message.metrics, message.expert_counts
        return self._finished(command)

    def published(self, rank: int, message: Published) -> Command | None:
        """As step_done; a PUBLISH needs no training."""
        command = self.current
        if command is None or message.version != command.version or rank in command.published:
            return None
        command.published.add(rank)
        command.publish_bytes += message.bytes
        command.publish_seconds = max(command.publish_seconds, message.seconds)
        return self._finished(command)

    def _finished(self, command: Command) -> Command | None:
        ranks = self._settings.trainer_ranks
        trained = command.kind is TrainCommand.PUBLISH or len(command.done) == ranks
        if not trained or len(command.published) < ranks:
            return None
        self.current = None
        return command

    def _work(self, command: Command, rank: int) -> TrainWork:
        work = TrainWork(
            command=command.kind,
            step=command.step,
            version=command.version,
            checkpoint_after=command.checkpoint_after,
            coordinator_state=command.state if rank == 0 else {},
        )
        return work if command.batch is None else work.model_copy(update=self._columns(command.batch, rank))

    def _columns(self, batch: Batch, rank: int) -> dict[str, Any]:
        """This rank's samples; ranks of one model replica (tp, pp) get the same."""
        layout = self._settings.trainer_layout
        share = trainer_share(
            [p.prompt_id for p in batch.prompts],
            dp_rank=layout.dp_rank(rank),
            dp=layout.dp,
            minibatches=self._settings.minibatches,
        )
        position = {prompt_id: i for i, prompt_id in enumerate(share.prompts)}
        samples = sorted(
            (s for s in batch.samples.values() if s.prompt_id in position), key=lambda s: (s.prompt_id, s.index)
        )
        rewards = [0.0 if s.reward is None else s.reward for s in samples]
        size = self._settings.group_size
        return {
            "rows": [s.row for s in samples],
            "pack_keys": [s.pack_key for s in samples],
            "slots": [s.slot for s in samples],
            "prompt_ids": [s.prompt_id for s in samples],
            "sample_indices": [s.index for s in samples],
            "rewards": rewards,
            "first_versions": [s.first_version for s in samples],
            "group_rewards": [rewards[i : i + size] for i in range(0, len(rewards), size)],
            "groups": [position[s.prompt_id] for s in samples],
            "minibatch": [share.minibatches[position[s.prompt_id]] for s in samples],
        }
