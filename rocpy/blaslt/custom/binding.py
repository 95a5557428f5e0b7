# SPDX-License-Identifier: MIT
"""Products with an epilogue of the user's: its inputs checked against the product, and the ways to compute it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rocpy._messages.modules import imported
from rocpy._operand import describe
from rocpy._producers.torch_copies import resolved as resolved_copy
from rocpy.blaslt.arrays.views import viewed_inputs
from rocpy.blaslt.custom.launch import as_bytes
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.model.product_types import RESULT_TYPES, bias_types, find_family
from rocpy.blaslt.model.shapes import dense_strides
from rocpy.blaslt.model.weight_operand import WeightOperand
from rocpy.blaslt.selection.recipes import working_type
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

if TYPE_CHECKING:
    from rocpy.epilogues import CustomEpilogue, Expression
    from rocpy.epilogues.expressions.resolve import Resolved
    from rocpy.epilogues.lowering.match import NativeForm

__all__ = ["Bound", "bind", "nearest_form", "whole_form"]


def refuse_operands(**operands: Any) -> None:
    """Refuse operands of the library's epilogues beside an epilogue of the user's."""
    for name, value in operands.items():
        if value is not None:
            raise InvalidProblemError(
                f"{name}: an operand of the library's own epilogues; add a parameter to the function, and pass it in "
                "epilogue_inputs"
            )


@dataclass(frozen=True, slots=True)
class Bound:
    """An epilogue for the operands of one product.

    Parameters
    ----------
    resolved
        What is to be computed, in which types.
    problem
        The product by itself, of the type that it counts as.
    inputs
        Shape and type of each input that is an array.
    result_shape
        Shape of the results.
    """

    resolved: Resolved
    problem: Problem
    inputs: tuple[tuple[str, OperandInfo], ...]
    result_shape: tuple[int, ...]

    @property
    def out_types(self) -> tuple[str, ...]:
        """Types of the results."""
        return self.resolved.out_types


def info_of(value: Any, name: str) -> OperandInfo:
    """Return what is known of an input: its shape and type; its strides play no role here."""
    from rocpy.epilogues.expressions.evaluate import type_of

    dtype, _ = type_of(value, f"epilogue_inputs[{name!r}]")
    shape = tuple(int(extent) for extent in value.shape)
    return OperandInfo(shape, dense_strides(shape), dtype)


def bind(expression: Expression, problem: Problem, inputs: Mapping[str, OperandInfo]) -> Bound:
    """Return an epilogue for a product and inputs; numbers among the inputs are constants of the expression already.

    Raises
    ------
    InvalidProblemError
        If an input does not broadcast to the result; the message names it.
    """
    from rocpy.epilogues.expressions.inputs import shape_of
    from rocpy.epilogues.expressions.resolve import resolve

    if problem.is_complex:
        raise UnsupportedError(
            f"epilogue {expression.name!r}: the product is {problem.dtype}, and custom epilogues are functions of real "
            "numbers; apply it to the plain product"
        )
    shape = shape_of(expression, problem.result_shape, len(problem.b.shape), inputs)
    resolved = resolve(
        expression, problem.dtype, {name: (one.dtype, 2 if one.shape else 1) for name, one in inputs.items()}
    )
    for position, dtype in enumerate(resolved.out_types):
        if dtype not in _RESULTS:
            which = "the result" if expression.single else f"result {position}"
            raise InvalidProblemError(
                f"epilogue {expression.name!r}: {which} is {dtype}, which is not a result dtype; cast it to one of "
                f"{', '.join(_RESULTS)}"
            )
    return Bound(
        resolved,
        problem,
        tuple((name, inputs[name]) for name in expression.used_inputs),
        shape,
    )


_RESULTS = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "int8", "int32",
)  # fmt: skip


# ---- what the library computes of it ----


def _kinds(bound: Bound, dtype: str) -> dict[str, str]:
    """Return which inputs may be the bias or the addend of a product of a type."""
    problem, kinds = bound.problem, {}
    allowed = bias_types(find_family(problem.a.dtype, problem.b.dtype, "block32" in problem.scale_a), dtype)
    matrices = min(len(problem.a.shape), len(problem.b.shape)) > 1
    for name, info in bound.inputs:
        if info.shape == problem.result_shape:
            if info.dtype == dtype:
                kinds[name] = "full"
        elif matrices and info.dtype in allowed:
            if info.shape == (problem.n,):
                kinds[name] = "row"
            elif info.shape == (problem.m, 1):
                kinds[name] = "column"
    return kinds


def whole_form(bound: Bound) -> NativeForm | None:
    """Return the library's epilogue that equals the whole of a custom one, if there is one."""
    from rocpy.epilogues.lowering.match import match

    resolved = bound.resolved
    dtype = resolved.out_types[0]
    if len(resolved.out_types) != 1 or not resolved.computes_as_product:
        return None
    if dtype not in RESULT_TYPES.get(bound.problem.a.dtype, ()):
        return None
    return match(resolved.expression, _kinds(bound, dtype), bound.problem.c is None)


