# SPDX-License-Identifier: MIT
"""Powers as products: what is computed of them, where their gradients are of the power itself."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from rocpy.epilogues.expressions.expression import Builder, Expression

__all__ = ["expanded", "product"]


def product(multiply: Callable[[Any, Any], Any], factor: Any, count: int) -> Any:
    """Return a power with a positive exponent, by squares."""
    power, square = None, factor
    while count:
        if count & 1:
            power = square if power is None else multiply(power, square)
        count >>= 1
        if count:
            square = multiply(square, square)
    return power


@functools.lru_cache(maxsize=512)
def expanded(expression: Expression) -> Expression:
    """Return an expression whose powers are the products and quotients that they are computed by."""
    if all(node.op != "power" for node in expression.nodes):
        return expression
    builder = Builder(expression.inputs)
    copies: list[int] = []
    for node in expression.nodes:
        args = [copies[arg] for arg in node.args]
        if node.op == "power":
            copies.append(_reciprocal(builder, args[0], -node.value))
        else:
            copies.append(builder.op(node.op, *args, value=node.value) if args else builder.leaf(node))
    outputs = [copies[output] for output in expression.outputs]
    return builder.finish(outputs, expression.single, expression.defaults, expression.name)


def _reciprocal(builder: Builder, base: int, count: int) -> int:
    """Return the power with the exponent ``-count``.

    It is the reciprocal of the power, which rounds least. Where the power is infinite, or so small that it has lost
    digits, it is the power of the reciprocal: 4 / power is 0 or infinite there. Each is of 1 where the other counts.
    """
    multiply = functools.partial(builder.op, "mul")
    one, base = builder.const(1), multiply(base, builder.const(1.0))  # powers of whole numbers could overflow
    size = builder.op("abs", builder.op("div", builder.const(4.0), product(multiply, base, count)))
    inside = builder.op(
        "and", builder.op("gt", size, builder.const(0)), builder.op("lt", size, builder.const(math.inf))
    )
    power = product(multiply, builder.op("where", inside, base, one), count)
    inverse = builder.op("div", one, builder.op("where", inside, one, base))
    return builder.op("div", product(multiply, inverse, count), power)
