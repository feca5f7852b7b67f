"""Layouts: which slice of which tensor a rank holds.

world = dp x tp x pp; ep divides dp x tp and re-partitions those ranks for the expert layers only. Everything that
moves weights is a plan between two layouts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rljob_core.errors import InvalidInputError


class TensorKind(StrEnum):
    """How a tensor is sharded."""

    REPLICATED = "replicated"
    EXPERT = "expert"  # dim 0 indexes experts


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One parameter or buffer of the whole model, under its in-memory name (`transformers` v5)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: TensorKind = TensorKind.REPLICATED
    layer: int = -1
    """MoE layer number (0-based, counting MoE layers only) of an expert tensor."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A box of a tensor and where it lies in the rank's local tensor.

    lo, hi: half-open box in the whole tensor, one entry a dimension. at: index of the box's first element in the
    local tensor.
    """

    tensor: str
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    at: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(h - low for low, h in zip(self.lo, self.hi, strict=True))


ExpertMap = Sequence[Sequence[Sequence[int]]]
"""[MoE layer][expert-parallel rank] -> expert ids in slot order."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Parallel degrees of one world."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for field in ("dp", "tp", "pp", "ep"):
            if getattr(self, field) < 1:
                raise InvalidInputError(f"layout.{field}", getattr(self, field), "is below 1", "use 1 or more")
        if (self.dp * self.tp) % self.ep:
            raise InvalidInputError(
                "layout.ep", self.ep, f"does not divide dp x tp = {self.dp * self.tp}", "use a divisor of it"
            )

    @property
    def world(self) -> int:
        return self.dp * self.tp * self.pp

    def dp_rank(self, rank: int) -> int:
        return rank // self.tp % self.dp

    def ep_rank(self, rank: int) -> int:
        """Position inside the rank's expert-parallel group (neighbouring ranks form a group)."""
        return rank % (self.dp * self.tp) % self.ep

    def ep_group(self, rank: int) -> tuple[int, ...]:
        """Ranks among which this rank's experts are spread."""
        first = rank - self.ep_rank(rank)
        return tuple(range(first, first + self.ep))

    def experts(self, rank: int, layer: int, num_experts: int, expert_map: ExpertMap | None = None) -> tuple[int, ...]:
        """Expert ids the rank holds in a MoE layer, in slot order; contiguous without a map."""
        if expert_map is not None:
            return tuple(expert_map[layer][self.ep_rank(rank)])
        if num_experts % self.ep:
            raise InvalidInputError(
                "layout.ep",
                self.ep,
                f"does not divide the model's {num_experts} experts",
                "use a divisor of it",
            )
        share = num_experts // self.ep
        first = self.ep_rank(rank) * share
        return tuple(range(first, first + share))

    def slices(
        self, rank: int, tensors: Sequence[TensorSpec], expert_map: ExpertMap | None = None
    ) -> dict[str, tuple[Slice, ...]]:
        """Every slice the rank holds, by tensor name. Experts that follow each other share one slice."""
        return {t.name: self._tensor_slices(rank, t, expert_map) for t in tensors}

    def _tensor_slices(self, rank: int, t: TensorSpec, expert_map: ExpertMap | None) -> tuple[Slice, ...]:
        zeros = tuple(0 for _ in t.shape)
        if t.kind is TensorKind.REPLICATED:
            return (Slice(tensor=t.name, lo=zeros, hi=t.shape, at=zeros),)
        runs: list[list[int]] = []
        for expert in self.experts(rank, t.layer, t.shape[0], expert_map):
            if runs and runs[-1][-1] + 1 == expert:
                runs[-1].append(expert)
            else:
                runs.append([expert])
        out, slot = [], 0
        for run in runs:
            out.append(
                Slice(
                    tensor=t.name,
                    lo=(run[0], *zeros[1:]),
                    hi=(run[-1] + 1, *t.shape[1:]),
                    at=(slot, *zeros[1:]),
                )
            )
            slot += len(run)
        return tuple(out)

    def local_shape(self, rank: int, t: TensorSpec, expert_map: ExpertMap | None = None) -> tuple[int, ...]:
        """Shape of the rank's local tensor."""
        if t.kind is TensorKind.EXPERT:
            return (len(self.experts(rank, t.layer, t.shape[0], expert_map)), *t.shape[1:])
        return t.shape

    def owner(self, t: TensorSpec, expert_map: ExpertMap | None = None) -> Mapping[int, tuple[Slice, ...]]:
        """Who publishes what: each element exactly once. rank -> slices.

        A replicated tensor belongs to one rank, spread over ranks by a stable hash of its name; experts to the first
        rank that holds them.
        """
        if t.kind is TensorKind.REPLICATED:
            rank = sum(t.name.encode()) % self.world
            return {rank: self._tensor_slices(rank, t, expert_map)}
        return {r: self._tensor_slices(r, t, expert_map) for r in range(self.ep)}

    def published_elements(self, tensors: Sequence[TensorSpec], expert_map: ExpertMap | None = None) -> list[int]:
        """How much each rank publishes of one version, in rank order."""
        out = [0] * self.world
        for t in tensors:
            for rank, pieces in self.owner(t, expert_map).items():
                out[rank] += sum(math.prod(piece.shape) for piece in pieces)
        return out
