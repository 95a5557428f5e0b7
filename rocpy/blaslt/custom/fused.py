# SPDX-License-Identifier: MIT
"""Custom epilogues as tile programs of the platform."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rocpy import platform
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.engine import program as _program
from rocpy.blaslt.model.product_types import RESULT_TYPES
from rocpy.errors import UnsupportedError

if TYPE_CHECKING:
    from rocpy.epilogues.expressions.resolve import Resolved
    from rocpy.epilogues.lowering.tile import Code

__all__ = ["Fused", "fused_of"]


@dataclass(frozen=True, slots=True)
class Fused:
    """A tile program for the operands of one product.

    Parameters
    ----------
    code
        The program.
    bias
        Name of the input that is the product's bias; empty for none.
    alpha
        Factor of the product.
    dtype
        Type of the result that is the product's.
    lead
        Which of the results that is: the first whose type such a product has.
    """

    code: Code
    bias: str
    alpha: float
    dtype: str
    lead: int


@functools.lru_cache(maxsize=512)
def fused_of(bound: _custom.Bound) -> Fused:
    """Return an epilogue as a tile program.

    Raises
    ------
    UnsupportedError
        If the platform runs none, or the epilogue cannot be one.
    """
    from rocpy.epilogues.expressions.resolve import resolve
    from rocpy.epilogues.lowering.tile import encode

    if not _program.available():
        raise UnsupportedError(f"the {platform.current().name} platform does not support tile programs")
    resolved, problem = bound.resolved, bound.problem
    available = RESULT_TYPES.get(problem.a.dtype, ()) if problem.c is None else (problem.c.dtype,)
    lead = next((position for position, dtype in enumerate(resolved.out_types) if dtype in available), None)
    if lead is None:
        raise UnsupportedError(
            f"epilogue {resolved.expression.name!r}: a {problem.a.dtype} product cannot have a "
            f"{resolved.out_types[0]} result"
        )
    bias, alpha = "", 1.0
    if resolved.expression.halved:
        # Whatever beta is: a plan's may change.
        if problem.c is not None:
            raise UnsupportedError(
                f"epilogue {resolved.expression.name!r}: a tile program that reads pairs of columns does not add c"
            )
        # Inputs of a program have one element for two columns: one that goes with both is the product's bias.
        form, rest = _custom.nearest_form(bound)
        if not form.function and not form.c and (form.bias or form.alpha != 1):
            named = {name: ("float32" if rank else own, rank) for name, (own, rank) in resolved.inputs}
            left = resolve(rest, resolved.compute, named)
            bias, alpha = form.bias, form.alpha
            resolved = replace(
                left, out_types=bound.out_types, inputs=_read(left.expression.used_inputs, resolved.inputs)
            )
    return Fused(encode(_led(resolved, lead)), bias, alpha, bound.out_types[lead], lead)


def _led(resolved: Resolved, lead: int) -> Resolved:
    """Return an expression with one of its results before the others."""
    if lead == 0:
        return resolved
    types, outputs = resolved.out_types, resolved.expression.outputs
    expression = replace(resolved.expression, outputs=(outputs[lead], *outputs[:lead], *outputs[lead + 1 :]))
    return replace(resolved, expression=expression, out_types=(types[lead], *types[:lead], *types[lead + 1 :]))


def _read(names: tuple[str, ...], inputs: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, kind) for name, kind in inputs if name in names)
