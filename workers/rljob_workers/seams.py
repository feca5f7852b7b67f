"""Protocols at which the data plane may be exchanged; one contract suite runs against each implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rljob_core.errors import RLJobError

if TYPE_CHECKING:
    import torch

    from rljob_core.layouts import ExpertMap, Layout, TensorSpec


class KVStore(Protocol):
    """Bytes under keys, hard-pinned, within a byte budget per use. Batched; order of results = order of keys.

    Keys are relative (`kv/3/ab12`); the implementation prefixes the job's uid. All methods raise StoreError.
    """

    def put(self, items: Mapping[str, bytes | memoryview]) -> None:
        """Store each value once; StoreFullError when budget or pool has no room (nothing is evicted for it).

        A key that exists already keeps its old value in MooncakeStore; here that is an error unless equal in size.
        """
        ...

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Whole values; None where missing (counted as misses by the caller)."""
        ...

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int, int]], into: memoryview) -> None:
        """Copy (source offset, target offset, length) pieces of one value; StoreMissError when missing."""
        ...

    def remove(self, keys: Sequence[str]) -> None:
        """Remove, leased or not; missing keys are fine."""
        ...

    def sweep(self, prefix: str) -> int:
        """Remove every key of this job below a relative prefix; returns how many."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class TransferStats:
    """Bytes moved and seconds taken by one publish or pull."""

    bytes: int
    seconds: float


class WeightStore(Protocol):
    """Weights by policy version: each slice once, checksummed, pulled exactly as held."""

    def publish(
        self,
        version: int,
        rank: int,
        layout: Layout,
        tensors: Sequence[TensorSpec],
        local: Mapping[str, torch.Tensor],
        expert_map: ExpertMap | None = None,
    ) -> TransferStats:
        """Write the slices `layout.owner` gives this rank, in bounded buckets, and its manifest last."""
        ...

    def pull(
        self,
        version: int,
        rank: int,
        layout: Layout,
        tensors: Sequence[TensorSpec],
        into: Mapping[str, torch.Tensor],
        expert_map: ExpertMap | None = None,
    ) -> TransferStats:
        """Fill every local tensor exactly once; WeightMismatchError when coverage or a checksum is off."""
        ...

    def retire(self, keep: int) -> None:
        """Remove all but the newest `keep` versions this process has published."""
        ...


@dataclass(kw_only=True)
class Finished:
    """A decoded sample."""

    slot: int
    """Caller's handle given to `admit`."""
    token_ids: list[int]
    """Response, EOS included when sampled."""
    logprobs: list[float]
    """Log-probability of each response token under the full-vocabulary softmax at the sampling temperature."""
    finish_reason: str
    """`eos` or `length`."""


class KVBlockError(RLJobError):
    """A KV block that is damaged, of another model or of another policy version: recompute the prompt."""


class Engine(Protocol):
    """Generation on one rank of a rollout group. States: asleep, loading, ready(version)."""

    @property
    def in_flight(self) -> int:
        """Sequences admitted and not finished, on this rank."""
        ...

    def load(self, version: int) -> Mapping[str, torch.Tensor]:
        """Enter loading; returns the local tensors (parameters and buffers) a pull must fill."""
        ...

    def ready(self, version: int) -> None:
        """Leave loading: the tensors now hold `version`."""
        ...

    def prefill(self, prompts: Sequence[Sequence[int]]) -> list[bytes]:
        """One forward over the prompts; the KV block of each (all layers), with the logits of its last token."""
        ...

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
        """Add a sequence to the decode batch, from its prefill KV (KVBlockError when that is not of exactly this prompt
        and version; nothing is added then), or recomputed when kv is None."""
        ...

    def step(self) -> list[Finished]:
        """Decode one token of every admitted sequence; returns what ended. All ranks of a group call together."""
        ...

    def sleep(self) -> None:
        """Release KV memory; weights stay or go as the device kind needs."""
        ...

    def wake(self) -> None: ...
