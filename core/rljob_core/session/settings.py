"""What the session reads of a spec, flat."""

from __future__ import annotations

from dataclasses import dataclass

from rljob_core.api.inputs import Decoding
from rljob_core.api.spec import RLJobSpec
from rljob_core.dispatch import check_shares, prefill_room
from rljob_core.layouts import Layout
from rljob_core.names import Role


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    prompts: int
    every_steps: int
    greedy: bool
    target_exact_match: float | None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Numbers of one job. lease_s: how long rows stay with a worker that no heartbeat comes from."""

    steps: int
    prompts_per_step: int
    group_size: int
    minibatches: int
    max_version_lag: int
    deterministic: bool
    trainer_layout: Layout
    rollout_groups: int
    rollout_ranks_per_group: int
    reward_workers: int
    max_sequences: int
    prefill_prompts: int
    max_response_tokens: int
    checkpoint_every: int
    evaluation: EvaluationSettings | None
    startup_s: float
    """How long a worker may take to register."""
    lease_s: float = 120.0
    log_samples_every: int = 10
    """Steps between entries of samples.jsonl."""

    @property
    def trainer_ranks(self) -> int:
        return self.trainer_layout.world

    def wanted(self, role: Role) -> int:
        """Workers of a role that shall register."""
        return {
            Role.TRAINER: self.trainer_ranks,
            Role.ROLLOUT: self.rollout_groups * self.rollout_ranks_per_group,
            Role.REWARD: self.reward_workers,
        }[role]

    @classmethod
    def of(cls, spec: RLJobSpec) -> Settings:
        """Raises InvalidInputError where the batch does not divide over ranks and minibatches."""
        algorithm, layout, rollout, evaluation = spec.algorithm, spec.trainer.layout, spec.rollout, spec.evaluation
        check_shares(algorithm.prompts_per_step, dp=layout.dp, minibatches=algorithm.minibatches)
        return cls(
            steps=algorithm.steps,
            prompts_per_step=algorithm.prompts_per_step,
            group_size=algorithm.group_size,
            minibatches=algorithm.minibatches,
            max_version_lag=spec.stale_sync.max_version_lag,
            deterministic=algorithm.deterministic,
            trainer_layout=Layout(dp=layout.dp, tp=layout.tp, pp=layout.pp, ep=layout.ep),
            rollout_groups=rollout.groups,
            rollout_ranks_per_group=rollout.layout.dp * rollout.layout.tp,
            reward_workers=spec.reward.replicas,
            max_sequences=rollout.max_sequences,
            prefill_prompts=prefill_room(rollout.max_sequences, spec.data.max_prompt_tokens),
            max_response_tokens=rollout.sampling.max_response_tokens,
            checkpoint_every=spec.checkpoint.every_steps,
            startup_s=spec.lifecycle.startup_deadline_seconds,
            evaluation=None
            if evaluation is None
            else EvaluationSettings(
                prompts=evaluation.prompts,
                every_steps=evaluation.every_steps,
                greedy=evaluation.decoding is Decoding.GREEDY,
                target_exact_match=evaluation.target_exact_match,
            ),
        )
