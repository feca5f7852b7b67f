"""Spec groups of the roles: trainer, rollout, coordinator, with their layouts and pod templates."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rljob_core.api.base import Document


class TrainerLayout(Document):
    """Parallel degrees of the trainer world: dp x tp x pp ranks; ep divides dp x tp."""

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

    dp: int = 1
    """Data-parallel attention degree. Default 1."""
    tp: int = 1
    """Tensor parallel degree. Default 1 (others: not yet)."""
    ep: int = 1
    """Expert parallel degree inside the group. Default 1."""


class Trainer(Document):
    """Trainer pods; replicas x devicesPerPod ranks."""

    replicas: int = 1
    """Pods. Default 1."""
    devices_per_pod: int = 1
    """Devices (processes) a pod. Default 1; 8 or 16 on Ascend nodes."""
    layout: TrainerLayout = TrainerLayout()
    """Parallel layout; dp x tp x pp must equal replicas x devicesPerPod."""
    template: dict[str, Any] = Field(default_factory=dict)
    """Pod template, merged by key over the generated one."""


class Sampling(Document):
    """How tokens are drawn."""

    temperature: float = 1.0
    """Softmax temperature. Default 1."""
    max_response_tokens: int = 32
    """Longest response in tokens, EOS included. Default 32."""
    beams: int = 1
    """Beam width. Default 1: plain sampling (others: not yet)."""


class Rollout(Document):
    """Rollout groups; each is one engine over dp x tp devices."""

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
    template: dict[str, Any] = Field(default_factory=dict)
    """Pod template, merged by key over the generated one."""


class Coordinator(Document):
    """The coordinator pod."""

    template: dict[str, Any] = Field(default_factory=dict)
    """Pod template, merged by key over the generated one."""
