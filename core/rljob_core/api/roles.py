"""Spec groups of the roles: trainer, rollout, coordinator, with their layouts and pod templates."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rljob_core.api.base import Document, FreeForm, Rule
from rljob_core.api.rules import MAX_DEGREE, MAX_PODS, between, only_one_yet, ratio

_EP_DIVIDES = Rule(
    rule="self.ep < 1 || (self.dp * self.tp) % self.ep == 0",
    message="'ep is %d, which does not divide dp x tp = %d: use a divisor of it'.format([self.ep, self.dp * self.tp])",
    field=".ep",
)


class TrainerLayout(Document):
    """Parallel degrees of the trainer world: dp x tp x pp ranks; ep divides dp x tp."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("dp", 1, MAX_DEGREE),
        only_one_yet("tp"),
        only_one_yet("pp"),
        between("ep", 1, MAX_DEGREE),
        _EP_DIVIDES,
    )

    dp: int = 1
    """Data parallel degree. Default 1."""
    tp: int = 1
    """Tensor parallel degree. Default 1 (others: not yet)."""
    pp: int = 1
    """Pipeline parallel degree. Default 1 (others: not yet)."""
    ep: int = 1
    """Expert parallel degree: experts are spread over this many of the dp x tp ranks. Default 1."""


class RolloutLayout(Document):
    """Parallel degrees of one rollout group: dp x tp ranks, experts spread over ep of them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("dp", 1, MAX_DEGREE),
        only_one_yet("tp"),
        between("ep", 1, MAX_DEGREE),
        _EP_DIVIDES,
    )

    dp: int = 1
    """Data-parallel attention degree. Default 1."""
    tp: int = 1
    """Tensor parallel degree. Default 1 (others: not yet)."""
    ep: int = 1
    """Expert parallel degree inside the group. Default 1."""


class Trainer(Document):
    """Trainer pods; replicas x devicesPerPod ranks."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("replicas", 1, MAX_PODS, why="but mode Separated trains in pods of its own"),
        between("devicesPerPod", 1, 64),
        Rule(
            rule="self.layout.dp * self.layout.tp * self.layout.pp == self.replicas * self.devicesPerPod",
            message="'layout has dp x tp x pp = %d ranks, but replicas x devicesPerPod = %d: make them equal'.format("
            "[self.layout.dp * self.layout.tp * self.layout.pp, self.replicas * self.devicesPerPod])",
            field=".layout",
        ),
    )

    replicas: int = 1
    """Pods. Default 1."""
    devices_per_pod: int = 1
    """Devices (processes) a pod. Default 1; 8 or 16 on Ascend nodes."""
    layout: TrainerLayout = TrainerLayout()
    """Parallel layout; dp x tp x pp must equal replicas x devicesPerPod."""
    template: FreeForm = Field(default_factory=dict)
    """Pod template, merged by key over the generated one."""


class Sampling(Document):
    """How tokens are drawn."""

    rules: ClassVar[tuple[Rule, ...]] = (
        ratio("temperature", 0, 10, low_open=True),
        between("maxResponseTokens", 1, 131072),
        only_one_yet("beams"),
    )

    temperature: float = 1.0
    """Softmax temperature. Default 1."""
    max_response_tokens: int = 32
    """Longest response in tokens, EOS included. Default 32."""
    beams: int = 1
    """Beam width. Default 1: plain sampling (others: not yet)."""


class Rollout(Document):
    """Rollout groups; each is one engine over dp x tp devices."""

    rules: ClassVar[tuple[Rule, ...]] = (
        between("groups", 1, MAX_PODS, why="but mode Separated samples in pods of its own"),
        between("devicesPerPod", 1, 64),
        Rule(
            rule="self.devicesPerPod < 1 || (self.layout.dp * self.layout.tp) % self.devicesPerPod == 0",
            message="'devicesPerPod is %d, which does not divide the dp x tp = %d devices of a group: use a divisor "
            "of it'.format([self.devicesPerPod, self.layout.dp * self.layout.tp])",
            field=".devicesPerPod",
        ),
        Rule(
            rule="self.devicesPerPod < 1 || "
            f"self.groups * self.layout.dp * self.layout.tp / self.devicesPerPod <= {MAX_PODS}",
            message="'groups is %d with %d devices a group and %d a pod: use fewer groups or more devices a pod, "
            f"so that there are at most {MAX_PODS} pods'.format("
            "[self.groups, self.layout.dp * self.layout.tp, self.devicesPerPod])",
            field=".groups",
        ),
        between("maxSequences", 1, 65536),
    )

    groups: int = 1
    """Rollout groups. Default 1."""
    devices_per_pod: int = 1
    """Devices a pod. Default 1; a group takes dp x tp / devicesPerPod pods."""
    layout: RolloutLayout = RolloutLayout()
    """Parallel layout of a group."""
    max_sequences: int = 256
    """Sequences a group decodes at once. Default 256."""
    sampling: Sampling = Sampling()
    """Sampling options."""
    template: FreeForm = Field(default_factory=dict)
    """Pod template, merged by key over the generated one."""


class Coordinator(Document):
    """The coordinator pod."""

    template: FreeForm = Field(default_factory=dict)
    """Pod template, merged by key over the generated one."""
