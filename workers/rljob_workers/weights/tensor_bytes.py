"""Bytes of boxes of local tensors, without a copy where the tensor lies contiguous in host memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from rljob_core.errors import WeightMismatchError
from rljob_core.layouts import ExpertMap, Layout, Slice, TensorSpec
from rljob_workers.weights.manifest import Entry


def local_box(tensor: torch.Tensor, piece: Slice, entry: Entry) -> torch.Tensor:
    """View of the entry's box in the rank's local tensor."""
    index = tuple(
        slice(low - start + at, high - start + at)
        for low, high, start, at in zip(entry.lo, entry.hi, piece.lo, piece.at, strict=True)
    )
    return tensor.detach()[index]


def read_bytes(box: torch.Tensor) -> memoryview:
    """The box's elements in C order."""
    flat = box.reshape(-1).view(torch.uint8)
    return flat.cpu().numpy().data


def write_bytes(box: torch.Tensor, data: memoryview) -> None:
    """Fill the box from its elements in C order; data may go afterwards."""
    box.copy_(torch.frombuffer(data, dtype=box.dtype).view(box.shape))


def check_local(
    tensors: Sequence[TensorSpec],
    local: Mapping[str, torch.Tensor],
    layout: Layout,
    rank: int,
    expert_map: ExpertMap | None,
) -> None:
    """Every tensor of the model is there, in the shape and type this rank must hold."""
    for spec in tensors:
        shape = layout.local_shape(rank, spec, expert_map)
        if spec.name not in local:
            raise WeightMismatchError(f"{spec.name}: missing on rank {rank}")
        held = local[spec.name]
        if tuple(held.shape) != shape or held.dtype is not getattr(torch, spec.dtype):
            raise WeightMismatchError(
                f"{spec.name}: rank {rank} holds {tuple(held.shape)} {held.dtype}, not {shape} {spec.dtype}"
            )


def aliases(tensors: Sequence[TensorSpec], local: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Tensor -> the earlier one it shares memory with (tied embeddings)."""
    first: dict[tuple[object, ...], str] = {}
    out = {}
    for spec in tensors:
        held = local[spec.name]
        if held.numel():
            memory = (held.device, held.data_ptr(), tuple(held.shape), held.stride())
            owner = first.setdefault(memory, spec.name)
            if owner != spec.name:
                out[spec.name] = owner
    return out
