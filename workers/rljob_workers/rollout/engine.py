"""Generation on one rank of a rollout group, in plain torch: prefill, then decode over a slot cache.

n rows in use, V vocabulary. One call of `step` is: new sequences join, tokens of the last step go through the model
(one forward for all), each row draws its next token. A rank of a larger group with nothing to do still takes part in
the forwards, because experts are reached by all-to-all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rljob_core.errors import RLJobError
from rljob_workers.model import Policy
from rljob_workers.rollout.kv_cache import Block, BlockCodec, KVCache
from rljob_workers.rollout.sampling import draw, uniforms
from rljob_workers.rollout.sequences import Sequences
from rljob_workers.seams import Finished


class EngineState(StrEnum):
    ASLEEP = "asleep"
    LOADING = "loading"
    READY = "ready"


class EngineStateError(RLJobError):
    """A call the engine's state does not allow, such as weights into a sleeping engine (trl#5142)."""


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """Sizes fixed at start."""

    max_sequences: int
    """Sequences decoded at once on this rank."""
    max_prompt_tokens: int
    max_response_tokens: int
    prefill_rows: int = 64
    """Prompts of one prefill forward."""


class TorchEngine:
    """Implements `rljob_workers.seams.Engine`.

    policy: this rank's shard; a deterministic one also fixes batch shapes (every slot, every position).
    eos_ids: ids that end a response. temperature: above 0. group: host (gloo) group over all ranks of the rollout
    group, None when there is one rank; its ranks call `prefill` and `step` together.
    """

    def __init__(
        self,
        policy: Policy,
        limits: EngineLimits,
        *,
        eos_ids: Sequence[int],
        temperature: float = 1.0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.policy, self.limits, self.temperature, self.group = policy, limits, temperature, group
        parameter = next(policy.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.fixed_shapes = policy.placement.deterministic
        self.state, self.version = EngineState.LOADING, -1
        self._codec = BlockCodec(policy.config, self.dtype)
        self._sequences = Sequences(limits.max_sequences, limits.max_response_tokens, eos_ids)
        self._cache: KVCache | None = None
        self._blocks: list[tuple[int, int, Block]] = []
        self._without_kv: list[tuple[int, tuple[int, ...]]] = []

    @property
    def in_flight(self) -> int:
        """Sequences admitted and not finished, on this rank."""
        return self._sequences.in_flight

    def load(self, version: int) -> Mapping[str, Tensor]:
        """Enter loading; returns the local tensors (parameters and buffers) a pull must fill."""
        self._require(EngineState.LOADING, EngineState.READY)
        if self.in_flight:
            raise EngineStateError(f"weights of version {version} while {self.in_flight} sequences are in flight")
        self.state, self.version = EngineState.LOADING, version
        return self.policy.local_tensors()

    def ready(self, version: int) -> None:
        """Leave loading: the tensors now hold `version`."""
        self._require(EngineState.LOADING)
        if version != self.version or version < 0:
            raise EngineStateError(f"version {version} is ready, but {self.version} was loading")
        if self._cache is None:
            limits = self.limits
            positions = limits.max_prompt_tokens + limits.max_response_tokens
            self._cache = KVCache(self.policy.config, limits.max_sequences, positions, self.dtype, self.device)
        self.state = EngineState.READY

    def sleep(self) -> None:
        """Free the cache. Only with nothing in flight."""
        self._require(EngineState.LOADING, EngineState.READY)
        if self.in_flight:
            raise EngineStateError(f"sleep while {self.in_flight} sequences are in flight")
        self._cache = None
        self.state = EngineState.ASLEEP

    def wake(self) -> None:
        """Back to loading: weights must be loaded and proven before the next token (trl#5312)."""
        self._require(EngineState.ASLEEP)
        self.state, self.version = EngineState.LOADING, -1

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[bytes]:
        """The KV block of each prompt, with the logits after its last token. All ranks of a group call together."""
        self._require(EngineState.READY)
        chunks = self._largest(self._chunks(len(prompts)))
        return [
            block
            for part, logits, kv in self._forward_prompts([tuple(p) for p in prompts], chunks)
            for block in self._codec.encode(self.version, kv, logits, [len(p) for p in part])
        ]

    def admit(
        self,
        slot: int,
        prompt: Sequence[int],
        kv: bytes | None,
        *,
        max_tokens: int,
        greedy: bool,
        seed: int,
    ) -> None:
        """Add a sequence. kv: block of exactly this prompt and version (KVBlockError otherwise, and nothing is
        added), None to recompute in the next `step`. seed: any integer; with the token's number it gives the draw."""
        self._require(EngineState.READY)
        assert 1 <= len(prompt) <= self.limits.max_prompt_tokens, f"prompt of {len(prompt)} tokens"
        block = None if kv is None else self._codec.decode(kv, self.version, len(prompt))
        row = self._sequences.join(slot, len(prompt), max_tokens, greedy, seed)
        if block is None:
            self._without_kv.append((row, tuple(prompt)))
        else:
            self._blocks.append((len(prompt), row, block))

    @torch.inference_mode()
    def step(self) -> list[Finished]:
        """One token for every admitted sequence; returns what ended. All ranks of a group call together, until
        none has any in flight."""
        self._require(EngineState.READY)
        self._join_blocks()
        unseen = list(dict.fromkeys(prompt for _, prompt in self._without_kv))
        pending = bool(self._sequences.pending.any())
        chunks, forward = self._agree(self._chunks(len(unseen)), pending)
        if chunks:
            self._recompute(unseen, chunks)
        if forward:
            self._forward_newest()
        return self._draw()

    def _require(self, *states: EngineState) -> None:
        if self.state not in states:
            raise EngineStateError(f"engine is {self.state}, not {' or '.join(states)}")

    def _chunks(self, prompts: int) -> int:
        return -(-prompts // self.limits.prefill_rows)

    def _largest(self, value: int) -> int:
        if self.group is None:
            return value
        out = torch.tensor(value)
        dist.all_reduce(out, dist.ReduceOp.MAX, group=self.group)
        return int(out)

    def _agree(self, chunks: int, pending: bool) -> tuple[int, bool]:
        """What the group does in this step: chunks of recomputed prompts, a forward or not."""
        if self.group is None:
            return chunks, pending
        most = torch.tensor([chunks, pending])
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.group)
        return int(most[0]), bool(most[1])

    @torch.inference_mode()
    def _forward_prompts(
        self, prompts: Sequence[tuple[int, ...]], chunks: int
    ) -> Iterator[tuple[Sequence[tuple[int, ...]], Tensor, Tensor]]:
        """(prompts, logits [B, V], keys and values [layers, 2, B, K, T, D]) of each chunk; empty chunks included,
        the rank then only serves its experts."""
        rows = self.limits.prefill_rows
        for c in range(chunks):
            part = prompts[c * rows : (c + 1) * rows]
            shape = (len(part), max((len(p) for p in part), default=1))
            if self.fixed_shapes:
                shape = (rows, self.limits.max_prompt_tokens)
            ids, lengths = np.zeros(shape, np.int64), np.ones(shape[0], np.int64)
            for row, prompt in enumerate(part):
                ids[row, : len(prompt)], lengths[row] = prompt, len(prompt)
            logits, kv = self.policy.prefill(self._to_device(ids), self._to_device(lengths))
            yield part, logits[: len(part)], kv[:, :, : len(part)]

    def _join_blocks(self) -> None:
        """Copy the blocks of new sequences into their slots, one copy a prompt length."""
        if not self._blocks:
            return
        assert self._cache is not None
        by_length = sorted(self._blocks, key=itemgetter(0))
        for _, same in groupby(by_length, key=itemgetter(0)):
            _, rows, blocks = zip(*same, strict=True)
            self._cache.insert_blocks(rows, blocks)
        self._blocks.clear()

    def _recompute(self, prompts: Sequence[tuple[int, ...]], chunks: int) -> None:
        """Prefill the prompts that came without KV, each once, into all slots that wait for them."""
        assert self._cache is not None
        waiting: dict[tuple[int, ...], list[int]] = {}
        for row, prompt in self._without_kv:
            waiting.setdefault(prompt, []).append(row)
        for part, logits, kv in self._forward_prompts(prompts, chunks):
            pairs = [(row, b) for b, prompt in enumerate(part) for row in waiting[prompt]]
            if pairs:
                rows, sources = zip(*pairs, strict=True)
                index = torch.tensor(sources, device=self.device)
                self._cache.insert(rows, kv[:, :, index], logits[index])
        self._without_kv.clear()

    def _forward_newest(self) -> None:
        """Put the newest token of every pending row through the model; rows without one compute to no effect."""
        assert self._cache is not None
        s = self._sequences
        if s.in_flight * 2 < s.extent and not self.fixed_shapes:
            self._cache.move(*s.compact())
        rows = self.limits.max_sequences if self.fixed_shapes else s.extent
        places = np.where(s.active[:rows], s.cached[:rows], 0)
        positions = self._cache.kv.shape[4] if self.fixed_shapes else int(places.max(initial=0)) + 1
        tokens, pending = self._to_device(s.newest(rows)), self._to_device(s.pending[:rows])
        logits = self.policy.decode(tokens, self._to_device(places), self._cache.window(rows, positions))
        kept = self._cache.logits_SV[:rows]
        kept.copy_(torch.where(pending.unsqueeze(1), logits.float(), kept))
        s.fed()

    def _draw(self) -> list[Finished]:
        assert self._cache is not None
        s = self._sequences
        rows = s.extent
        numbers = self._to_device(uniforms(s.seeds[:rows], s.generated[:rows]))
        logits = self._cache.logits_SV[:rows]
        tokens, logprobs = draw(logits, self.temperature, self._to_device(s.greedy[:rows]), numbers)
        return s.record(tokens.cpu().numpy(), logprobs.cpu().numpy())

    def _to_device(self, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
        return torch.from_numpy(array).to(self.device)
