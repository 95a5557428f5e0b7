# SPDX-License-Identifier: MIT
"""The functions that users call: the shortest way for plain tensors, torch's dispatcher for all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rocpy._torch_operand import route
from rocpy.blaslt._custom import is_custom, refuse_inputs
from rocpy.blaslt.call import matmul as _matmul
from rocpy.torch import _operators
from rocpy.torch._autograd import apply_linear
from rocpy.torch._custom_layers import check_epilogue, custom_linear
from rocpy.torch._dispatch import dispatched_matmul
from rocpy.torch._kernels import linear_forward
from rocpy.torch._lowering import Activation, find_activation

if TYPE_CHECKING:
    from rocpy.epilogues import CustomEpilogue

__all__ = ["linear", "matmul", "run_linear"]

_is_compiling = torch.compiler.is_compiling


def run_linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """Compute a linear layer whose activation is a row already."""
    if not _is_compiling():
        way = route(x, weight, bias)
        if way == 1:
            return linear_forward(x, weight, bias, activation, False)[0]
        if way == 2:
            result = apply_linear(x, weight, bias, activation, None)
            return result[0] if activation.saves == "input" else result
    return _operators.linear(x, weight, bias, activation.name)


def linear(
    input: Tensor,  # noqa: A002  (torch's name for it)
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | CustomEpilogue | None = None,
    *,
    approximate: str = "none",
    epilogue_inputs: Mapping[str, Any] | None = None,
) -> Tensor:
    """Return ``activation(input @ weight.T + bias)``, computed as one product where the library has the activation.

    Parameters
    ----------
    input
        Shape ``(..., K)``.
    weight
        Shape ``(N, K)``, as ``torch.nn.functional.linear`` takes it.
    bias
        Length N.
    activation
        ``None``, ``"relu"``, ``"gelu"``, ``"silu"`` or ``"sigmoid"``; or an epilogue of :func:`rocpy.epilogue`, a
        function of ``input @ weight.T + bias`` and of its inputs. One that takes a ``bias`` itself is given the
        layer's.
    approximate
        Of GELU, as in torch: ``"none"`` is the error function, ``"tanh"`` its approximation.
    epilogue_inputs
        What such an epilogue takes, by name.

    Returns
    -------
    Tensor
        Shape ``(..., N)``; differentiable, also a second time, in each tensor given.

    Raises
    ------
    InvalidProblemError
        If shapes or dtypes do not fit, or there is no such activation.
    InvalidOperandError
        If an operand is no dense tensor, or they are on different devices.

    Notes
    -----
    Runs on the current stream. Honours autocast, ``torch.compile``, ``torch.export`` and ``torch.vmap``.

    References
    ----------
    ``hipblasLtMatmul``.

    Examples
    --------
    >>> import torch, rocpy, rocpy.torch as rt
    >>> x, weight = torch.ones(1, 2), torch.tensor([[1.0, 2.0], [-3.0, 0.0]])
    >>> rt.linear(x, weight, activation="relu")
    tensor([[3., 0.]])
    >>> scaled = rocpy.epilogue(lambda x, scale: torch.tanh(x) * scale)
    >>> rt.linear(x, 0 * weight, torch.ones(2), activation=scaled, epilogue_inputs={"scale": torch.zeros(2)})
    tensor([[0., 0.]])
    """
    if not isinstance(activation, str | None):
        if not is_custom(activation):
            find_activation(activation, approximate)  # says what it may be
        check_epilogue(activation, approximate)
        result: Tensor = custom_linear(input, weight, bias, activation, epilogue_inputs)
        return result
    if epilogue_inputs is not None:
        refuse_inputs(activation)
    return run_linear(input, weight, bias, find_activation(activation, approximate))


def matmul(a: Any, b: Any, /, c: Any = None, **arguments: Any) -> Any:
    """Return what :func:`rocpy.matmul` returns; torch's compiler can look into this one.

    Parameters
    ----------
    a, b, c, **arguments
        As for :func:`rocpy.matmul`. Gradients flow to ``a``, ``b``, ``c`` and ``bias``; where they do,
        ``out`` is refused.

    Returns
    -------
    Tensor
        Or a pair of it and a dict, for the epilogues that return more.

    Raises
    ------
    RocpyError
        As :func:`rocpy.matmul` does.

    References
    ----------
    ``hipblasLtMatmul``.

    Examples
    --------
    >>> import torch, rocpy.torch as rt
    >>> a = torch.ones(2, 3, requires_grad=True)
    >>> rt.matmul(a, torch.ones(3, 4), epilogue="relu").sum().backward()
    >>> a.grad[0]
    tensor([4., 4., 4.])
    """
    if _is_compiling():
        return dispatched_matmul(a, b, c, **arguments)
    return _matmul(a, b, c, **arguments)
