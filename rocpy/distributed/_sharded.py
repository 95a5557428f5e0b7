# SPDX-License-Identifier: MIT
"""The sharded linear layers without autograd, for any framework's arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rocpy.blaslt import matmul
from rocpy.distributed._operands import check, check_bias
from rocpy.distributed._overlap import all_gather_matmul, matmul_all_reduce, matmul_reduce_scatter
from rocpy.errors import InvalidOperandError, InvalidProblemError

if TYPE_CHECKING:
    from rocpy.rccl import Communicator

__all__ = ["column_forward", "row_forward", "rows_of"]


def rows_of(x: Any, sequence_parallel: bool) -> Any:
    """Return the input as a matrix.

    Raises
    ------
    InvalidProblemError
        It has other axes, whose rows a cut over the ranks would not respect.
    InvalidOperandError
        It is no array.
    """
    _check_shape(x, "x")
    if len(x.shape) == 2:
        return x
    if sequence_parallel or len(x.shape) < 1:
        raise InvalidProblemError(f"x: got shape {tuple(x.shape)}, expected a matrix with sequence_parallel")
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def column_forward(
    x: Any, weight: Any, bias: Any, comm: Communicator, sequence_parallel: bool, chunks: int | None
) -> tuple[Any, Any]:
    """Return the result of `column_linear`, and the input as the gradient of the weight reads it."""
    rows = rows_of(x, sequence_parallel)
    if sequence_parallel:
        _check(rows, weight, bias, comm, is_gathered=True)
        y, gathered = all_gather_matmul(rows, weight.T, bias, comm=comm, chunks=chunks, gathered=True)
        return y, gathered
    _check(rows, weight, None, comm)
    check_bias(bias, weight.shape[0])
    y = matmul(rows, weight.T, bias=bias, epilogue=None if bias is None else "bias")
    return y.reshape(*x.shape[:-1], weight.shape[0]), rows


def row_forward(x: Any, weight: Any, bias: Any, comm: Communicator, sequence_parallel: bool, chunks: int | None) -> Any:
    """Return the result of `row_linear`."""
    rows = rows_of(x, sequence_parallel)
    _check(rows, weight, bias, comm, cut=sequence_parallel)
    if sequence_parallel:
        y = matmul_reduce_scatter(rows, weight.T, comm=comm, chunks=chunks)
        return y if bias is None else y + bias
    y = matmul_all_reduce(rows, weight.T, bias, comm=comm, chunks=chunks)
    return y.reshape(*x.shape[:-1], weight.shape[0])


def _check_shape(array: Any, name: str) -> None:
    if not hasattr(array, "shape"):
        raise InvalidOperandError(f"{name}: got {type(array).__name__}, expected a torch tensor or a numpy array")


def _check(x: Any, weight: Any, bias: Any, comm: Communicator, **settings: bool) -> None:
    _check_shape(weight, "weight")
    if len(weight.shape) != 2 or x.shape[-1] != weight.shape[1]:
        raise InvalidProblemError(
            f"weight: shape {tuple(weight.shape)} cannot be applied to x of shape {tuple(x.shape)}; expected "
            f"(N, {x.shape[-1]})"
        )
    check(x, weight.T, bias, comm, name="weight", **settings)
