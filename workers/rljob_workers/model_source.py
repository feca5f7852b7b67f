"""The job's model as the spec names it: a Hugging Face directory, or a config with a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from rljob_core.api.inputs import Model
from rljob_workers.model import initial_tensors, read_config, read_directory


def model_config(model: Model) -> dict[str, Any]:
    """config.json. InvalidInputError when it cannot be read."""
    if model.path is not None:
        return read_config(Path(model.path))
    assert model.init is not None, "the one-of rule of spec.model"
    return dict(model.init.config)


def model_tensors(model: Model) -> dict[str, Tensor]:
    """Whole tensors of the initial policy, in `model.dtype`."""
    if model.path is not None:
        return read_directory(Path(model.path), model.dtype)[1]
    assert model.init is not None, "the one-of rule of spec.model"
    return initial_tensors(model.init.config, model.init.seed, model.dtype)
