# SPDX-License-Identifier: MIT
"""Floating-point operations of the operators, for torch.utils.flop_counter: two for each term of a product."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula

__all__ = ["register"]


def _linear(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Return the operations of ``x @ weight.T``; bias and activation are not counted, as torch does not."""
    return 2 * math.prod(x) * weight[0]


def _mlp(x: Any, w1: Any, b1: Any, w2: Any, *_: Any, **__: Any) -> int:  # noqa: ARG001
    rows = math.prod(x[:-1])
    return 2 * rows * (w1[0] * w1[1] + w2[0] * w2[1])


def _product(a: Any, b: Any, *_: Any, **__: Any) -> int:
    n = b[-1] if len(b) > 1 else 1
    m = a[-2] if len(a) > 1 else 1
    return 2 * math.prod(torch.broadcast_shapes(a[:-2], b[:-2])) * m * n * a[-1]


def _grouped(a: Any, b: Any, *_: Any, **__: Any) -> int:
    # The axis that the groups share out counts once, whatever their sizes are.
    m, k, n = a[-2], a[-1], b[-1]
    return 2 * m * k * n


def register() -> None:
    """Register the formulas, once."""
    operators = torch.ops.rocpy
    for formula, targets in (
        (_linear, (operators.linear, operators.linear_aux)),
        (_mlp, (operators.mlp, operators.mlp_aux, operators.custom_mlp)),
        (_grouped, (operators.grouped_matmul,)),
        (_product, (operators.matmul, operators.matmul_extra, operators.epilogue)),
    ):
        for target in targets:
            if target not in flop_registry:
                register_flop_formula(target)(formula)
