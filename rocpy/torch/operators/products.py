# SPDX-License-Identifier: MIT
"""The operators behind ``rocpy.matmul`` for torch: any batch, any epilogue, gradients for a, b, c and bias."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from rocpy._fp_environment import default_arithmetic
from rocpy.blaslt.composed.product import activation
from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.model.epilogues import EPILOGUES, EpilogueRow
from rocpy.blaslt.model.options import forbids_composing
from rocpy.blaslt.model.shapes import is_column_bias
from rocpy.errors import InvalidProblemError, UnsupportedError
from rocpy.torch.operators.activations import ACTIVATIONS, Activation
from rocpy.torch.operators.arithmetic import gradient_type, in_default_environment
from rocpy.torch.operators.autograd import in_rows
from rocpy.torch.operators.below import AtOnce, Below
from rocpy.torch.operators.counters import count_gradients, watched
from rocpy.torch.operators.kernels import product_kernel
from rocpy.torch.operators.registration import define, record
from rocpy.torch.operators.shapes import (
    ProductSettings,
    check_aux,
    check_product,
    check_scalars,
    empty_results,
    gradient_dtype,
)

__all__ = [
    "apply_epilogue",
    "composed_activation",
    "operand_gradients",
    "plain_name",
    "product",
    "product_extra",
    "record_product",
    "recorded_name",
    "run_product",
    "run_product_extra",
]

_SCHEMA = (
    "(Tensor a, Tensor b, Tensor? c, Tensor? bias, Tensor? aux, str epilogue, Scalar alpha, Scalar beta,"
    " float[]? clamp, ScalarType? dtype, str? compute)"
)


def _fake(a: Tensor, b: Tensor, c: Any, bias: Any, aux: Any, epilogue: str, *settings: Any) -> Any:
    read = ProductSettings(*settings)
    check_scalars(a, read.alpha, read.beta)
    check_product(a, b, c, bias, aux, epilogue, read)
    results = empty_results(a, b, EPILOGUES[epilogue], read.dtype)
    return tuple(results) if len(results) > 1 else results[0]


product = define("matmul", f"{_SCHEMA} -> Tensor", product_kernel, _fake)
product_extra = define("matmul_extra", f"{_SCHEMA} -> (Tensor, Tensor)", product_kernel, _fake)


def activation_of(row: EpilogueRow) -> str:
    """Return the activation in an epilogue's name; ``"clamp"`` and the gradients have no row of their own."""
    name = row.name.removesuffix("_bias").removesuffix("_aux")
    return {"default": "none", "bias": "none", "gelu": "gelu_tanh", "gelu_erf": "gelu"}.get(name, name)


def plain_name(row: EpilogueRow) -> str:
    """Return the epilogue that gives the pre-activation."""
    return "bias" if row.bias else "default"


# ---- gradients ----


def _conjugate(x: Any) -> Any:
    return x.conjugate() if isinstance(x, complex) else x


