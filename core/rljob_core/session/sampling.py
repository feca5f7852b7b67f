"""Sampling: from admitted prompts to scored samples, over two lanes and one reward table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rljob_core.api.messages import (
    CompletePrefill,
    CompleteReward,
    CompleteRollout,
    RewardWork,
    RolloutWork,
    TableName,
    WorkKind,
)
from rljob_core.dispatch import fair_share
from rljob_core.distqueue import Table
from rljob_core.errors import InvalidInputError
from rljob_core.session.lane import Lane
from rljob_core.session.records import EVALUATION_BASE, Batch, Prompt, Sample
from rljob_core.session.settings import Settings
from rljob_core.session.totals import Totals


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """Who asks: worker, its rollout group, and every worker (itself included) that takes from the same table."""

    worker: int
    group: int = 0
    peers: Sequence[int] = ()


@dataclass(kw_only=True)
class Sampling:
    """Work for rollout groups and reward workers. serving: version rollouts generate with, -1 before the first."""

    settings: Settings
    totals: Totals
    serving: int = -1
    first_token_at: float | None = None
    """Unix seconds; since this start, where the totals know the first of the run."""
    garbage: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.training = Lane(self.settings, TableName.ROLLOUT, self.settings.group_size)
        self.evaluation = Lane(self.settings, TableName.EVALUATION, 1)
        self.rewards = Table()
        self._batch_of: dict[int, Batch] = {}
        self._prompts: dict[int, Prompt] = {}
        self._pack_users: dict[str, int] = {}

    def admit(self, batch: Batch) -> None:
        """Training prompts of a step, or prompts of an evaluation, enter prefill."""
        lane = self._lane(batch.prompts[0].prompt_id)
        lane.offer(batch)
        for prompt in batch.prompts:
            self._prompts[prompt.prompt_id] = prompt
            self._batch_of.update(dict.fromkeys(lane.rows_of(prompt.prompt_id), batch))

    def serve(self, version: int) -> None:
        """Rollouts generate with `version` from now on."""
        self.serving = version
        self.training.forget_kv()
        self.evaluation.forget_kv()

    def _lane(self, number: int) -> Lane:
        return self.evaluation if number >= EVALUATION_BASE else self.training

    def take(self, who: Consumer, room: int, in_flight: int, now: float, *, training: bool) -> RolloutWork | None:
        """Prefill first, in large batches, unless enough samples are ready to fill the room; then samples.

        training: False while only an evaluation may go out.
        """
        lanes = [self.evaluation, self.training] if training else [self.evaluation]
        for lane in lanes:
            enough = not self.settings.deterministic and lane.samples.ready() >= room
            work = None if enough else self._take_prompts(lane, who, now)
            if work is not None:
                return work
        for lane in lanes:
            work = self._take_samples(lane, who, room, in_flight, now)
            if work is not None:
                return work
        return None

    def _take_prompts(self, lane: Lane, who: Consumer, now: float) -> RolloutWork | None:
        table, partition = lane.prompts, self._partition(who)
        room = self.settings.prefill_prompts
        count = room
        if not self.settings.deterministic:
            count = -(-_share(lane, who, room * lane.group_size) // lane.group_size)
        leased = table.lease(who.worker, count, now, self.settings.lease_s, partition)
        if not leased.rows:
            return None
        return RolloutWork(
            kind=WorkKind.PREFILL,
            version=self.serving,
            table=TableName.PROMPT,
            rows=leased.rows,
            attempts=leased.attempts,
            prompt_ids=leased.rows,
            prompts=[self._prompts[p].token_ids for p in leased.rows],
        )

    def _take_samples(self, lane: Lane, who: Consumer, room: int, in_flight: int, now: float) -> RolloutWork | None:
        table, partition = lane.samples, self._partition(who)
        count = room
        if self.settings.deterministic:
            if in_flight or any(x.prompts.ready(partition) + x.prompts.held_by(who.worker) for x in self._lanes):
                return None
        else:
            count = _share(lane, who, room)
        leased = table.lease(who.worker, count, now, self.settings.lease_s, partition)
        if not leased.rows:
            return None
        lane.dispatched(leased.rows, self.serving)
        prompts = [lane.prompt_of(row) for row in leased.rows]
        greedy = lane is self.evaluation and self.settings.evaluation is not None and self.settings.evaluation.greedy
        return RolloutWork(
            kind=WorkKind.DECODE,
            version=self.serving,
            table=lane.table,
            rows=leased.rows,
            attempts=leased.attempts,
            prompt_ids=[p.prompt_id for p in prompts],
            sample_indices=[row % lane.group_size for row in leased.rows],
            prompts=[p.token_ids for p in prompts],
            kv_keys=[p.kv_key for p in prompts],
            greedy=greedy,
            max_response_tokens=self.settings.max_response_tokens,
            first_step=min(self._batch_of[row].index for row in leased.rows) + 1,
        )

    @property
    def _lanes(self) -> tuple[Lane, Lane]:
        return self.evaluation, self.training

    def _partition(self, who: Consumer) -> int:
        return who.group if self.settings.deterministic else 0

    def complete_prefill(self, message: CompletePrefill) -> None:
        if not message.rows:
            return
        accepted = self._lane(message.rows[0]).complete_prefill(message, self.serving)
        kv = self.totals.kv
        update = {"puts": kv.puts + accepted, "bytes": kv.bytes + sum(message.kv_bytes)}
        self.totals.kv = kv.model_copy(update=update)

    def complete_rollout(self, message: CompleteRollout) -> list[bool]:
        """Accepted samples go on to be scored. A pack without any accepted sample is garbage."""
        if not message.rows:
            return []
        finished = self._lane(message.rows[0]).complete_rollout(message)
        kept = [sample for sample in finished if sample is not None]
        for sample in kept:
            batch = self._batch_of[sample.row]
            batch.samples[sample.row] = sample
        rows = [sample.row for sample in kept]
        self.rewards.offer(rows, rows)
        self._count(message, kept)
        if kept:
            self._pack_users[message.pack_key] = len(kept)
        elif message.pack_key not in self._pack_users:
            self.garbage.append(message.pack_key)
        return [sample is not None for sample in finished]

    def _count(self, message: CompleteRollout, kept: Sequence[Sample]) -> None:
        totals, kv = self.totals, self.totals.kv
        totals.kv = kv.model_copy(update={"hits": kv.hits + message.kv_hits, "misses": kv.misses + message.kv_misses})
        totals.tokens_generated += sum(sample.response_tokens for sample in kept)
        if message.first_token_at is not None:
            totals.first_token_at = min(totals.first_token_at or message.first_token_at, message.first_token_at)
            self.first_token_at = min(self.first_token_at or message.first_token_at, message.first_token_at)
        if kept and message.table is TableName.ROLLOUT:
            queue = totals.queue
            totals.queue = queue.model_copy(
                update={
                    "samples": queue.samples + len(kept),
                    "payload_bytes": queue.payload_bytes + message.pack_bytes,
                }
            )

    def take_reward(self, who: Consumer, room: int, now: float) -> RewardWork | None:
        held = [self.rewards.held_by(worker) for worker in who.peers]
        count = fair_share(self.rewards.ready(), held, self.rewards.held_by(who.worker), room)
        leased = self.rewards.lease(who.worker, count, now, self.settings.lease_s)
        if not leased.rows:
            return None
        samples = [self._batch_of[row].samples[row] for row in leased.rows]
        prompts = [self._prompts[sample.prompt_id] for sample in samples]
        return RewardWork(
            kind=WorkKind.DECODE,
            rows=leased.rows,
            attempts=leased.attempts,
            pack_keys=[sample.pack_key for sample in samples],
            slots=[sample.slot for sample in samples],
            prompts=[prompt.text for prompt in prompts],
            answers=[prompt.answer for prompt in prompts],
            fields=[dict(prompt.fields) for prompt in prompts],
        )

    def complete_reward(self, message: CompleteReward) -> list[bool]:
        """Scores of samples. A reward that is no number is the user's mistake (InvalidInputError)."""
        for row, reward in zip(message.rows, message.rewards, strict=True):
            if not math.isfinite(reward):
                raise InvalidInputError("spec.reward", reward, f"is what row {row} scored", "return a finite number")
        self.rewards.release(message.returned_rows, message.returned_attempts)
        accepted = self.rewards.commit(message.rows, message.attempts)
        for i, row in enumerate(message.rows):
            if accepted[i]:
                batch = self._batch_of[row]
                sample = batch.samples[row]
                sample.reward, sample.exact = message.rewards[i], message.exact[i]
                sample.response = message.responses[i] if message.responses else ""
                batch.unscored -= 1
        self.totals.reward_timeouts += message.timed_out
        return accepted

    def lost(self, message: CompleteReward) -> str:
        """What a reward worker did not find in the store, in words; empty where its leases are over: packs go once
        their rows are trained."""
        pairs = zip(message.lost_rows, message.lost_attempts, strict=True)
        rows = [row for row, attempt in pairs if self.rewards.holds(row, attempt)]
        if not rows:
            return ""
        batch = self._batch_of[rows[0]]
        of = f"the evaluation after step {batch.index}" if rows[0] >= EVALUATION_BASE else f"step {batch.index + 1}"
        keys = {self._batch_of[row].samples[row].pack_key for row in rows}
        return f"samples of {of} are lost: {len(keys)} packs are gone from the store, first {min(keys)}"

    def retire(self, batch: Batch) -> None:
        """A batch is trained (an evaluation counted): its rows are forgotten, packs without other users are garbage."""
        for row, sample in batch.samples.items():
            del self._batch_of[row]
            self._pack_users[sample.pack_key] -= 1
            if not self._pack_users[sample.pack_key]:
                del self._pack_users[sample.pack_key]
                self.garbage.append(sample.pack_key)
        for prompt in batch.prompts:
            del self._prompts[prompt.prompt_id]

    def release(self, worker: int) -> None:
        """A worker is lost: all its rows return."""
        for lane in self._lanes:
            lane.release(worker)
        self.rewards.release_consumer(worker)

    def renew(self, worker: int, now: float) -> None:
        """A worker is alive: it keeps its rows, however long they take."""
        for table in (*self._lanes, self.rewards):
            table.renew(worker, now + self.settings.lease_s)

    def expire(self, now: float) -> None:
        for lane in self._lanes:
            lane.expire(now)
        self.rewards.expire(now)

    def collect_garbage(self) -> tuple[str, ...]:
        """Keys to remove from the store, each named once. A prompt whose KV found no room has none."""
        out = tuple(key for key in (*self.garbage, *self.training.garbage, *self.evaluation.garbage) if key)
        self.garbage.clear()
        self.training.garbage.clear()
        self.evaluation.garbage.clear()
        return out


def _share(lane: Lane, who: Consumer, room: int) -> int:
    """Samples a group takes of a lane; prompts still in prefill count as the samples they will become."""
    size, prompts, samples = lane.group_size, lane.prompts, lane.samples
    held = {w: samples.held_by(w) + size * prompts.held_by(w) for w in who.peers}
    return fair_share(samples.ready() + size * prompts.ready(), list(held.values()), held[who.worker], room)
