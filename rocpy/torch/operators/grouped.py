# SPDX-License-Identifier: MIT
"""The operator behind ``rocpy.grouped_matmul`` for torch: groups along one axis, with gradients for a, b and bias."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rocpy.torch.operators.arithmetic import gradient_type, in_default_environment
from rocpy.torch.operators.kernels import grouped_kernel
from rocpy.torch.operators.registration import define, record
from rocpy.torch.operators.shapes import check_devices, require, result_dtype

__all__ = ["covered_by", "grouped"]


def _fake(
    a: Tensor,
    b: Tensor,
    boundaries: Tensor,
    bias: Tensor | None,
    alpha: float,  # noqa: ARG001
    dtype: torch.dtype | None,
) -> Tensor:
    check_devices(a=a, b=b, bias=bias)
    result = result_dtype(a, b, dtype)
    groups, form = boundaries.shape[0] - 1, (a.dim(), b.dim())
    require(
        form in ((2, 3), (3, 2), (2, 2)),
        lambda: f"a and b: {form[0]} and {form[1]} axes; groups need (2, 3), (3, 2) or (2, 2)",
    )
    require(a.shape[-1] == b.shape[-2], lambda: f"a and b: K must be equal, got {a.shape[-1]} and {b.shape[-2]}")
    stacked = groups if form == (2, 2) else a.shape[0] if form == (3, 2) else b.shape[0]
    require(stacked == groups, lambda: f"offsets: of {groups} groups, but the operands hold {stacked}")
    shape = (groups, a.shape[0], b.shape[1]) if form == (2, 2) else (a.shape[-2], b.shape[-1])
    return a.new_empty(shape, dtype=result)


grouped = define(
    "grouped_matmul",
    "(Tensor a, Tensor b, Tensor boundaries, Tensor? bias, Scalar alpha, ScalarType? dtype) -> Tensor",
    grouped_kernel,
    _fake,
)


class GroupedFunction(torch.autograd.Function):  # type: ignore[misc]
    """Products of groups, recorded. The gradients of each form are products of the other two."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor, boundaries: Tensor, bias: Tensor | None, alpha: float, below: Any
    ) -> Any:
        """Compute, and save what the gradients read."""
        ctx.alpha, ctx.bias_axes = alpha, None if bias is None else bias.dim()
        need_a, need_b = ctx.needs_input_grad[:2]
        ctx.axes = a.dim(), b.dim()
        ctx.save_for_backward(a if need_b else None, b if need_a else None, boundaries)
        return below(a, b, boundaries, bias)

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, d: Tensor) -> Any:
        """Return the gradients of those operands that need one."""
        a, b, boundaries = ctx.saved_tensors
        need_a, need_b, _, need_bias = ctx.needs_input_grad[:4]
        grad_a = grad_b = grad_bias = None
        if need_bias:
            grad_bias = _bias_gradient(d, boundaries, ctx.axes, ctx.bias_axes)
        operand = a if a is not None else b
        if operand is not None:
            dtype, working = operand.dtype, gradient_type(operand.dtype, d.dtype)
            d = d.to(working)
        if not (d.stride(-1) == 1 or d.stride(-2) == 1):
            d = d.contiguous()
        if need_a:
            grad_a = grouped(d, b.to(working).mH, boundaries, None, ctx.alpha, None).to(dtype)
        if need_b:
            grad_b = grouped(a.to(working).mH, d, boundaries, None, ctx.alpha, None).to(dtype)
        return grad_a, grad_b, None, grad_bias, None, None


def _bias_gradient(d: Tensor, boundaries: Tensor, axes: tuple[int, int], bias_axes: int) -> Tensor:
    """Return the sums of the result's gradient that a bias was added to; what no group covers had none."""
    if axes == (2, 2):
        return d.sum(1) if bias_axes == 2 else d.sum((0, 1))
    if axes == (3, 2):
        return torch.where(covered_by(boundaries, d, 1), d.sum(0), 0)
    sums = grouped(d.new_ones(1, d.shape[0]), d.contiguous(), boundaries, None, 1.0, None).squeeze(1)
    return sums if bias_axes == 2 else sums.sum(0)


# As in _autograd: torch.func's levels are the dispatcher's work, which has been done where an operator is recorded.
_apply = super(torch.autograd.Function, GroupedFunction).apply


def _record(
    below: Any,
    a: Tensor,
    b: Tensor,
    boundaries: Tensor,
    bias: Tensor | None,
    alpha: float,
    dtype: torch.dtype | None,
) -> Any:
    return _apply(
        a, b, boundaries, bias, alpha, lambda a, b, boundaries, bias: below(a, b, boundaries, bias, alpha, dtype)
    )


record(grouped, _record)


def covered_by(boundaries: Tensor, d: Tensor, axis: int) -> Tensor:
    """Return which indices of an axis some group has."""
    at = torch.arange(d.shape[axis], device=d.device)
    first, last = (boundaries[i].to(d.device) for i in (0, -1))
    return (at >= first) & (at < last)
