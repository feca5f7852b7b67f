"""What the module of a model family provides, beside its description in `rljob_core.models`; listed in `registry`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rljob_core.layouts import TensorSpec
from rljob_core.models import ModelConfig
from rljob_workers.model.policy import Placement, Policy


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A tensor on disk and the part of the in-memory tensor it fills (`index` as in `tensor[index]`)."""

    name: str
    index: tuple[int | slice, ...]


@dataclass(frozen=True, kw_only=True)
class Family:
    """The functions a family file exports."""

    model_type: str
    """`model_type` of its config.json."""
    architecture: str
    """Class name `transformers` loads it with."""
    pieces: Callable[[TensorSpec], Sequence[Piece]]
    build: Callable[[ModelConfig, Placement], Policy]
