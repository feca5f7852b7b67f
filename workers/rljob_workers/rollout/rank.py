"""What every rank of a rollout group does with its part of the work: pull, prefill, admit, step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rljob_core.api.messages import RolloutWork
from rljob_core.errors import StoreError, StoreFullError, StoreMissError, WeightMismatchError
from rljob_core.inputs.counter_rng import bits64
from rljob_core.layouts import Layout, TensorSpec
from rljob_workers import device
from rljob_workers.rollout.keys import kv_key
from rljob_workers.seams import Engine, Finished, KVBlockError, KVStore, TransferStats, WeightStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """Samples that ended in a step, and how many admitted before it had their KV in the store or not."""

    finished: list[Finished]
    kv_hits: int
    kv_misses: int


@dataclass
class RolloutRank:
    """seed: `algorithm.seed`; with prompt and sample it gives every draw, whoever decodes the sample and when."""

    engine: Engine
    store: KVStore
    weights: WeightStore
    layout: Layout
    rank: int
    specs: Sequence[TensorSpec]
    seed: int
    kv_hits: int = 0
    kv_misses: int = 0

    def pull(self, version: int) -> TransferStats | str:
        """Fill the engine with a version, proven by checksums; or why that failed, and the engine serves nothing."""
        into = self.engine.load(version)
        try:
            stats = self.weights.pull(version, self.rank, self.layout, self.specs, into)
        except (WeightMismatchError, StoreError) as error:
            return str(error)
        self.engine.ready(version)
        return stats

    def prefill(self, work: RolloutWork) -> list[tuple[str, int]]:
        """(key, bytes) of each prompt's KV, which lies in the store now; an empty key where it found no room (the
        samples are decoded all the same, and recompute it). Equal prompts are computed once.

        A key may be gone at once: an equal prompt of another group used it, and was done. That is a miss later.
        """
        keys = [kv_key(work.version, prompt) for prompt in work.prompts]
        distinct = dict(zip(keys, work.prompts, strict=True))
        blocks = dict(zip(distinct, self.engine.prefill(list(distinct.values())), strict=True))
        device.pace("prefill", sum(map(len, distinct.values())))
        try:
            self.store.put(blocks)
        except StoreFullError as error:
            log.warning("prefill KV of %d prompts found no room: %s", len(distinct), error)
            self.store.remove(list(blocks))
            return [("", 0)] * len(keys)
        except StoreMissError as error:
            log.info("%s", error)
        return [(key, len(blocks[key])) for key in keys]

    def admit(self, work: RolloutWork, handles: Sequence[int]) -> None:
        """Add samples to the decode batch, their KV fetched in one request; what is missing or damaged is recomputed
        and counted (rl.md 45)."""
        keys = list(dict.fromkeys(key for key in work.kv_keys if key))
        blocks = dict(zip(keys, self.store.get(keys) if keys else [], strict=True))
        for i, handle in enumerate(handles):
            block = blocks.get(work.kv_keys[i])
            if block is not None and self._admit(work, i, handle, block):
                self.kv_hits += 1
            else:
                self.kv_misses += 1
                self._admit(work, i, handle, None)

    def _admit(self, work: RolloutWork, i: int, handle: int, block: bytes | None) -> bool:
        try:
            self.engine.admit(
                handle,
                work.prompts[i],
                block,
                max_tokens=work.max_response_tokens,
                greedy=work.greedy,
                seed=bits64(self.seed, work.prompt_ids[i], work.sample_indices[i]),
            )
        except KVBlockError as error:
            log.warning("%s", error)
            return False
        return True

    def step(self) -> StepOutcome:
        """One decode step, and the KV counts since the last one."""
        device.pace("decode", self.engine.in_flight)
        outcome = StepOutcome(finished=self.engine.step(), kv_hits=self.kv_hits, kv_misses=self.kv_misses)
        self.kv_hits = self.kv_misses = 0
        return outcome