def base_type(bound: Bound) -> str:
    """Return the type of the product that an unfused epilogue begins with: the widest there is of what is computed."""
    problem = bound.problem
    available = RESULT_TYPES.get(problem.a.dtype, ())
    if problem.c is None:
        for wanted in (bound.resolved.compute, working_type(problem.dtype)):
            if wanted in available:
                return wanted
    return problem.dtype


def nearest_form(bound: Bound) -> tuple[NativeForm, Expression]:
    """Return the product that an unfused epilogue begins with, and what is left to compute."""
    from rocpy.epilogues.expressions.types import category
    from rocpy.epilogues.lowering.match import NativeForm, nearest

    dtype = base_type(bound)
    if not bound.resolved.compute or category(dtype) < 2:  # the library's epilogues of integers take no fractions
        return NativeForm(), bound.resolved.expression
    return nearest(bound.resolved.expression, _kinds(bound, dtype), bound.problem.c is None)


def check_promise(bound: Bound, options: Options) -> None:
    """Refuse to compose what could break a promise: a framework may compute a function otherwise at an array's end."""
    if options.reproducible == "batch" and not bound.resolved.exact_functions:
        raise UnsupportedError(
            f"options(reproducible='batch'): epilogue {bound.resolved.expression.name!r} is composed here from the "
            "framework's own operations, whose functions may depend on an array's shape; apply it to the plain "
            "product, or omit the option"
        )


def complete(epilogue: CustomEpilogue, inputs: Any, b: Any) -> dict[str, Any]:
    """Return the inputs by name; the bias that a Weight carries is one where the function takes a ``bias``."""
    if isinstance(b, WeightOperand) and b.bias is not None and "bias" in epilogue.inputs:
        inputs = {"bias": b.bias, **(inputs or {})}
    return epilogue.complete(inputs)


def bound_of(
    epilogue: CustomEpilogue, numbers: Mapping[str, Any], arrays: Mapping[str, OperandInfo], problem: Problem
) -> Bound:
    """Return an epilogue for a product, inputs that are numbers, which become constants, and those that are arrays."""
    from rocpy.epilogues.expressions.inputs import with_numbers

    return bind(with_numbers(epilogue.expression, numbers), problem, arrays)


def plain_numbers(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return those inputs that are numbers, as Python's; refuses what is no real number."""
    from rocpy.epilogues.expressions.evaluate import is_number
    from rocpy.epilogues.expressions.types import plain_number

    plain = {name: plain_number(value) for name, value in inputs.items() if is_number(value)}
    for name, value in plain.items():
        if value is None:
            raise InvalidOperandError(
                f"epilogue_inputs[{name!r}]: got {type(inputs[name]).__name__}; pass an array or a real number"
            )
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidProblemError(
                f"epilogue_inputs[{name!r}]: got an integer below -2**63 or above 2**63 - 1; pass a float"
            )
    return plain


def problem_of(bound: Bound) -> Problem:
    """Return the problem of a product with an epilogue of the user's, as plain data."""
    return replace(bound.problem, expression=bound.resolved.expression.to_json(), inputs=bound.inputs)


def check_inputs(inputs: Mapping[str, Any]) -> None:
    """Refuse arrays that cannot be read, by the names that the user knows: of a product inside, they are operands.

    A tensor that must be recorded, or that none but torch's dispatcher can read, is handed over to the layer for torch.
    """
    for name, value in inputs.items():
        label = f"epilogue_inputs[{name!r}]"
        if is_negated(value):
            raise InvalidOperandError(
                f"{label}: a view with a sign that torch has not applied; pass its .resolve_neg()"
            )
        if type(value) is not np.ndarray and not isinstance(value, np.generic) and hasattr(value, "dtype"):
            describe(as_bytes(value), label)


def resolved(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs with the signs applied that torch keeps apart from a tensor's memory, and as what computes them."""
    return viewed_inputs({name: resolved_copy(value) if is_negated(value) else value for name, value in inputs.items()})


def is_negated(value: Any) -> bool:
    """Whether a plain tensor has a sign that torch has not applied to its memory."""
    torch = imported("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_neg()
