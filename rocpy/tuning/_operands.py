# SPDX-License-Identifier: MIT
"""Operands for a problem that is only described: random numbers laid out as it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.errors import UnsupportedError


def array_of(operand: OperandInfo, seed: int) -> Any:
    """Return random numbers with an operand's shape, strides and dtype.

    Random, since some processors multiply zeros faster; small enough for every dtype.
    """
    row = dtypes.lookup(operand.dtype)
    if row.bits < 8:
        raise UnsupportedError(f"operands of {row.name} cannot be generated; tune in the program itself, with enable()")
    if any(stride < 0 for stride in operand.strides):
        raise UnsupportedError(f"an operand with strides {operand.strides} is not generated; it would be copied anyway")
    extent = 1 + sum((n - 1) * stride for n, stride in zip(operand.shape, operand.strides, strict=True) if n)
    values = np.random.default_rng(seed).standard_normal(extent, np.float32)
    memory = (4 * values if row.kind == "int" else values).astype(row.numpy)
    strides = tuple(stride * memory.itemsize for stride in operand.strides)
    return np.lib.stride_tricks.as_strided(memory, operand.shape, strides, writeable=False)


def product_of(problem: Problem) -> PlannedProduct:
    """Return a product that has a problem, on made-up operands."""
    from rocpy.blaslt.front.planned import planned_product
    from rocpy.blaslt.operands.weight import Weight

    several = [name for name in ("scale_a", "scale_b") if getattr(problem, name, "") not in ("", "scalar")]
    if several:
        raise UnsupportedError(
            f"{several[0]}: scales by rows or blocks cannot be generated; tune in the program itself, with enable()"
        )
    arrays: dict[str, Any] = {
        name: None if operand is None else array_of(operand, seed)
        for seed, (name, operand) in enumerate(
            (name, getattr(problem, name)) for name in ("a", "b", "c", "bias", "aux")
        )
    }
    b: Any = Weight(arrays["b"]) if problem.b.packed else arrays["b"]
    more: dict[str, Any] = {"epilogue": problem.epilogue, "dtype": problem.dtype, "compute": problem.compute}
    more |= {name: 1.0 for name in ("scale_a", "scale_b", "scale_c", "scale_d") if getattr(problem, name, None)}
    if getattr(problem, "amax", False):
        more["amax"] = True
    return planned_product(
        arrays["a"],
        b,
        arrays["c"],
        bias=arrays["bias"],
        aux=arrays["aux"],
        clamp=problem.clamp,
        **more,
    )
