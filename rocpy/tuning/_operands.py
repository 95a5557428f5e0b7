# SPDX-License-Identifier: MIT
"""Operands for a problem that is only described: random numbers laid out as it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._messages.modules import imported
from rocpy.blaslt.arrays.quantization import quantize_mx
from rocpy.blaslt.model.options import Options
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
    if row.kind == "complex":
        values = values + 1j * np.random.default_rng(seed + 100).standard_normal(extent, np.float32)
    memory = (4 * values if row.kind == "int" else values).astype(row.numpy)
    strides = tuple(stride * memory.itemsize for stride in operand.strides)
    return np.ndarray(operand.shape, row.numpy, memory.view(np.uint8), strides=strides)


def product_of(
    problem: Problem, options: Options | None = None, *, alpha: Any = 1.0, beta: Any = None
) -> PlannedProduct:
    """Return a product that has a problem, on made-up operands."""
    from rocpy.blaslt.front.planned import planned_product
    from rocpy.blaslt.operands.weight import Weight

    scales: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    if "block32" in (problem.scale_a, problem.scale_b):
        arrays["a"], scales["scale_a"] = _in_blocks(problem.a, 0, -1)
        arrays["b"], scales["scale_b"] = _in_blocks(problem.b, 1, -2)
    else:
        scales = _scales(problem)
    for seed, name in enumerate(("a", "b", "c", "bias", "aux")):
        operand = getattr(problem, name)
        if name not in arrays:
            arrays[name] = None if operand is None else array_of(operand, seed)
    if problem.conj_a or problem.conj_b:
        arrays = _conjugated(arrays, problem)
    return planned_product(
        arrays["a"],
        Weight(arrays["b"]) if problem.b.packed else arrays["b"],
        arrays["c"],
        alpha=alpha,
        beta=None if problem.c is None else beta,
        bias=arrays["bias"],
        aux=arrays["aux"],
        **_epilogue(problem),
        dtype=problem.dtype,
        compute=problem.compute,
        clamp=problem.clamp,
        amax=problem.amax,
        options=options,
        **scales,
    )


def _epilogue(problem: Problem) -> dict[str, Any]:
    if not problem.expression:
        return {"epilogue": problem.epilogue}
    from rocpy.epilogues import CustomEpilogue, Expression  # a product without such an epilogue needs none of it

    inputs = {name: array_of(operand, seed + 5) for seed, (name, operand) in enumerate(problem.inputs)}
    return {"epilogue": CustomEpilogue(Expression.from_json(problem.expression)), "epilogue_inputs": inputs}


def _scales(problem: Problem) -> dict[str, Any]:
    """Return scales of a problem, of which none is 1: a library that ignored one would give another result."""
    scales: dict[str, Any] = {}
    shapes = {"scale_a": (*problem.scale_a_batch, problem.m, 1), "scale_b": (*problem.scale_b_batch, 1, problem.n)}
    for seed, (name, shape) in enumerate(shapes.items()):
        kind = getattr(problem, name)
        if kind == "vector":
            scales[name] = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)
        elif kind:
            scales[name] = 0.5
    return scales | {name: 0.25 for name in ("scale_c", "scale_d") if getattr(problem, name)}


def _in_blocks(operand: OperandInfo, seed: int, axis: int) -> tuple[Any, Any]:
    values = np.random.default_rng(seed).standard_normal(operand.shape, np.float32)
    return quantize_mx(values, dtypes.lookup(operand.dtype), axis)


def _conjugated(arrays: dict[str, Any], problem: Problem) -> dict[str, Any]:
    """Return arrays as tensors of torch's, which alone conjugates without a copy."""
    torch = imported("torch")
    if torch is None:
        raise UnsupportedError(
            "conjugates cannot be generated, since torch is not imported; run the program itself, not its problems, or "
            "tune in it, with enable()"
        )
    tensors: dict[str, Any] = {
        name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()
    }
    for name in ("a", "b"):
        tensors[name] = tensors[name].conj() if getattr(problem, f"conj_{name}") else tensors[name]
    return tensors
