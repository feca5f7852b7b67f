"""A policy on one rank: base of every family's module, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rljob_core.layouts import ExpertMap, Layout, TensorSpec
from rljob_core.models import ModelConfig
from rljob_workers.model.attention import Attention, Cached, Causal, Recorded

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where this rank stands: which experts it holds and with whom it exchanges tokens."""

    layout: Layout = field(default_factory=Layout)
    rank: int = 0
    ep_group: dist.ProcessGroup | None = None
    """Process group of `layout.ep_group(rank)`; None when ep is 1."""
    expert_map: ExpertMap | None = None
    deterministic: bool = False
    """Compute experts in the form whose shapes do not depend on routing."""

    def experts(self, layer: int, num_experts: int) -> list[Sequence[int]]:
        """Expert ids of a MoE layer by expert-parallel rank, in slot order."""
        peers = self.layout.ep_group(self.rank)
        return [self.layout.experts(peer, layer, num_experts, self.expert_map) for peer in peers]


class RoutingCounts:
    """Exact tokens a MoE layer and expert over the tokens of a mask.

    counts_LE: [MoE layers, experts] int64, of this rank's own tokens: sum over ranks for the whole batch.
    """

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        shape = (len(config.moe_layers), config.num_experts)
        self.counts_LE = torch.zeros(shape, dtype=torch.int64, device=device)
        self.mask: Tensor | None = None

    def over(self, mask_BT: Tensor) -> RoutingCounts:
        """Count the next forward over the tokens where mask is true: all but padding and each row's last token,
        which is sampled but never routed (rl.md 46)."""
        self.mask = mask_BT.flatten()
        return self

    def add(self, layer: int, ids_NK: Tensor) -> None:
        assert self.mask is not None, "over() comes first"
        self.counts_LE[layer] += torch.bincount(ids_NK[self.mask].flatten(), minlength=self.counts_LE.shape[1])


def routed_mask(lengths_B: Tensor, tokens: int) -> Tensor:
    """[B, tokens] true for tokens that are routed for a next token: all of a row but its last."""
    return torch.arange(tokens, device=lengths_B.device) < (lengths_B - 1).unsqueeze(1)


class Policy(nn.Module):
    """Local shard of a causal language model; parameters carry `transformers` v5 names.

    A family implements `hidden` (backbone) and `head`. Parameters are uninitialised until `load_tensors` or a pull.
    """

    config: ModelConfig
    specs: Sequence[TensorSpec]
    placement: Placement

    def hidden(
        self, ids_BT: Tensor, positions: Tensor, attention: Attention, counts: RoutingCounts | None = None
    ) -> Tensor:
        """Final hidden states, normalised, [B, T, H]. positions: [T], or [B, T]."""
        raise NotImplementedError

    def head(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of hidden states [..., H]."""
        raise NotImplementedError

    def forward(self, ids_BT: Tensor, counts: RoutingCounts | None = None) -> Tensor:
        """Logits [B, T, V]; rows padded to the right by any valid id."""
        positions = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        return self.head(self.hidden(ids_BT, positions, Causal(), counts))

    def prefill(self, ids_BT: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Logits after each row's last token [B, V], and its keys and values [layers, 2, B, K, T, D]."""
        recorded = Recorded()
        hidden = self.hidden(ids_BT, torch.arange(ids_BT.shape[1], device=ids_BT.device), recorded)
        last = hidden[torch.arange(ids_BT.shape[0], device=ids_BT.device), lengths_B - 1]
        layers = [torch.stack(pair) for pair in zip(recorded.keys, recorded.values, strict=True)]
        return self.head(last), torch.stack(layers).transpose(3, 4)

    def decode(self, ids_B: Tensor, positions_B: Tensor, cache: Tensor) -> Tensor:
        """Logits after one more token a row, [B, V]; cache: [layers, 2, B, K, L, D], extended in place."""
        attention = Cached(cache, positions_B)
        return self.head(self.hidden(ids_B.unsqueeze(1), positions_B.unsqueeze(1), attention)).squeeze(1)

    def local_tensors(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers of this rank by name, sharing memory with the module: what a sync
        must write (rl.md 11)."""
        return {name: tensor.detach() for name, tensor in self.state_dict(keep_vars=True).items()}

    def load_tensors(self, full: Mapping[str, Tensor]) -> None:
        """Copy this rank's slices out of whole tensors; every local tensor is written exactly once."""
        local = self.local_tensors()
        at = self.placement
        slices = at.layout.slices(at.rank, self.specs, at.expert_map)
        assert slices.keys() == local.keys(), f"unplaced: {slices.keys() ^ local.keys()}"
        for name, pieces in slices.items():
            for piece in pieces:
                target = tuple(slice(a, a + n) for a, n in zip(piece.at, piece.shape, strict=True))
                source = tuple(slice(low, high) for low, high in zip(piece.lo, piece.hi, strict=True))
                local[name][target].copy_(full[name][source])
