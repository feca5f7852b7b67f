"""What a model family provides; one file a family, listed in `registry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rljob_core.layouts import TensorSpec
from rljob_workers.model.config import ModelConfig
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
    parse: Callable[[Mapping[str, Any], str], ModelConfig]
    """(config.json, path of it as the user wrote it) -> checked config; raises InvalidInputError."""
    specs: Callable[[ModelConfig], list[TensorSpec]]
    pieces: Callable[[TensorSpec], Sequence[Piece]]
    build: Callable[[ModelConfig, Placement], Policy]
