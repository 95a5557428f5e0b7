# SPDX-License-Identifier: MIT
"""Linear layers split over ranks, by the weight's rows or columns; torch tensors are recorded by autograd."""

from __future__ import annotations

from typing import Any

from rocpy._messages.modules import imported
from rocpy.distributed._operands import under_autocast
from rocpy.distributed._sharded import column_forward, row_forward
from rocpy.rccl import Communicator

__all__ = ["column_linear", "row_linear"]


@under_autocast
def column_linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    comm: Communicator,
    sequence_parallel: bool = False,
    chunks: int | None = None,
) -> Any:
    """Return this rank's columns of ``x @ W.T + b``, a linear layer whose outputs are split over the ranks.

    Parameters
    ----------
    x
        Shape ``(..., K)``, the same on every rank; with `sequence_parallel`, this rank's rows, of shape (M / nranks,
        K), C-contiguous.
    weight
        Shape (N / nranks, K): this rank's rows of the whole weight, in the layout of ``nn.Linear``.
    bias
        Length N / nranks: this rank's part of the bias.
    comm
        The communicator of the ranks.
    sequence_parallel
        Whether `x` is split over the ranks too; it is gathered while the product runs.
    chunks
        Number of chunks into which the rows are split for the overlap, the same on every rank; by default chosen by
        size.

    Returns
    -------
    array
        Shape ``(..., N / nranks)``, or (M, N / nranks). For torch tensors, differentiable with respect to each operand;
        the gradient of `x` is summed over the ranks while it is computed. Products of int8 are int32.

    Raises
    ------
    InvalidProblemError
        Shapes or types do not fit.
    InvalidOperandError
        An operand is neither a torch tensor nor a numpy array.
    UnsupportedError
        torch transforms or traces an operand, or it has no memory.
    RcclError
        A collective failed.

    References
    ----------
    ``hipblasLtMatmul``, ``ncclAllGather``, ``ncclAllReduce``, ``ncclReduceScatter``.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import distributed, rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     distributed.column_linear(np.ones((1, 2)), np.array([[1.0, 2.0], [3.0, 4.0]]), comm=comm)
    array([[3., 7.]])
    """
    if _is_recorded(x, weight, bias):
        from rocpy.distributed._autograd import column_linear as recorded

        return recorded(x, weight, bias, comm, sequence_parallel, chunks)
    return column_forward(x, weight, bias, comm, sequence_parallel, chunks)[0]


@under_autocast
def row_linear(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    comm: Communicator,
    sequence_parallel: bool = False,
    chunks: int | None = None,
) -> Any:
    """Return ``x @ W.T + b``, a linear layer whose inputs are split over the ranks; the partial products are summed.

    Parameters
    ----------
    x
        Shape ``(..., K / nranks)``: this rank's columns, as returned by `column_linear`.
    weight
        Shape (N, K / nranks): this rank's columns of the whole weight.
    bias
        Length N, the same on every rank; added once.
    comm
        The communicator of the ranks.
    sequence_parallel
        Whether each rank receives only its own rows of the result, of shape (M / nranks, N).
    chunks
        As for `column_linear`.

    Returns
    -------
    array
        Shape ``(..., N)``, or (M / nranks, N). For torch tensors, differentiable with respect to each operand. Products
        of int8 are int32.

    Raises
    ------
    InvalidProblemError
        Shapes or types do not fit.
    InvalidOperandError
        An operand is neither a torch tensor nor a numpy array.
    UnsupportedError
        torch transforms or traces an operand, or it has no memory.
    RcclError
        A collective failed.

    References
    ----------
    ``hipblasLtMatmul``, ``ncclAllReduceWithBias``, ``ncclAllReduce``, ``ncclReduceScatter``.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import distributed, rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     distributed.row_linear(np.ones((1, 2)), np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2), comm=comm)
    array([[4., 8.]])
    """
    if _is_recorded(x, weight, bias):
        from rocpy.distributed._autograd import row_linear as recorded

        return recorded(x, weight, bias, comm, sequence_parallel, chunks)
    return row_forward(x, weight, bias, comm, sequence_parallel, chunks)


def _is_recorded(*operands: Any) -> bool:
    torch = imported("torch")
    return (
        torch is not None
        and torch.is_grad_enabled()
        and any(isinstance(operand, torch.Tensor) and operand.requires_grad for operand in operands)
    )
