"""Spec groups of the learning itself: algorithm, staleSync."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from rljob_core.api.base import Document, Rule
from rljob_core.api.rules import MAX_SEED, MAX_STEPS, between, ratio


class AlgorithmName(StrEnum):
    GRPO = "GRPO"


class AdvantageNormalization(StrEnum):
    """How a reward becomes an advantage inside its group."""

    GROUP_STD = "GroupStd"  # (r - mean) / (std + 1e-6): GRPO, arXiv 2402.03300
    MEAN_ONLY = "MeanOnly"  # r - mean: Dr. GRPO, arXiv 2503.20783


class ZeroVariance(StrEnum):
    """What a group with equal rewards does (rl.md 43, 54)."""

    ZERO_ADVANTAGE = "ZeroAdvantage"  # stays in the batch with advantage 0 (its KL term, if any, still acts)
    MASK = "Mask"  # leaves the loss altogether


class LossReduction(StrEnum):
    TOKEN = "Token"  # mean over all response tokens of the batch: DAPO, arXiv 2503.14476
    SEQUENCE = "Sequence"  # mean over tokens of a sequence, then over sequences: GRPO


class Optimizer(Document):
    """AdamW."""

    rules: ClassVar[tuple[Rule, ...]] = (
        ratio("learningRate", 0, 1, low_open=True),
        between("warmupSteps", 0, MAX_STEPS),
        ratio("weightDecay", 0, 1),
        ratio("beta1", 0, 1, high_open=True),
        ratio("beta2", 0, 1, high_open=True),
        ratio("gradientClip", 0, 1e6, low_open=True),
    )

    learning_rate: float = 1e-3
    """Peak learning rate. Default 1e-3 (small models from random weights; 1e-6 is usual for pretrained ones)."""
    warmup_steps: int = 5
    """Steps of linear warm-up from 0. Default 5."""
    weight_decay: float = 0.0
    """Decoupled weight decay. Default 0."""
    beta1: float = 0.9
    """Adam beta1. Default 0.9."""
    beta2: float = 0.99
    """Adam beta2. Default 0.99."""
    gradient_clip: float = 1.0
    """Largest global gradient norm. Default 1."""


class Algorithm(Document):
    """GRPO with its published options."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("steps", 1, MAX_STEPS),
        between("promptsPerStep", 1, 65536),
        between("groupSize", 2, 1024, why="but an advantage compares the samples of one prompt"),
        between("minibatches", 1, 1024),
        ratio("clipLow", 0, 1, low_open=True, high_open=True),
        ratio("clipHigh", 0, 10, low_open=True),
        ratio("klCoefficient", 0, 10),
        between("referenceUpdateSteps", 0, MAX_STEPS),
        Rule(
            rule="self.referenceUpdateSteps <= 0 || self.klCoefficient > 0.0",
            message="'algorithm.referenceUpdateSteps is %d, but without a KL term there is no reference to update; "
            "set klCoefficient above 0 or leave referenceUpdateSteps out'.format([self.referenceUpdateSteps])",
            field=".referenceUpdateSteps",
        ),
        between("seed", 0, MAX_SEED),
    )

    name: AlgorithmName = AlgorithmName.GRPO
    """The algorithm. Default GRPO."""
    steps: int = 100
    """Training steps (one policy version each). Default 100."""
    prompts_per_step: int = 64
    """Prompts trained in a step. Default 64."""
    group_size: int = 8
    """Samples a prompt. Default 8."""
    minibatches: int = 1
    """Optimizer steps a training step, each on an equal share of whole groups. Default 1."""
    clip_low: float = 0.2
    """Lower clip range of the importance ratio: 1 - clipLow. Default 0.2."""
    clip_high: float = 0.2
    """Upper clip range: 1 + clipHigh. Default 0.2 (DAPO: 0.28)."""
    kl_coefficient: float = 0.0
    """Weight of the k3 KL estimate to the reference policy. Default 0: no reference model is kept."""
    reference_update_steps: int = 0
    """Steps between copies of the policy into the reference. Default 0: the initial policy stays the reference."""
    advantage: AdvantageNormalization = AdvantageNormalization.GROUP_STD
    """Advantage normalisation. Default GroupStd."""
    zero_variance: ZeroVariance = ZeroVariance.ZERO_ADVANTAGE
    """Groups with equal rewards. Default ZeroAdvantage."""
    loss_reduction: LossReduction = LossReduction.TOKEN
    """Loss reduction. Default Token."""
    optimizer: Optimizer = Optimizer()
    """AdamW options."""
    seed: int = 0
    """Seed of sampling, data order and initialisation of training state. Default 0."""
    deterministic: bool = False
    """Same seed, same tokens and losses bit for bit. Needs maxVersionLag 0; slower. Default false."""


class StaleSync(Document):
    """Bounded staleness. Lag of a sample: trainer version at consumption minus version of its oldest token."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("maxVersionLag", 0, 64),
        Rule(
            rule="self.readyShare == 1.0",
            message="'readyShare is %s: only 1 works, other values not yet'.format([self.readyShare])",
            field=".readyShare",
        ),
    )

    max_version_lag: int = 1
    """Largest lag in policy versions, per sample. 0 is fully synchronous. Default 1."""
    ready_share: float = 1.0
    """Share of a step's samples that must be ready before data flows on. Default 1 (others: not yet)."""