def _matrices(a: Tensor, b: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a, b and the result with the axes that numpy's rules leave away for vectors."""
    if b.dim() == 1:
        b, d = b.unsqueeze(-1), d.unsqueeze(-1)
    if a.dim() == 1:
        a, d = a.unsqueeze(0), d.unsqueeze(-2)
    return a, b, d


class ProductFunction(torch.autograd.Function):  # type: ignore[misc]
    """A product with bias and c, and an activation on it, recorded; the second result is the pre-activation."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        c: Tensor | None,
        bias: Tensor | None,
        activation: Activation,
        scalars: tuple[complex, complex],
        compute: str | None,
        below: Any,
    ) -> Any:
        """Compute, and save what the gradient reads."""
        result = below(a, b, c, bias)
        ctx.set_materialize_grads(False)
        ctx.activation, (ctx.alpha, ctx.beta), ctx.compute = activation, scalars, compute
        ctx.c_shape = None if c is None else c.shape
        ctx.bias_shape = None if bias is None else bias.shape
        saved = () if not activation.saves else (result[1],) if isinstance(result, tuple) else (result,)
        ctx.save_for_backward(a, b, *saved)
        return result

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, grad: Tensor | None, grad_pre: Tensor | None = None) -> Any:
        """Return the gradients of those operands that need one."""
        a, b, *saved = ctx.saved_tensors
        d = grad
        if grad is not None and saved:
            d = ctx.activation.derivative(grad, saved[0])
        if grad_pre is not None:
            d = grad_pre if d is None else d + grad_pre
        grads: list[Tensor | None] = [None] * 8
        if d is None:
            return tuple(grads)
        need_a, need_b, need_c, need_bias = ctx.needs_input_grad[:4]
        if need_c:
            grads[2] = (d * _conjugate(ctx.beta)).sum_to_size(ctx.c_shape)
        d2 = _matrices(a, b, d)[2]
        if need_bias:
            grads[3] = _bias_gradient(min(a.dim(), b.dim()) > 1, d2, ctx.bias_shape)
        arguments = {"alpha": _conjugate(ctx.alpha), "compute": ctx.compute}
        if watched:
            count_gradients(d2, gradients=need_a + need_b)
        grads[:2] = operand_gradients(a, b, d, (need_a, need_b), arguments)
        return tuple(grads)


def operand_gradients(
    a: Tensor, b: Tensor, d: Tensor, needs: Sequence[bool], arguments: dict[str, Any]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of a and b, of those that need one, from the product's: two products by ``arguments``."""
    working = gradient_type(a.dtype, d.dtype)
    a2, b2, d2 = (x.to(working) for x in _matrices(a, b, d))
    if not (d2.stride(-1) == 1 or d2.stride(-2) == 1):
        d2 = d2.contiguous()
    of_a = of_b = None
    if needs[0]:
        of_a = matmul(d2, b2.mH, **arguments).sum_to_size(a2.shape).reshape(a.shape).to(a.dtype)
    if needs[1]:
        if b2.dim() == 2 and a2.dim() > 2 and a2.shape[:-1] == d2.shape[:-1]:
            # One b for the whole batch: its gradient is a single product over all rows.
            a2, d2 = in_rows(a2), in_rows(d2)
        of_b = matmul(a2.mH, d2, **arguments).sum_to_size(b2.shape).reshape(b.shape).to(b.dtype)
    return of_a, of_b


# As in _autograd: torch.func's levels are the dispatcher's work, which has been done where an operator is recorded.
_apply = super(torch.autograd.Function, ProductFunction).apply


def _bias_gradient(matrices: bool, d: Tensor, shape: torch.Size) -> Tensor:
    """Return the sums of the result's gradient that a bias of this shape was added to."""
    m, n = d.shape[-2:]
    # Extents may be symbols: only of a bias that may be one for each row are they compared.
    if len(shape) > 1 and is_column_bias(tuple(shape), m, n, tuple(d.shape[:-2]), matrices):
        return d.sum(-1, keepdim=True).sum_to_size(shape)
    return d.sum(-2).sum_to_size(shape)


def record_product(
    below: Below | AtOnce,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    aux: Tensor | None,
    epilogue: str,
    *settings: Any,
) -> Any:
    """Return an operator's results, recorded: by one product, or by one and torch's functions."""
    activation, stored = _recorded(epilogue)
    if activation is None:
        recorded = _composed(below.of(product), EPILOGUES[epilogue], a, b, c, bias, aux, settings)
        if not forbids_composing():
            return recorded
        # Refused as the product that nothing records, or computed as it is; torch's functions give the gradients.
        return _apply_values(lambda: below(a, b, c, bias, aux, epilogue, *settings), recorded)
    if stored is not None:
        return record_product(below.of(product_extra), a, b, c, bias, aux, stored, *settings)[0]
    alpha, beta, _, _, compute = settings
    return _apply(
        a,
        b,
        c,
        bias,
        activation,
        (alpha, beta),
        compute,
        lambda a, b, c, bias: below(a, b, c, bias, aux, epilogue, *settings),
    )


def recorded_name(epilogue: str) -> str | None:
    """Return the epilogue of the product that records one, ``None`` where torch's functions follow the plain one."""
    activation, stored = _recorded(epilogue)
    return None if activation is None else stored or epilogue


@functools.cache
def _recorded(epilogue: str) -> tuple[Activation | None, Any]:
    """Return the activation whose gradient one product gives what it reads, ``None`` where the epilogue is composed.

    And the epilogue that stores the pre-activation, where that is what the gradient reads and another one.
    """
    row = EPILOGUES[epilogue]
    activation = None if row.gradient or row.aux == "load" else ACTIVATIONS.get(activation_of(row))
    if activation is None or activation.saves != "input":
        return activation, None
    if activation.fused.aux is None:
        return None, None
    if row.aux == "store":
        return activation, None
    return activation, activation.fused.aux_bias if row.bias else activation.fused.aux


@default_arithmetic
def _composed(
    below: Below | AtOnce,
    row: EpilogueRow,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    aux: Tensor | None,
    settings: Any,
) -> Any:
    """Return an epilogue as the recorded product followed by torch's functions, which are recorded too."""
    alpha, beta, clamp, dtype, compute = settings
    if _takes_others(row, bias, aux, clamp):
        check_product(a, b, c, bias, aux, row.name, ProductSettings(*settings))
    if a.is_complex() and (row.aux == "load" or not (row.gradient or activation_of(row) == "none")):
        raise UnsupportedError(
            f"epilogue {row.name!r}: not for complex numbers; use 'default' or 'bias' and a function after it"
        )
    pre = record_product(below, a, b, c, bias, None, plain_name(row), alpha, beta, None, dtype, compute)
    if aux is not None and not torch.jit.is_tracing():  # where extents are tensors
        check_aux(aux, pre)
    y = apply_epilogue(row, pre, aux, clamp)
    if row.aux == "store":
        return y, pre
    if not row.gradient:
        return y
    a2, b2, y2 = _matrices(a, b, y)
    sums = {"bgrad": lambda: y2.sum(-2), "bgrada": lambda: a2.sum(-1), "bgradb": lambda: b2.sum(-2)}[row.gradient]()
    return y, sums.to(gradient_dtype(y.dtype))


def _takes_others(row: EpilogueRow, bias: object, aux: object, clamp: object) -> bool:
    """Whether an operand is there that an epilogue does not take, or one is missing."""
    return (row.bias, row.aux == "load", row.clamp) != (bias is not None, aux is not None, clamp is not None)


@in_default_environment
def apply_epilogue(row: EpilogueRow, pre: Tensor, aux: Tensor | None, clamp: Any) -> Tensor:
    """Return an epilogue's result from the pre-activation, by torch's functions."""
    name = activation_of(row)
    if name == "clamp":
        if clamp is None:
            raise InvalidProblemError(f"epilogue {row.name!r} needs clamp=(low, high)")
        if not (pre.is_floating_point() or pre.is_complex()):  # torch would make floats of integers
            range_ = torch.iinfo(pre.dtype)
            clamp = [int(min(max(bound, range_.min), range_.max)) for bound in clamp]
        return pre.clamp(*clamp)
    if row.aux == "load":
        if aux is None:
            raise InvalidProblemError(f"epilogue {row.name!r} needs aux=, the pre-activation of the forward product")
        if "drelu" in row.name:
            return torch.where(aux > 0, pre, 0)
        of = {"dgelu": "gelu_tanh", "dgelu_erf": "gelu", "dsilu": "silu"}[row.name.removesuffix("_bgrad")]
        return ACTIVATIONS[of].derivative(pre, aux)
    # A new tensor each time: results of an operator share no memory.
    if row.gradient:
        return pre
    # One that layers do not have is composed from torch's operations, which autograd records.
    return composed_activation(ACTIVATIONS[name], pre) if name in ACTIVATIONS else activation(name, pre)


class ValuesFunction(torch.autograd.Function):  # type: ignore[misc]
    """Results with the gradients of others, of the same formula."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[[], Any], *recorded: Tensor) -> Any:  # noqa: ARG004
        """Compute; what was recorded is not read."""
        ctx.set_materialize_grads(False)
        return compute()

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, *grads: Tensor | None) -> Any:  # noqa: ARG004
        """Return the gradients as they are."""
        return (None, *grads)


def _apply_values(compute: Callable[[], Any], recorded: Any) -> Any:
    apply = super(torch.autograd.Function, ValuesFunction).apply  # as above
    return apply(compute, *recorded) if isinstance(recorded, tuple) else apply(compute, recorded)


class ActivationFunction(torch.autograd.Function):  # type: ignore[misc]
    """An activation after a product that has no epilogue for it; its gradient is computed in the default environment.

    A node of torch's own computes in the environment of the thread that calls ``backward``.
    """

    @staticmethod
    def forward(pre: Tensor, activation: Activation) -> Tensor:
        """Compute."""
        return activation.function(pre)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Activation], output: Tensor) -> None:
        """Save what the gradient reads."""
        pre, ctx.activation = inputs
        ctx.save_for_backward(output if ctx.activation.saves == "result" else pre)

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the pre-activation."""
        return ctx.activation.derivative(grad, *ctx.saved_tensors), None


def composed_activation(activation: Activation, pre: Tensor) -> Tensor:
    """Return the activation of a product's result, by torch's function."""
    if not activation.saves:
        return pre
    # torch's own nodes are left where there is nothing to record and where its compiler or torch.func looks in.
    inside = torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active()
    if inside or not (torch.is_grad_enabled() and pre.requires_grad):
        return activation.function(pre)
    result: Tensor = ActivationFunction.apply(pre, activation)
    return result


run_product = record(product, record_product)
run_product_extra = record(product_extra, record_product)
