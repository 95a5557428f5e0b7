# SPDX-License-Identifier: MIT
"""The operator behind ``rocpy.matmul`` with an epilogue of the user's: recorded, traced and compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rocpy.blaslt.custom.binding import bind
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.problem import Problem
from rocpy.epilogues import CustomEpilogue, Expression
from rocpy.epilogues.expressions.evaluate import evaluate, interleaved
from rocpy.epilogues.expressions.expression import Builder
from rocpy.epilogues.expressions.gradient import gradient_of
from rocpy.epilogues.expressions.inputs import are_known, shape_of
from rocpy.epilogues.expressions.resolve import resolve
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.kernels import custom_kernel, split_names
from rocpy.torch.operators.products import operand_gradients
from rocpy.torch.operators.registration import define, record
from rocpy.torch.operators.shapes import (
    ProductSettings,
    check_devices,
    check_product,
    info_of,
    product_shapes,
    result_dtype,
)

__all__ = [
    "composed",
    "empty_custom_results",
    "operator",
    "recorded_epilogue",
    "results_without_values",
    "run_operator",
]

_SCHEMA = (
    "(Tensor a, Tensor b, Tensor? c, Tensor[] inputs, str names, str expression, float alpha, float beta,"
    " ScalarType? dtype, str? compute) -> Tensor[]"
)


def results_without_values(
    a: Tensor, b: Tensor, c: Any, inputs: Sequence[Tensor], names: str, expression: str, *settings: Any
) -> list[Tensor]:
    """Return the operator's results without values, or refuse the operands as the product does."""
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


operator = define("epilogue", _SCHEMA, custom_kernel, results_without_values, narrow=_narrow)


class _Form(NamedTuple):
    """What is computed of an epilogue where it is recorded."""

    expression: Expression  # of the product with what is added to it
    text: str  # of what is computed: the epilogue, followed by the product where the gradient reads that
    saved: frozenset[str]  # the inputs that the gradient reads
    added: str  # the input that is added to the product first


@functools.lru_cache(maxsize=256)
def _form_of(text: str) -> _Form:
    """Return the form of an epilogue's text."""
    whole = Expression.from_json(text)
    # A platform's program has one element of an input for two columns, except of the bias of the product: the product
    # is that with its bias.
    expression, added = _without_added(whole) if whole.halved else (whole, "")
    gradient = gradient_of(expression)
    if gradient.expression.reads_x:
        text = _with_product(whole, added).to_json()
    return _Form(expression, text, frozenset(gradient.saved), added)


def recorded_epilogue(epilogue: CustomEpilogue) -> CustomEpilogue:
    """Return the epilogue of the product that records one."""
    return CustomEpilogue.from_json(_form_of(epilogue.text).text)


class EpilogueFunction(torch.autograd.Function):  # type: ignore[misc]
    """A product with a custom epilogue, recorded; where the gradient reads the product, that is a result too.

    Beside results of half its columns the product is two results: its even columns and its odd ones.
    """

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
        ctx.added = form.added
        ctx.c_shape = None if c is None else c.shape
        saved = [value if name in form.saved else None for name, value in zip(ctx.names, inputs, strict=True)]
        ctx.likes = [(value.shape, value.dtype) for value in inputs]
        product = results[len(form.expression.outputs) :]
        ctx.parts = len(product)
        ctx.save_for_backward(a, b, *product, *saved)
        return tuple(results)

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        """Return the gradients of those operands that need one."""
        a, b, *rest = ctx.saved_tensors
        x, inputs = _whole(rest[: ctx.parts]), rest[ctx.parts :]
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
            asked = [name for name, needed in zip(ctx.names, needs[7:], strict=True) if needed]
            wanted = [name for name in asked if name != ctx.added]
            if any(needs[1:4]) or ctx.added in asked:
                wanted.append(ctx.expression.product)
            cotangents = [_zeros(one, first) for one in grads[:count]]
            derived = gradient_of(ctx.expression)(like, named, cotangents, wanted)
            d = derived.pop(ctx.expression.product, None)
        # A function of steps, such as floor, has no slope: zeros stand for it, as in torch.
        for index, (name, (shape, kind)) in enumerate(zip(ctx.names, ctx.likes, strict=True), 7):
            if needs[index]:
                gradients[index] = derived[name] if name in derived else first.new_zeros(shape, dtype=kind)
        of_product = grads[count:]
        if any(one is not None for one in of_product):
            own = _whole([_zeros(one, first) for one in of_product])
            d = own if d is None else d + own
        if d is not None and ctx.added and needs[index := 7 + ctx.names.index(ctx.added)]:
            shape, kind = ctx.likes[index - 7]
            gradients[index] = d.sum_to_size(shape).to(kind)
        if not any(needs[1:4]):
            return tuple(gradients)
        if d is None:
            d = _like_product(a, b, first, dtype)
        if needs[3]:
            gradients[3] = (d * beta).sum_to_size(ctx.c_shape)
        gradients[1:3] = operand_gradients(a, b, d, needs[1:3], {"alpha": alpha, "compute": compute})
        return tuple(gradients)


_apply = super(torch.autograd.Function, EpilogueFunction).apply


def _like_product(a: Tensor, b: Tensor, first: Tensor, dtype: Any) -> Tensor:
    """Return zeros of the product's shape and type: its gradient where it has none, or what none reads."""
    shape, _ = product_shapes(a, b, EPILOGUES["default"])
    return first.new_zeros((), dtype=result_dtype(a, b, dtype)).expand(shape)


def _whole(parts: Sequence[Any]) -> Any:
    """Return the product of its even columns and its odd ones; one part is the product itself, and none is ``None``."""
    return interleaved(*parts) if len(parts) == 2 else parts[0] if parts else None


def _zeros(grad: Tensor | None, first: Tensor) -> Tensor:
    # A result that nobody used; one value stands for all of them.
    return first.new_zeros(()).expand(first.shape) if grad is None else grad


def _without_added(expression: Expression) -> tuple[Expression, str]:
    """Return an expression of the product with an input added to it, and that input; none where x is used otherwise."""
    nodes = expression.nodes
    x = next(index for index, node in enumerate(nodes) if node.op == "x")
    users = [node for node in nodes if x in node.args]
    terms = [nodes[arg] for node in users if node.op == "add" for arg in node.args]
    names = [term.value for term in terms if term.op == "input"]
    if len(users) > 1 or len(names) != 1 or sum(terms.count(nodes[arg]) for node in nodes for arg in node.args) > 2:
        return expression, ""
    builder = Builder(name for name in expression.inputs if name != names[0])
    copies: list[int] = []
    for node in nodes:
        if node in (*terms, *users):
            copies.append(builder.x())
        else:
            args = [copies[arg] for arg in node.args]
            copies.append(builder.op(node.op, *args, value=node.value) if args else builder.leaf(node))
    outputs = [copies[output] for output in expression.outputs]
    return builder.finish(outputs, expression.single, (), expression.name), names[0]


def _with_product(expression: Expression, added: str = "") -> Expression:
    """Return an expression whose results are followed by the product itself; see `EpilogueFunction`."""
    builder = Builder(expression.inputs)
    copies = builder.copy(expression)
    x = builder.op("add", builder.x(), builder.input(added)) if added else builder.x()
    product = [builder.op("pick", x, value=lane) for lane in (0, 1)] if expression.halved else [x]
    return builder.finish([*(copies[output] for output in expression.outputs), *product], False, (), expression.name)


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
