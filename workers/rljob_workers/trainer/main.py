"""A trainer rank: take a command, train, publish, checkpoint; until told to stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from rljob_core import names
from rljob_core.api.directive import StageName
from rljob_core.api.messages import Ack, CheckpointDone, Published, StepDone, TakeTrain, TrainCommand, TrainWork
from rljob_core.errors import EXIT_DRAINED, InvalidInputError
from rljob_core.inputs.checks import config_field
from rljob_core.layouts import Layout, TensorSpec
from rljob_core.models import parse_config
from rljob_workers import device
from rljob_workers.checkpoints import Checkpoint
from rljob_workers.context import Context
from rljob_workers.kv_store import open_store
from rljob_workers.link import CoordinatorLink, register_message
from rljob_workers.model import Placement, Policy, build_policy, expert_parallel_group, read_directory, tensor_specs
from rljob_workers.model_source import model_config, model_tensors
from rljob_workers.seams import KVStore, WeightStore
from rljob_workers.store_budgets import trainer_budgets
from rljob_workers.text import load_tokenizer
from rljob_workers.trainer import saving
from rljob_workers.trainer.host import Host
from rljob_workers.trainer.learner import Learner
from rljob_workers.trainer.work import fetch, minibatches, zero_variance_share
from rljob_workers.weights import StoreWeights

TAKE_WAIT_S = 5.0
COLLECTIVE_TIMEOUT_S = 600.0


def main(context: Context) -> int:
    """Returns when the coordinator says stop: 0 when the goal is reached, 75 when not. Errors end the process; the
    coordinator is told the cause."""
    target = device.setup(context.device, context.local_rank, context.threads)
    layout = Layout(**context.spec.trainer.layout.model_dump())
    if context.spec.algorithm.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    with world(context), CoordinatorLink(context) as link:
        host = Host(layout, context.rank)
        checkpoint = saving.find(checkpoint_directory(context), host)
        link.start(register_message(context, resumed_step=checkpoint.meta.step if checkpoint else -1))
        learner = build(context, layout, host, target, checkpoint)
        specs = tensor_specs(model_config(context.spec.model), context.spec.model.dtype)
        with closing(open_store(context, trainer_budgets(context, layout, specs))) as store:
            rank = TrainerRank(context, link, store, StoreWeights(store), learner, saver(context, host), specs)
            rank.steps_done = checkpoint.meta.step if checkpoint else 0
            return EXIT_DRAINED if rank.run().unfinished else 0


def checkpoint_directory(context: Context) -> Path:
    if context.checkpoint_dir is None:
        raise InvalidInputError(
            names.ENV_CHECKPOINT_DIR, "", "is not set", "start trainers by `rljob run` or the operator"
        )
    return context.checkpoint_dir


@contextmanager
def world(context: Context) -> Iterator[None]:
    """torch.distributed over all trainer ranks, where there is more than one."""
    if context.world == 1:
        yield
        return
    dist.init_process_group(
        device.backend(context.device),
        init_method=f"tcp://{context.rendezvous}",
        rank=context.rank,
        world_size=context.world,
        timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def build(context: Context, layout: Layout, host: Host, target: torch.device, checkpoint: Checkpoint | None) -> Learner:
    """Policy and optimizer, from the checkpoint or from the start."""
    spec = context.spec
    config = model_config(spec.model)
    at = Placement(
        layout=layout,
        rank=context.rank,
        ep_group=expert_parallel_group(layout, context.rank),
        deterministic=spec.algorithm.deterministic,
    )

    def empty() -> Policy:
        return build_policy(config, at, dtype=spec.model.dtype, device=target, field=config_field(spec.model))

    policy = empty()
    if checkpoint is not None:
        saving.check(checkpoint, context.world, spec.trainer.layout)
        theirs, tensors = read_directory(checkpoint.model, spec.model.dtype)
        saving.check_model(checkpoint, parse_config(theirs), policy.config)
        policy.load_tensors(tensors)
    else:
        policy.load_tensors(model_tensors(spec.model))
    learner = Learner(
        policy,
        empty,
        spec.algorithm,
        temperature=spec.rollout.sampling.temperature,
        max_version_lag=spec.stale_sync.max_version_lag,
        host=host,
    )
    if spec.algorithm.kl_coefficient:
        learner.keep_reference(model_tensors(spec.model))
    torch.manual_seed(spec.algorithm.seed)
    if checkpoint is not None:
        saving.restore(checkpoint, learner, context.rank)
    return learner


def saver(context: Context, host: Host) -> saving.Saver:
    spec = context.spec
    return saving.Saver(
        directory=checkpoint_directory(context),
        keep=spec.checkpoint.keep,
        seed=spec.algorithm.seed,
        layout=spec.trainer.layout,
        config=model_config(spec.model),
        tokenizer=load_tokenizer(spec.model),
        host=host,
    )


@dataclass
class TrainerRank:
    """The command loop. version: what its weights were last published as; -1 before the first time."""

    context: Context
    link: CoordinatorLink
    store: KVStore
    weights: WeightStore
    learner: Learner
    saver: saving.Saver
    specs: list[TensorSpec]
    version: int = -1
    steps_done: int = 0

    def __post_init__(self) -> None:
        spec = self.context.spec
        longest = spec.data.max_prompt_tokens + spec.rollout.sampling.max_response_tokens
        self._fixed_tokens = longest if spec.algorithm.deterministic else None

    def run(self) -> TrainWork:
        """Follow the coordinator's commands to the last one, STOP."""
        while True:
            with self.link.stage(StageName.IDLE, self.steps_done):
                work = self.link.call(TakeTrain(wait_s=TAKE_WAIT_S), TrainWork)
            match work.command:
                case TrainCommand.WAIT:
                    continue
                case TrainCommand.PUBLISH:
                    self.publish(work)
                case TrainCommand.TRAIN:
                    self.train(work)
                case TrainCommand.CHECKPOINT:
                    self.checkpoint(work)
                case TrainCommand.STOP:
                    return work

    def train(self, work: TrainWork) -> None:
        """Step `work.step` (counted from 1), publication, and the checkpoint that may belong to it."""
        learner = self.learner
        with self.link.stage(StageName.TRAIN, work.step):
            samples = fetch(work, self.store)
            batches = minibatches(work, samples, learner.algorithm, learner.host, self._fixed_tokens)
            result = learner.train(batches, work.step - 1, self.version)
            device.pace("train", sum(sample.tokens for sample in samples))
            metrics = result.metrics | {"zero_variance_share": zero_variance_share(work, learner.host)}
        done = StepDone(step=work.step)
        if self.context.rank == 0:
            done = done.model_copy(update={"metrics": metrics, "expert_counts": result.expert_counts})
        self.link.call(done, Ack)
        self.steps_done = work.step
        self.publish(work)
        if work.checkpoint_after:
            self.checkpoint(work)

    def publish(self, work: TrainWork) -> None:
        """Write this rank's slices as `work.version`; the version before stays for rollouts still pulling it."""
        with self.link.stage(StageName.PUBLISH, work.step):
            self.weights.retire(keep=1)
            stats = self.weights.publish(
                work.version,
                self.context.rank,
                self.learner.policy.placement.layout,
                self.specs,
                self.learner.policy.local_tensors(),
            )
        self.version = work.version
        published = Published(version=work.version, bytes=stats.bytes, seconds=stats.seconds)
        self.link.call(published, Ack)

    def checkpoint(self, work: TrainWork) -> None:
        """The checkpoint of `work.step`, whose weights were published as the newest version."""
        with self.link.stage(StageName.CHECKPOINT, work.step):
            self.saver.write(
                self.learner, step=work.step, version=self.version, coordinator_state=work.coordinator_state
            )
        if self.context.rank == 0:
            self.link.call(CheckpointDone(step=work.step), Ack)
