"""A whole job in one thread: a real Session, workers as plain objects, a store as a dict, time as a number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rljob_core.api.directive import Action, Directive, StaleSyncLimits
from rljob_core.api.messages import (
    CheckpointDone,
    CompletePrefill,
    CompleteReward,
    CompleteRollout,
    Published,
    Pulled,
    Register,
    RewardWork,
    RolloutWork,
    StepDone,
    TrainCommand,
    TrainWork,
    WorkKind,
)
from rljob_core.journal import Start, encode, replay, start_from
from rljob_core.layouts import Layout
from rljob_core.session import Discarded, EvaluationLogged, Journalled, Prompt, Session, Settings, StepLogged, Worker
from rljob_core.session.settings import EvaluationSettings

SETTINGS = Settings(
    steps=4,
    prompts_per_step=4,
    group_size=2,
    minibatches=1,
    max_version_lag=1,
    deterministic=False,
    trainer_layout=Layout(),
    rollout_groups=2,
    rollout_ranks_per_group=1,
    reward_workers=1,
    max_sequences=6,
    prefill_prompts=4,
    max_response_tokens=4,
    checkpoint_every=2,
    startup_s=1800.0,
    evaluation=EvaluationSettings(prompts=3, every_steps=2, greedy=True, target_exact_match=None),
    lease_s=60.0,
)


class Digits:
    """Prompts that are a function of their position; some share their tokens. held_out: evaluation prompts."""

    held_out: int | None = None

    def training(self, prompt_id: int) -> Prompt:
        return Prompt(prompt_id=prompt_id, text=f"p{prompt_id}", answer="a", token_ids=[prompt_id % 5, 9])

    def evaluation(self, index: int) -> Prompt:
        return Prompt(prompt_id=index, text=f"e{index}", answer="a", token_ids=[index, 8])


@dataclass
class Rollout:
    """One group. work: taken, not completed."""

    worker: Worker
    version: int = -1
    work: list[RolloutWork] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        return sum(len(w.rows) for w in self.work if w.kind is WorkKind.DECODE)


class Job:
    """Actions that one step of a schedule may take, and what they have shown so far."""

    def __init__(self, settings: Settings = SETTINGS, start: Start | None = None, journal: bytes = b"") -> None:
        self.settings, self.now = settings, 0.0
        self.source = Digits()
        self.session = Session(settings, self.source, start or Start())
        self.store: dict[str, int] = {}
        self.journal = journal
        self.commands: dict[int, list[TrainWork]] = {}
        self.lags: list[int] = []
        self.steps: list[StepLogged] = []
        self.evaluations: list[EvaluationLogged] = []
        self.checkpoint: tuple[int, int, dict[str, Any]] | None = None
        self.published: list[int] = []
        self._held = dict.fromkeys(range(settings.trainer_ranks), -1)
        self._incarnations = 0
        resumed = self.session.resumed_step
        self.trainers = [self.join("trainer", r, resumed_step=resumed) for r in range(settings.trainer_ranks)]
        self.rollouts = [Rollout(self.join("rollout", g)) for g in range(settings.rollout_groups)]
        self.rewarder = self.join("reward", 0)
        self.reward_work: list[RewardWork] = []
        self.reward = 1.0
        self.gaps: dict[int, float] = {}
        """Log-probability gaps that the trainer measured, by step."""
        self.length: Callable[[int], int] = lambda row: 3

    def join(self, role: str, rank: int, **more: Any) -> Worker:
        self._incarnations += 1
        uid = f"uid-{self._incarnations}"
        message = Register(role=role, pod=f"{role}-{rank}", pod_uid=uid, rank=rank, **more)
        worker = self.session.register(message.model_copy(update={"group": rank}), self.now)
        self.settle()
        return worker

    def settle(self) -> None:
        for effect in self.session.take_effects():
            match effect:
                case Journalled():
                    self.journal += encode(effect.record)
                case Discarded():
                    for key in effect.keys:
                        self.store.pop(key, None)
                case StepLogged():
                    self.steps.append(effect)
                case EvaluationLogged():
                    self.evaluations.append(effect)

    # Rollout.

    def take(self, group: int) -> RolloutWork:
        rollout = self.rollouts[group]
        free = self.settings.max_sequences - rollout.in_flight
        work = self.session.take_rollout(rollout.worker, free, rollout.in_flight, rollout.version, self.now)
        if work.kind is WorkKind.PULL:
            assert rollout.in_flight == 0
            assert work.version in self.published[-2:], "the trainers keep two versions"
            rollout.version = work.version
            self.session.pulled(rollout.worker, Pulled(version=work.version, bytes=1, seconds=0.1), self.now)
        elif work.kind in (WorkKind.PREFILL, WorkKind.DECODE):
            assert work.version == rollout.version, "work goes out under the version the group holds (rl.md 20)"
            assert all(key in self.store and key.startswith(f"kv/{work.version}/") for key in work.kv_keys)
            rollout.work.append(work)
        self.settle()
        return work

    def complete(self, group: int, work: RolloutWork) -> list[bool]:
        """Finish work, current or long over."""
        if work.kind is WorkKind.PREFILL:
            return self._complete_prefill(work)
        pack = f"queue/{work.table}/{work.rows[0]}.{work.attempts[0]}"
        self.store[pack] = len(work.rows)
        n = len(work.rows)
        accepted = self.session.complete_rollout(
            CompleteRollout(
                table=work.table, rows=work.rows, attempts=work.attempts, pack_key=pack, pack_bytes=10 * n,
                first_versions=[work.version] * n, last_versions=[work.version] * n, prompt_lengths=[2] * n,
                response_lengths=[self.length(row) for row in work.rows], finish_reasons=["eos"] * n, kv_hits=n,
                first_token_at=self.now,
            )
        )  # fmt: skip
        self.settle()
        return accepted

    def _complete_prefill(self, work: RolloutWork) -> list[bool]:
        keys = [f"kv/{work.version}/{tokens}" for tokens in work.prompts]
        self.store.update(dict.fromkeys(keys, 1))
        self.session.complete_prefill(
            CompletePrefill(
                version=work.version, rows=work.rows, attempts=work.attempts, kv_keys=keys, kv_bytes=[1] * len(keys)
            )
        )
        self.settle()
        return []

    def lose_rollout(self, group: int) -> list[RolloutWork]:
        """The group dies and a new one takes its index; returns what the dead one may still send."""
        old = self.rollouts[group]
        self.session.lost(old.worker.worker_id, "killed", self.now)
        self.rollouts[group] = Rollout(self.join("rollout", group))
        return old.work

    # Reward.

    def take_reward(self) -> None:
        work = self.session.take_reward(self.rewarder, 5, self.now)
        if work.kind is WorkKind.DECODE:
            assert all(key in self.store for key in work.pack_keys)
            self.reward_work.append(work)
        self.settle()

    def complete_reward(self, work: RewardWork) -> list[bool]:
        n = len(work.rows)
        accepted = self.session.complete_reward(
            CompleteReward(
                rows=work.rows, attempts=work.attempts, rewards=[self.reward] * n, exact=[self.reward == 1.0] * n,
                responses=["a"] * n,
            ),
            self.now,
        )  # fmt: skip
        self.settle()
        return accepted

    # Trainer.

    def train(self, rank: int) -> TrainWork:
        """Take a rank's next command and carry it out."""
        worker = self.trainers[rank]
        work = self.session.take_train(worker, self.now)
        self.settle()
        if work.command is TrainCommand.WAIT:
            return work
        self.commands.setdefault(rank, []).append(work)
        if work.command is TrainCommand.TRAIN:
            assert all(key in self.store for key in work.pack_keys), "samples outlive their training"
            self.lags += [self._held[rank] - v for v in work.first_versions]
            metrics = {"loss": 0.5} | ({"logprob_gap": self.gaps[work.step]} if work.step in self.gaps else {})
            self.session.step_done(worker, StepDone(step=work.step, metrics=metrics), self.now)
        if work.command in (TrainCommand.TRAIN, TrainCommand.PUBLISH):
            if rank == 0:
                assert replay(self.journal).highest_version >= work.version, "journalled before use"
                self.published.append(work.version)
            self._held[rank] = work.version
            self.session.published(worker, Published(version=work.version, bytes=5, seconds=0.1), self.now)
        if rank == 0 and (work.checkpoint_after or work.command is TrainCommand.CHECKPOINT):
            self.checkpoint = (work.step, work.version, work.coordinator_state)
            self.session.checkpoint_done(CheckpointDone(step=work.step), self.now)
        self.settle()
        return work

    # Schedules.

    def round(self) -> None:
        """Everybody does one thing."""
        self.now += 0.1
        for group, rollout in enumerate(self.rollouts):
            self.take(group)
            while rollout.work:
                self.complete(group, rollout.work.pop(0))
        self.take_reward()
        while self.reward_work:
            self.complete_reward(self.reward_work.pop(0))
        for rank in range(self.settings.trainer_ranks):
            self.train(rank)
        self.session.tick(self.now)
        self.settle()
        self.beat()

    def beat(self) -> None:
        for worker in self.session.registry:
            worker.last_seen = self.now

    def run(self, rounds: int = 500, until: Callable[[], bool] | None = None) -> Job:
        for _ in range(rounds):
            if self.session.stopping or (until is not None and until()):
                return self
            self.round()
        raise AssertionError(f"not over after {rounds} rounds: step {self.session.step}, {self.session.message}")

    def drain(self) -> Job:
        directive = Directive(
            revision=self.session.applied_revision + 1,
            action=Action.DRAIN,
            drain_deadline_seconds=1000,
            stale_sync=StaleSyncLimits(max_version_lag=1),
        )
        self.session.direct(directive, self.now)
        self.settle()
        return self

    def resume(self, *, torn: bytes = b"", **changes: Any) -> Job:
        """A new coordinator from the newest checkpoint and the journal as it is on disk; changes: of its settings."""
        journal = replay(self.journal + torn)
        step, version, state = self.checkpoint or (0, -1, {})
        start = start_from(journal, step=step, version=version, state=state)
        job = Job(dataclasses.replace(self.settings, **changes), start, self.journal[: journal.whole_bytes])
        job.checkpoint = self.checkpoint
        return job


@pytest.fixture
def job() -> Callable[..., Job]:
    """`job(max_version_lag=0, ...)`: a job whose settings differ by these."""

    def make(**changes: Any) -> Job:
        return Job(dataclasses.replace(SETTINGS, **changes))

    return make
