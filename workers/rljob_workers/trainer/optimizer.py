"""AdamW over this rank's parameters: gradients summed over ranks, clipped by the global norm, linear warm-up.

AdamW: arXiv 1711.05101. Warm-up counts training steps, not minibatches, and its first step is not zero:
learningRate x min(1, (step + 1) / warmupSteps), step counted from 0. Moments and the weights that are updated are
float32; a policy in another type is a rounded copy of them (small updates would vanish in bfloat16's 8 bits).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import torch
from torch import Tensor, nn

from rljob_core.api import algorithm
from rljob_core.errors import RLJobError
from rljob_core.layouts import TensorKind
from rljob_workers.model import Policy
from rljob_workers.trainer.gradients import Gradients

NORM_FLOOR = 1e-6
FUSED_ON = ("cpu", "cuda")
"""Device types whose torch has the one-kernel AdamW."""


class NumericsError(RLJobError):
    """A gradient that is not finite: updating would destroy the model."""


def learning_rate(options: algorithm.Optimizer, step: int) -> float:
    """Learning rate of training step `step`, counted from 0."""
    if options.warmup_steps <= 0:
        return options.learning_rate
    return options.learning_rate * min(1.0, (step + 1) / options.warmup_steps)


class Optimizer:
    """Constructed once the policy's tensors are filled."""

    def __init__(self, policy: Policy, options: algorithm.Optimizer) -> None:
        self._options = options
        self._parameters = dict(policy.named_parameters())
        at = policy.placement
        self.gradients = Gradients(
            self._parameters,
            frozenset(s.name for s in policy.specs if s.kind is TensorKind.EXPERT),
            at.layout,
            at.rank,
            at.ep_group,
        )
        self._masters = {n: p if p.dtype is torch.float32 else _master(p) for n, p in self._parameters.items()}
        self._fused = next(policy.parameters()).device.type in FUSED_ON

    @cached_property
    def _adamw(self) -> torch.optim.AdamW:
        """Made when it is first needed: torch's optimizers import its compiler, seconds before the first token."""
        return torch.optim.AdamW(
            self._masters.values(),
            lr=self._options.learning_rate,
            betas=(self._options.beta1, self._options.beta2),
            weight_decay=self._options.weight_decay,
            fused=self._fused,
        )

    def update(self, step: int) -> float:
        """One AdamW update from the gradients of the last backward passes; returns their global norm before clipping.

        Raises NumericsError, before anything is changed, when the norm is not finite.
        """
        self.gradients.sum_over_ranks()
        norm = self.gradients.norm()
        if not math.isfinite(norm):
            raise NumericsError(f"the gradient norm of step {step} is {norm}; the update is refused")
        scale = self._options.gradient_clip / (norm + NORM_FLOOR)
        if scale < 1.0:
            self.gradients.scale(scale)
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate(self._options, step)
        self._adamw_step()
        return norm

    @torch.no_grad()
    def _adamw_step(self) -> None:
        rounded = [n for n, p in self._parameters.items() if p is not self._masters[n]]
        for name in rounded:
            self._masters[name].grad = self._parameters[name].grad.float()  # type: ignore[union-attr]
        self._adamw.step()
        for name in rounded:
            self._parameters[name].copy_(self._masters[name])

    def state(self) -> dict[str, Tensor]:
        """Host tensors `<what>/<parameter>`: moments (none before the first update) and float32 weights."""
        out: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            moments = self._adamw.state.get(master, {})
            out |= {f"{what}/{name}": tensor.detach().cpu() for what, tensor in moments.items()}
            if master is not self._parameters[name]:
                out[f"master/{name}"] = master.detach().cpu()
        return out

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` gave, bit for bit."""
        for name, master in self._masters.items():
            if f"step/{name}" in state:
                moments = {what: state[f"{what}/{name}"] for what in ("exp_avg", "exp_avg_sq")}
                self._adamw.state[master] = {k: v.to(master.device, copy=True) for k, v in moments.items()}
                self._adamw.state[master]["step"] = state[f"step/{name}"].to(master.device, copy=True)
            if master is not self._parameters[name]:
                master.copy_(state[f"master/{name}"])


def _master(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach().float())
