"""Element-wise operations with hand-written gradients: fewer passes over memory than autograd's composition.

Every function computes in the input's type except `rms_norm`, which normalises in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def apply(function: type[Function], *arguments: object) -> Tensor:
    """Run an autograd function (torch leaves `apply` untyped)."""
    return function.apply(*arguments)  # type: ignore[no-any-return, no-untyped-call]


class _RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x32 = x.float()
        scale = torch.rsqrt(x32.square().mean(-1, keepdim=True).add_(eps))
        normed = x32 * scale
        ctx.save_for_backward(normed, scale, weight)
        return weight * normed.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        grad32 = grad.float()
        weight_grad = (grad32 * normed).flatten(0, -2).sum(0).to(weight.dtype)
        grad_normed = grad32 * weight
        along = (grad_normed * normed).mean(-1, keepdim=True)
        x_grad = grad_normed.addcmul_(normed, along, value=-1).mul_(scale)
        return x_grad.to(grad.dtype), weight_grad, None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight * x / sqrt(mean(x^2) + eps) over the last dimension (RMSNorm, arXiv 1910.07467)."""
    return apply(_RmsNorm, x, weight, eps)


class _Rotary(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotate(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotate(grad, cos, -sin), None, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of the last dimension (RoPE, arXiv 2104.09864; halves as in GPT-NeoX).

    x: [..., D]. cos, sin: broadcastable to [..., D/2].
    """
    return apply(_Rotary, x, cos, sin)


class _Swiglu(Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, -1)
        return torch.nn.functional.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        sigmoid = torch.sigmoid(gate)
        silu = gate * sigmoid
        # d silu = sigmoid + silu (1 - sigmoid)
        slope = (1 - sigmoid).mul_(silu).add_(sigmoid)
        return torch.cat((slope.mul_(up).mul_(grad), silu.mul_(grad)), -1)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, gate and up being the halves of the last dimension (arXiv 2002.05202)."""
    return apply(_Swiglu, gate_up)


class _Reorder(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(order, inverse)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        _, inverse = ctx.saved_tensors
        return grad.index_select(0, inverse), None, None


def reorder(rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """rows[order] for a permutation and its inverse (the gradient is a gather, not a scatter)."""
    return apply(_Reorder, rows, order, inverse)


class _Spread(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.copies = copies
        return rows.index_select(0, order.div(copies, rounding_mode="floor"))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        gathered = grad.index_select(0, inverse)
        return gathered.view(-1, ctx.copies, grad.shape[-1]).sum(1), None, None, None


def spread(rows: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
    """Each row `copies` times, then permuted: out[i] = rows[order[i] // copies]."""
    return apply(_Spread, rows, order, inverse, copies)
