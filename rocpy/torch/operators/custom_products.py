# SPDX-License-Identifier: MIT
"""The operator behind ``rocpy.matmul`` with an epilogue of the user's: recorded, traced and compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rocpy.blaslt.custom.binding import bind
from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.problem import Problem
from rocpy.epilogues import Expression
from rocpy.epilogues.expressions.evaluate import evaluate
from rocpy.epilogues.expressions.gradient import gradient_of
from rocpy.epilogues.expressions.inputs import are_known, shape_of
from rocpy.epilogues.expressions.resolve import resolve
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.autograd import in_rows
from rocpy.torch.operators.kernels import custom_kernel, split_names
from rocpy.torch.operators.products import product, record_product
from rocpy.torch.operators.registration import define, record
from rocpy.torch.operators.shapes import (
    ProductSettings,
    check_devices,
    check_product,
    info_of,
    product_shapes,
    result_dtype,
)

__all__ = ["composed", "empty_custom_results", "run_operator"]

_SCHEMA = (
    "(Tensor a, Tensor b, Tensor? c, Tensor[] inputs, str names, str expression, float alpha, float beta,"
    " ScalarType? dtype, str? compute) -> Tensor[]"
)


def _fake(
    a: Tensor, b: Tensor, c: Any, inputs: Sequence[Tensor], names: str, expression: str, *settings: Any
) -> list[Tensor]:
    alpha, beta, dtype, compute = settings
    named = dict(zip(split_names(names), inputs, strict=True))
    problem = check_product(a, b, c, None, None, "default", ProductSettings(alpha, beta, None, dtype, compute))
    return empty_custom_results(a, b, dtype, problem, Expression.from_json(expression), named)


def empty_custom_results(
    a: Tensor,
    b: Tensor,
    dtype: torch.dtype | None,
    problem: Problem | None,
    expression: Expression,
    named: Mapping[str, Tensor],
) -> list[Tensor]:
    """Return an epilogue's results without values; ``problem`` is the product where all extents are known."""
    check_devices(a=a, **{f"epilogue_inputs[{name!r}]": value for name, value in named.items()})
    infos = {name: info_of(value) for name, value in named.items()}
    if problem is not None and are_known(*named.values()):
        bound = bind(expression, problem, infos)
        shape, types = bound.result_shape, bound.out_types
    else:
        shape, _ = product_shapes(a, b, EPILOGUES["default"])
        shape = (*shape[:-1], shape[-1] // 2) if expression.halved else shape
        x = str(result_dtype(a, b, dtype)).removeprefix("torch.")
        ranks = {name: (info.dtype, 2 if info.shape else 1) for name, info in infos.items()}
        types = resolve(expression, x, ranks).out_types
    return [a.new_empty(shape, dtype=getattr(torch, name)) for name in types]


def _narrow(cast: Callable[[Any], Any], args: Sequence[Any]) -> tuple[Any, ...]:
    # Of the epilogue's inputs only the bias is an operand of the layer, which torch's own linear casts too.
    a, b, c, inputs, names, *rest = args
    inputs = [cast(value) if name == "bias" else value for name, value in zip(split_names(names), inputs, strict=True)]
    return (cast(a), cast(b), cast(c), inputs, names, *rest)


operator = define("epilogue", _SCHEMA, custom_kernel, _fake, narrow=_narrow)


class _Form(NamedTuple):
    """What is computed of an epilogue where it is recorded."""

    expression: Expression
    text: str  # of what is computed: the epilogue, followed by the product where the gradient reads that
    has_product: bool
    saved: frozenset[str]  # the inputs that the gradient reads


@functools.lru_cache(maxsize=256)
def _form_of(text: str) -> _Form | None:
    """Return the form of an epilogue's text; ``None`` where torch's own functions record it."""
    expression = Expression.from_json(text)
    if expression.halved:
        return None
    gradient = gradient_of(expression)
    reads_product = gradient.expression.reads_x
    whole = _with_product(expression).to_json() if reads_product else text
    return _Form(expression, whole, reads_product, frozenset(gradient.saved))


class EpilogueFunction(torch.autograd.Function):  # type: ignore[misc]
    """A product with a custom epilogue, recorded; where the gradient reads the product, that is a result too."""

    @staticmethod
    def forward(
        ctx: Any,
        below: Any,
        a: Tensor,
        b: Tensor,
        c: Tensor | None,
        names: str,
        form: _Form,
        settings: tuple[Any, ...],
        *inputs: Tensor,
    ) -> Any:
        """Compute, and save what the gradient reads."""
        results = below(a, b, c, list(inputs), names, form.text, *settings)
        ctx.set_materialize_grads(False)
        ctx.expression, ctx.settings, ctx.names = form.expression, settings, split_names(names)
        ctx.has_product = form.has_product  # as the last result
        ctx.c_shape = None if c is None else c.shape
        saved = [value if name in form.saved else None for name, value in zip(ctx.names, inputs, strict=True)]
        ctx.likes = [(value.shape, value.dtype) for value in inputs]
        ctx.save_for_backward(a, b, results[-1] if ctx.has_product else None, *saved)
        return tuple(results)

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """Return the gradients of those operands that need one."""
        a, b, x, *inputs = ctx.saved_tensors
        alpha, beta, dtype, compute = ctx.settings
        count = len(ctx.expression.outputs)
        gradients: list[Any] = [None] * (7 + len(inputs))
        first = next((one for one in grads if one is not None), None)
        if first is None:
            return tuple(gradients)
        needs = ctx.needs_input_grad
        d, derived = None, {}
        if any(one is not None for one in grads[:count]):
            like = x if x is not None else _like_product(a, b, first, dtype)
            named = {
                name: first.new_empty(shape, dtype=kind) if value is None else value
                for name, value, (shape, kind) in zip(ctx.names, inputs, ctx.likes, strict=True)
            }
            wanted = [name for name, needed in zip(ctx.names, needs[7:], strict=True) if needed]
            if any(needs[1:4]):
                wanted.append(ctx.expression.product)
            cotangents = [_zeros(one, first) for one in grads[:count]]
            derived = gradient_of(ctx.expression)(like, named, cotangents, wanted)
            d = derived.pop(ctx.expression.product, None)
        # A function of steps, such as floor, has no slope: zeros stand for it, as in torch.
        for index, (name, (shape, kind)) in enumerate(zip(ctx.names, ctx.likes, strict=True), 7):
            if needs[index]:
                gradients[index] = derived[name] if name in derived else first.new_zeros(shape, dtype=kind)
        if ctx.has_product and grads[-1] is not None:
            d = grads[-1] if d is None else d + grads[-1]
        if not any(needs[1:4]):
            return tuple(gradients)
        if d is None:
            d = _like_product(a, b, first, dtype)
        if needs[3]:
            gradients[3] = (d * beta).sum_to_size(ctx.c_shape)
        d = d.to(a.dtype)
        if not (d.stride(-1) == 1 or d.stride(-2) == 1):
            d = d.contiguous()
        if needs[1]:
            gradients[1] = matmul(d, b.mH, alpha=alpha, compute=compute).sum_to_size(a.shape)
        if needs[2]:
            if b.dim() == 2 and a.dim() > 2 and a.shape[:-1] == d.shape[:-1]:
                a, d = in_rows(a), in_rows(d)
            gradients[2] = matmul(a.mH, d, alpha=alpha, compute=compute).sum_to_size(b.shape)
        return tuple(gradients)


_apply = super(torch.autograd.Function, EpilogueFunction).apply


def _like_product(a: Tensor, b: Tensor, first: Tensor, dtype: Any) -> Tensor:
    """Return zeros of the product's shape and type: its gradient where it has none, or what none reads."""
    shape, _ = product_shapes(a, b, EPILOGUES["default"])
    return first.new_zeros((), dtype=result_dtype(a, b, dtype)).expand(shape)


def _zeros(grad: Tensor | None, first: Tensor) -> Tensor:
    # A result that nobody used; one value stands for all of them.
    return first.new_zeros(()).expand(first.shape) if grad is None else grad


def _with_product(expression: Expression) -> Expression:
    """Return an expression whose results are followed by the product itself."""
    from rocpy.epilogues.expressions.expression import Builder

    builder = Builder(expression.inputs)
    copies = builder.copy(expression)
    return builder.finish([*(copies[output] for output in expression.outputs), builder.x()], False, (), expression.name)


def _record(
    below: Any,
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    inputs: list[Tensor],
    names: str,
    expression: str,
    *settings: Any,
) -> list[Tensor]:
    form = _form_of(expression)
    if form is None or min(a.dim(), b.dim()) < 2:
        multiply, named = (
            functools.partial(record_product, below.of(product)),
            zip(split_names(names), inputs, strict=True),
        )
        return composed(multiply, a, b, c, dict(named), Expression.from_json(expression), settings)
    results = _apply(below, a, b, c, names, form, settings, *inputs)
    return list(results[: len(form.expression.outputs)])


@in_default_environment
def composed(
    multiply: Callable[..., Any],
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    named: dict[str, Any],
    expression: Expression,
    settings: Any,
) -> list[Tensor]:
    """Return the recorded product followed by torch's own functions, which are recorded too."""
    alpha, beta, dtype, compute = settings
    counted = None
    if c is None and a.dtype in _NARROW and result_dtype(a, b, dtype) in _NARROW:
        # The results are rounded, not the product.
        counted, dtype = str(result_dtype(a, b, dtype)).removeprefix("torch."), torch.float32
    x = multiply(a, b, c, None, None, "default", alpha, beta, None, dtype, compute)
    infos = {name: info_of(value) for name, value in named.items()}
    if are_known(x, *named.values()):
        shape_of(expression, tuple(x.shape), b.dim(), infos)  # torch's functions would broadcast others
    return list(evaluate(expression, x, named, counted))


_NARROW = (torch.bfloat16, torch.float16)


run_operator = record(operator, _record)
