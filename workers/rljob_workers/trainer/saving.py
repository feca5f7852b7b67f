"""A trainer's part of checkpoints: what is written by which rank, and how it comes back.

Each rank writes its optimizer state (its own experts only), RNG and, where it changes, its shard of the reference;
rank 0 adds the whole model as a Hugging Face directory and the coordinator's state. The weights come back from
`model/`, bit for bit in the type they are kept in; float32 weights behind a bfloat16 policy are part of the optimizer
state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from rljob_core.api.roles import TrainerLayout
from rljob_core.errors import InvalidInputError
from rljob_core.models import ModelConfig
from rljob_workers import checkpoints
from rljob_workers.checkpoints import Checkpoint, CheckpointMeta
from rljob_workers.model import write_directory
from rljob_workers.text import Tokenizer
from rljob_workers.trainer.host import Host
from rljob_workers.trainer.learner import Learner

CPU_RNG, DEVICE_RNG = "rng/cpu", "rng/device"
REFERENCE = "reference/"


@dataclass(frozen=True, kw_only=True)
class Saver:
    """Writes checkpoints of one job into `directory`, shared by all trainer ranks."""

    directory: Path
    keep: int
    seed: int
    layout: TrainerLayout
    config: Mapping[str, Any]
    tokenizer: Tokenizer
    host: Host

    def write(self, learner: Learner, *, step: int, version: int, coordinator_state: Mapping[str, Any]) -> None:
        """Write, publish atomically, prune. All ranks call together and return once it is visible."""
        building = self.host.from_rank_0(lambda: checkpoints.begin(self.directory, step))
        reference = {REFERENCE + name: tensor for name, tensor in learner.reference_tensors().items()}
        part = {**learner.optimizer.state(), **rng_state(learner.device), **reference}
        checkpoints.write_file(checkpoints.part_path(building, self.host.rank), save(part))
        tensors = self.host.whole_tensors(learner.policy)
        self.host.barrier()
        if self.host.rank == 0:
            self._finish(building, tensors, step, version, coordinator_state)
        self.host.barrier()

    def _finish(
        self, building: Path, tensors: Mapping[str, Tensor], step: int, version: int, state: Mapping[str, Any]
    ) -> None:
        write_directory(
            building / checkpoints.MODEL,
            self.config,
            tensors,
            self.tokenizer.files(),
            eos_ids=self.tokenizer.eos_ids,
            pad_id=self.tokenizer.pad_id,
        )
        checkpoints.write_file(building / checkpoints.COORDINATOR, json.dumps(state).encode())
        meta = CheckpointMeta(step=step, version=version, world=self.host.world, layout=self.layout, seed=self.seed)
        checkpoints.finish(building, meta)
        checkpoints.prune(self.directory, step, self.keep)


def find(directory: Path, host: Host) -> Checkpoint | None:
    """The checkpoint to resume from, the same on every rank; rank 0 clears what a crash left."""

    def newest() -> Checkpoint | None:
        checkpoints.clean(directory)
        return checkpoints.newest(directory)

    return host.from_rank_0(newest)


def check(checkpoint: Checkpoint, world: int, layout: TrainerLayout) -> None:
    """InvalidInputError when the checkpoint's parts belong to another layout of ranks."""
    meta = checkpoint.meta
    if meta.world != world or meta.layout != layout:
        raise InvalidInputError(
            "spec.trainer.layout",
            str(layout),
            f"differs from the layout of checkpoint {checkpoint.path} ({meta.layout}, {meta.world} ranks)",
            "restore the layout, or start a new job with model.path set to that checkpoint's model directory",
        )


def check_model(checkpoint: Checkpoint, theirs: ModelConfig, ours: ModelConfig) -> None:
    """InvalidInputError when the checkpoint is of another model: its tensors would be cut to fit, or missing."""
    have, want = asdict(theirs), asdict(ours)
    for key in have | want:
        if have.get(key) != want.get(key):
            raise InvalidInputError(
                "spec.model",
                f"{key} {want.get(key)}",
                f"differs from the model of checkpoint {checkpoint.path} ({have.get(key)})",
                "restore the model, or give the job another name",
            )


def restore(checkpoint: Checkpoint, learner: Learner, rank: int) -> None:
    """Optimizer state, RNG and the reference, where it changes, of this rank."""
    part = load_file(checkpoint.trainer_part(rank))
    reference = {n.removeprefix(REFERENCE): t for n, t in part.items() if n.startswith(REFERENCE)}
    if reference and learner.algorithm.kl_coefficient:
        learner.load_reference(reference)
    learner.optimizer.load_state(part)
    torch.set_rng_state(part[CPU_RNG])
    if DEVICE_RNG in part:
        torch.get_device_module(learner.device).set_rng_state(part[DEVICE_RNG])


def rng_state(device: torch.device) -> dict[str, Tensor]:
    """uint8 tensors."""
    states = {CPU_RNG: torch.get_rng_state()}
    if device.type != "cpu":
        states[DEVICE_RNG] = torch.get_device_module(device).get_rng_state()
    return states
