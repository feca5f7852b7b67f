"""Operations with hand-written gradients: fewer passes over memory than autograd's composition.

Every function computes in the input's type except `rms_norm`, which normalises in float32. N tokens, K copies of a
token (one an expert chosen), H hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F


def apply(function: type[Function], *arguments: object) -> Tensor:
    """Run an autograd function (torch leaves `apply` untyped)."""
    return function.apply(*arguments)  # type: ignore[no-any-return, no-untyped-call]


class _RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x32 = x.float()
        size = x.shape[-1]
        scale = torch.linalg.vector_norm(x32, dim=-1, keepdim=True).square_().div_(size).add_(eps).rsqrt_()
        normed = x32 * scale
        ctx.save_for_backward(normed, scale, weight)
        out: Tensor = weight * normed.to(x.dtype)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        size = weight.numel()
        grad32, weight32 = grad.float(), weight.float()
        products = (grad32 * normed).reshape(-1, size)
        along = (products @ weight32).view(scale.shape).div_(size)
        x_grad = (grad32 * weight32).addcmul_(normed, along, value=-1).mul_(scale)
        return x_grad.to(grad.dtype), products.sum(0).to(weight.dtype), None


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight * x / sqrt(mean(x^2) + eps) over the last dimension (RMSNorm, arXiv 1910.07467)."""
    return apply(_RmsNorm, x, weight, eps)


class _Rotary(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotate(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotate(grad, cos, sin, -1), None, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    left, right = x.chunk(2, -1)
    return (x * cos).addcmul_(torch.cat((right, left), -1), sin, value=sign)


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of the last dimension (RoPE, arXiv 2104.09864; halves as in GPT-NeoX).

    x: [..., D]. cos, sin: broadcastable to it, from `rotary_table`.
    """
    return apply(_Rotary, x, cos, sin)


def rotary_table(angles: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [..., D] of angles [..., D / 2]; sin carries the sign each half of the rotation takes."""
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


class _Swiglu(Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        silu = F.silu(gate)
        ctx.save_for_backward(gate_up, silu)
        return silu * up

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        gate_up, silu = ctx.saved_tensors
        gate, up = gate_up.chunk(2, -1)
        return torch.cat((torch.ops.aten.silu_backward(grad * up, gate), silu * grad), -1)


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, gate and up being the halves of the last dimension (arXiv 2002.05202)."""
    return apply(_Swiglu, gate_up)


class _Reorder(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse), None, None


def reorder(rows: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """rows[order] for a permutation and its inverse (the gradient is a gather, not a scatter)."""
    return apply(_Reorder, rows, order, inverse)


class _Spread(Function):
    @staticmethod
    def forward(ctx: Any, rows_NH: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.copies = copies
        return rows_NH.index_select(0, order.div(copies, rounding_mode="floor"))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse).view(-1, ctx.copies, grad.shape[-1]).sum(1), None, None, None


def spread(rows_NH: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
    """Each row `copies` times, permuted: out[i] = rows[order[i] // copies], [N x copies, H]."""
    return apply(_Spread, rows_NH, order, inverse, copies)


class _Collect(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights_NK: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        copies = weights_NK.shape[1]
        rows_NKH = rows.index_select(0, inverse).view(-1, copies, rows.shape[1])
        ctx.save_for_backward(rows_NKH, weights_NK, order)
        out_NH = rows_NKH[:, 0] * weights_NK[:, :1]
        for k in range(1, copies):
            out_NH.addcmul_(rows_NKH[:, k], weights_NK[:, k : k + 1])
        return out_NH

    @staticmethod
    def backward(ctx: Any, grad_NH: Tensor) -> tuple[Tensor, Tensor, None, None]:
        rows_NKH, weights_NK, order = ctx.saved_tensors
        tokens = order.div(weights_NK.shape[1], rounding_mode="floor")
        weights = weights_NK.flatten().index_select(0, order).unsqueeze(1)
        weights_grad = (rows_NKH * grad_NH.unsqueeze(1)).sum(-1)
        return grad_NH.index_select(0, tokens).mul_(weights), weights_grad, None, None


def collect(rows: Tensor, weights_NK: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """Undo `spread`: out[n] = sum over k of weights[n, k] * rows[inverse[n x K + k]], [N, H]."""
    return apply(_Collect, rows, weights_NK, order, inverse)
