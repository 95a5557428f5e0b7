# SPDX-License-Identifier: MIT
"""Linear layers cut over ranks, recorded by autograd: their gradients' collectives overlap with products too."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rocpy.blaslt import matmul
from rocpy.distributed._operands import check_array, check_communicator
from rocpy.distributed._overlap import all_gather_matmul, matmul_all_reduce, matmul_reduce_scatter
from rocpy.distributed._sharded import column_forward, row_forward, rows_of
from rocpy.errors import InvalidOperandError
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.autograd import as_matrix

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocpy.rccl import Communicator

__all__ = ["column_linear", "row_linear"]


def _without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that computes in the types of what was saved, also if called where autocast is on."""

    @functools.wraps(backward)
    def wrapped(ctx: Any, grad: Tensor) -> Any:
        with torch._C._DisableAutocast():
            return backward(ctx, grad)

    return wrapped


class ColumnLinear(torch.autograd.Function):  # type: ignore[misc]
    """A layer whose outputs are cut over the ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        comm: Communicator,
        sequence_parallel: bool,
        chunks: int | None,
    ) -> Tensor:
        """Compute, and save what the gradients read."""
        y, rows = column_forward(x, weight, bias, comm, sequence_parallel, chunks)
        ctx.save_for_backward(rows, weight)
        ctx.settings = comm, sequence_parallel, chunks, x.shape
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    @in_default_environment
    @_without_autocast
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Return the gradients; that of x is summed over the ranks."""
        rows, weight = ctx.saved_tensors
        comm, sequence_parallel, chunks, shape = ctx.settings
        grad_rows = as_matrix(grad).contiguous()
        grads: list[Any] = [None] * 6
        if ctx.needs_input_grad[0]:
            summed_product = matmul_reduce_scatter if sequence_parallel else matmul_all_reduce
            grads[0] = summed_product(grad_rows, weight.conj(), comm=comm, chunks=chunks).reshape(shape)
        if ctx.needs_input_grad[1]:
            grads[1] = matmul(grad_rows.T, rows.conj())
        if ctx.needs_input_grad[2]:
            grads[2] = grad_rows.sum(0)
        return tuple(grads)


class RowLinear(torch.autograd.Function):  # type: ignore[misc]
    """A layer whose inputs are cut over the ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        comm: Communicator,
        sequence_parallel: bool,
        chunks: int | None,
    ) -> Tensor:
        """Compute, and save what the gradients read."""
        ctx.save_for_backward(rows_of(x, sequence_parallel), weight)
        ctx.settings = comm, sequence_parallel, chunks, x.shape
        return row_forward(x, weight, bias, comm, sequence_parallel, chunks)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    @in_default_environment
    @_without_autocast
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Return the gradients; where the result was cut, its gradient is gathered first."""
        rows, weight = ctx.saved_tensors
        comm, sequence_parallel, chunks, shape = ctx.settings
        grad_rows = as_matrix(grad).contiguous()
        grads: list[Any] = [None] * 6
        if sequence_parallel:
            grad_x, grad_rows = all_gather_matmul(grad_rows, weight.conj(), comm=comm, chunks=chunks, gathered=True)
            grads[0] = grad_x.reshape(shape) if ctx.needs_input_grad[0] else None
        elif ctx.needs_input_grad[0]:
            grads[0] = matmul(grad_rows, weight.conj()).reshape(shape)
        if ctx.needs_input_grad[1]:
            grads[1] = matmul(grad_rows.T, rows.conj())
        if ctx.needs_input_grad[2]:
            grads[2] = grad_rows.sum(0)
        return tuple(grads)


def column_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, comm: Communicator, sequence_parallel: bool, chunks: int | None
) -> Tensor:
    """Return what `rocpy.distributed.column_linear` does, recorded."""
    _check(comm, x=x, weight=weight, bias=bias)
    result: Tensor = ColumnLinear.apply(x, weight, bias, comm, sequence_parallel, chunks)
    return result


def row_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, comm: Communicator, sequence_parallel: bool, chunks: int | None
) -> Tensor:
    """Return what `rocpy.distributed.row_linear` does, recorded."""
    _check(comm, x=x, weight=weight, bias=bias)
    result: Tensor = RowLinear.apply(x, weight, bias, comm, sequence_parallel, chunks)
    return result


def _check(comm: Communicator, **operands: Any) -> None:
    """Refuse what cannot be recorded here, before torch calls a function that it could not call."""
    check_communicator(comm)
    with torch.no_grad():
        for name, operand in operands.items():
            if operand is not None and check_array(operand, name)["provider"] != "torch":
                raise InvalidOperandError(
                    f"{name}: got {type(operand).__name__} together with tensors that require a gradient, expected a "
                    "torch tensor"
                )
