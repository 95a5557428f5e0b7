# SPDX-License-Identifier: MIT
"""The functions that users call: the shortest way for plain tensors, torch's dispatcher for all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from rocpy.blaslt.front.function import matmul as _matmul
from rocpy.blaslt.model.epilogues import is_custom, refuse_inputs
from rocpy.epilogues import CustomEpilogue
from rocpy.errors import InvalidProblemError
from rocpy.torch.layers.custom import check_epilogue, custom_linear
from rocpy.torch.operators import linear_layer
from rocpy.torch.operators.activations import (
    ACTIVATIONS,
    Activation,
    ActivationName,
    Approximation,
    find_activation,
)
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.blocks import run_mlp
from rocpy.torch.operators.dispatch import dispatched_matmul
from rocpy.torch.operators.kernels import computes_products_itself, has_layer_shapes
from rocpy.torch.operators.products import composed_activation
from rocpy.torch.operators.registration import route_of
from rocpy.torch.operators.shapes import check_layer_bias, check_layer_tensors
from rocpy.torch.operators.sharding import register_for
from rocpy.torch.operators.tangents import refuse_tangents

__all__ = ["linear", "matmul", "run_layers", "run_linear", "takes_layer"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_is_compiling = torch.compiler.is_compiling


def run_linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """Compute a linear layer whose activation is a row already."""
    access = route_of(x, weight, bias)
    if access == 0:
        check_layer_tensors(input=x, weight=weight, bias=bias)
    if not has_layer_shapes(weight, bias):
        return _run_broadcast(x, weight, bias, activation)
    if access == 0:
        if computes_products_itself(weight):
            y = torch.nn.functional.linear(x, weight, bias)
            return activation.function(y) if activation.saves else y
        if not _is_compiling():
            register_for((x, weight))
            refuse_tangents(input=x, weight=weight, bias=bias)
    return linear_layer.run_linear(access, x, weight, bias, activation.name)


def run_layers(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, activation: Activation
) -> Tensor:
    """Compute two layers with an activation between them, as one operator where it takes both."""
    if takes_layer(w1, b1) and takes_layer(w2, b2):
        return run_mlp(x, w1, b1, w2, b2, activation)
    return run_linear(run_linear(x, w1, b1, activation), w2, b2, ACTIVATIONS["none"])


def takes_layer(weight: Tensor, bias: Tensor | None) -> bool:
    """Whether operators of two layers take one: of plain shapes, with a weight that leaves its products to others."""
    return has_layer_shapes(weight, bias) and not computes_products_itself(weight)


@in_default_environment
def _run_broadcast(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Tensor:
    """Compute a layer of one output without an axis, or with a bias that broadcasts to the result, as torch does."""
    if weight.dim() not in (1, 2):
        raise InvalidProblemError(f"weight: got shape {tuple(weight.shape)}, expected (N, K) or (K,)")
    if weight.dim() == 1:
        if bias is not None and bias.dim() != 0:
            raise InvalidProblemError(
                f"bias: got shape {tuple(bias.shape)} for a weight of shape {tuple(weight.shape)}, expected a scalar"
            )
        return run_linear(x, weight.unsqueeze(0), None if bias is None else bias.reshape(1), activation).squeeze(-1)
    assert bias is not None
    n = weight.shape[0]
    if bias.numel() in (1, n) and (bias.dim() == 0 or bias.shape[-1] == bias.numel()):
        # One for all outputs, or one for each with axes of extent 1 before it.
        return run_linear(x, weight, bias.reshape(-1).expand(n).contiguous(), activation)
    check_layer_bias(bias, (*x.shape[:-1], n))
    if computes_products_itself(weight):
        return composed_activation(activation, run_linear(x, weight, None, ACTIVATIONS["none"]) + bias)
    if activation.is_analytic and x.is_complex():  # which no epilogue computes
        return composed_activation(activation, matmul(x, weight.mT, bias, beta=1.0))
    return matmul(x, weight.mT, bias, beta=1.0, epilogue=activation.epilogue(False))


def linear(
    input: Tensor,  # noqa: A002  (torch's name for it)
    weight: Tensor,
    bias: Tensor | None = None,
    activation: ActivationName | Callable[..., Tensor] | CustomEpilogue | None = None,
    *,
    approximate: Approximation = "none",
    epilogue_inputs: Mapping[str, Any] | None = None,
) -> Tensor:
    """Return ``activation(input @ weight.T + bias)``, computed as one product if the library has the activation.

    Parameters
    ----------
    input
        Shape ``(..., K)``.
    weight
        Shape ``(N, K)``, or ``(K,)`` for a result without that axis, as in ``torch.nn.functional.linear``; for an
        epilogue created by :func:`rocpy.epilogue`, ``(N, K)``.
    bias
        Length N, a scalar, or any shape that broadcasts to the result, which is added after the product.
    activation
        ``None``, ``"relu"``, ``"gelu"``, ``"silu"`` or ``"sigmoid"``, or torch's module or function for one of them,
        such as ``nn.GELU(approximate="tanh")`` or ``F.silu`` (modules with hooks or a patched forward are refused);
        or an epilogue created by :func:`rocpy.epilogue`, a function of ``input @ weight.T + bias`` and of its inputs.
        If it has a parameter ``bias``, it receives the layer's.
    approximate
        For GELU, as in torch: ``"none"`` is the erf form, ``"tanh"`` its approximation.
    epilogue_inputs
        The inputs of such an epilogue, by name.

    Returns
    -------
    Tensor
        Shape ``(..., N)``; twice differentiable with respect to each tensor argument.

    Raises
    ------
    InvalidProblemError
        If shapes or dtypes do not fit, or there is no such activation.
    InvalidOperandError
        If an operand is not a dense tensor, or the operands are on different devices.

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
            row = find_activation(activation, approximate)  # says what it may be
            if epilogue_inputs is not None:
                refuse_inputs(row.name)
            return run_linear(input, weight, bias, row)
        check_epilogue(activation, approximate)
        result: Tensor = custom_linear(input, weight, bias, activation, epilogue_inputs)
        return result
    if epilogue_inputs is not None:
        refuse_inputs(activation)
    return run_linear(input, weight, bias, find_activation(activation, approximate))


def _typed_like(other: _Function) -> Callable[[Callable[..., Any]], _Function]:  # noqa: ARG001
    """Tell type checkers that the function under this has the type of another; it is returned as it is."""
    return lambda function: function  # type: ignore[return-value]


@_typed_like(_matmul)
def matmul(a: Any, b: Any, /, c: Any = None, **arguments: Any) -> Any:
    """Compute :func:`rocpy.matmul` as torch operators, which torch's compiler can trace.

    Parameters
    ----------
    a, b, c, **arguments
        As for :func:`rocpy.matmul`. Gradients flow to ``a``, ``b``, ``c`` and ``bias``; ``out`` is refused if any of
        them requires one.

    Returns
    -------
    Tensor
        With an epilogue that returns more, a pair of the tensor and a dict.

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
