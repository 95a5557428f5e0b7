# SPDX-License-Identifier: MIT
"""One product as jax sees it: what decides it, the shapes of its results, and the call that XLA makes of it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rocpy import dtypes
from rocpy.blaslt.model.epilogues import EPILOGUES, EpilogueRow
from rocpy.blaslt.model.options import DEFAULT, Options
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.selection.recipes import check_function
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.jax import _handler

__all__ = ["OPERANDS", "Spec", "call", "is_column", "problem_of", "spelled_out", "varying_axes"]

#: The operands of a product, in the order of the call.
OPERANDS = ("a", "b", "c", "bias", "aux")
_TARGET = "rocpy_matmul"


# At import, not with the first product: a program that was exported or compiled elsewhere calls it by its name alone.
jax.ffi.register_ffi_target(_TARGET, _handler.CPU_HANDLER, platform="cpu")
jax.ffi.register_ffi_target(_TARGET, _handler.ROCM_HANDLER, platform="ROCM")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """What decides a product beside its operands; equal where each number has the same bits.

    Numbers compare otherwise: 0.0 and -0.0 would share a program, and NaN would have a new one each time.

    Parameters
    ----------
    epilogue
        Name of its row.
    alpha, beta
        Factors of the product and of c.
    clamp
        Bounds of a clamp epilogue.
    dtype
        Name of the result's type; ``None``: that of the operands.
    compute
        Name of the compute type.
    transpose_a, transpose_b
        Whether the last two axes of an operand are swapped: read so by the product, without a copy.
    options
        JSON of the options that differ from the defaults.
    scale_a, scale_b
        Factors that quantized operands stand for multiples of; ``None`` for none.
    """

    epilogue: str = "default"
    alpha: float = 1.0
    beta: float = 0.0
    clamp: tuple[float, float] | None = None
    dtype: str | None = None
    compute: str | None = None
    transpose_a: bool = False
    transpose_b: bool = False
    options: str = ""
    scale_a: float | None = None
    scale_b: float | None = None
    _text: str = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", repr(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def row(self) -> EpilogueRow:
        """The epilogue's row."""
        return EPILOGUES[self.epilogue]

    @property
    def scales(self) -> dict[str, float]:
        """The scales that there are, by name."""
        named = {"scale_a": self.scale_a, "scale_b": self.scale_b}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def forbids_composing(self) -> bool:
        """Whether the options allow jax's own functions for an epilogue only after a check."""
        changed = json.loads(self.options) if self.options else {}
        return changed.get("fallback") == "error" or changed.get("reproducible") == "batch"


def options_text(options: Options) -> str:
    """Return what differs from the defaults, as JSON."""
    changed = {name: value for name, value in dataclasses.asdict(options).items() if value != getattr(DEFAULT, name)}
    return json.dumps(changed, sort_keys=True) if changed else ""


class _Extents:
    """Numbers that stand for the symbols of a shape, so that one set of rules checks every shape.

    A product's extents are compared, never computed with: equal symbols get equal numbers, and the results' extents
    are symbols again.
    """

    def __init__(self, shapes: Sequence[tuple[Any, ...]]) -> None:
        taken = {extent for shape in shapes for extent in shape if isinstance(extent, int)}
        self._numbers: dict[Any, int] = {}
        free = (number for number in range(2, 2**20) if number not in taken)
        for shape in shapes:
            for extent in shape:
                if not isinstance(extent, int) and extent not in self._numbers:
                    self._numbers[extent] = next(free)
        self._symbols = {number: symbol for symbol, number in self._numbers.items()}

    def numbers(self, shape: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(extent if isinstance(extent, int) else self._numbers[extent] for extent in shape)

    @property
    def text(self) -> str:
        """The symbols with their numbers; empty where all extents are known."""
        return ", ".join(f"{symbol} = {number}" for symbol, number in self._numbers.items())

    def symbols(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(self._symbols.get(extent, extent) for extent in shape)


def _info(shape: tuple[int, ...], dtype: Any, name: str, transposed: bool) -> OperandInfo:
    try:
        kind = dtypes.lookup(str(dtype)).name
    except InvalidOperandError as error:
        raise InvalidOperandError(f"{name}: {error}") from None
    dense = OperandInfo.dense(shape, kind)
    if not transposed:
        return dense
    seen, steps = ((*axes[:-2], axes[-1], axes[-2]) for axes in (dense.shape, dense.strides))
    return OperandInfo(seen, steps, kind)


Seen = tuple[tuple[tuple[Any, ...], Any] | None, ...]
Checked = tuple[Problem, tuple[jax.ShapeDtypeStruct, ...]]


def problem_of(spec: Spec, operands: Sequence[Any]) -> Checked:
    """Check a product without its memory; returns it as data, and what its results are.

    Raises
    ------
    InvalidProblemError
        If shapes or types do not fit, known or symbolic.
    UnsupportedError
        If the epilogue is no function of such results.
    """
    seen = tuple(None if x is None else (tuple(x.shape), x.dtype) for x in operands)
    known = all(isinstance(extent, int) for one in seen if one is not None for extent in one[0])
    return _checked_once(spec, seen) if known else _checked(spec, seen)


def _checked(spec: Spec, seen: Seen) -> Checked:
    extents = _Extents([one[0] for one in seen if one is not None])
    swapped = {"a": spec.transpose_a, "b": spec.transpose_b}
    infos: dict[str, Any] = {
        name: None if one is None else _info(extents.numbers(one[0]), one[1], name, swapped.get(name, False))
        for name, one in zip(OPERANDS, seen, strict=True)
    }
    a, b = infos.pop("a"), infos.pop("b")
    try:
        problem = Problem.make(
            a, b, **infos, epilogue=spec.epilogue, dtype=spec.dtype, compute=spec.compute, clamp=spec.clamp,
            **dict[str, Any](dict.fromkeys(spec.scales, "scalar")),
        )  # fmt: skip
    except InvalidProblemError as error:
        if not extents.text:
            raise
        raise InvalidProblemError(f"{error} (in place of the symbols: {extents.text})") from None
    check_function(problem)

    def result(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(extents.symbols(shape), dtypes.lookup(dtype).numpy)

    results = [result(problem.result_shape, problem.dtype)]
    if problem.row.aux == "store":
        results.append(result(problem.result_shape, problem.dtype))
    elif problem.row.gradient:
        results.append(result(problem.gradient_shape, problem.gradient_dtype))
    return problem, tuple(results)


# A call outside jax.jit is checked each time; equal ones are told from their shapes.
_checked_once = functools.lru_cache(maxsize=1024)(_checked)


def spelled_out(bias: Any, problem: Problem, result: Sequence[Any]) -> Any:
    """Return a bias in the form whose rank alone says what it holds, as `is_column` reads it.

    The extents of a shape do not: a device of several has other ones, and so has an exported program when it runs.
    ``result`` is the result's shape, in which extents may be symbols.
    """
    axes = len(problem.batch_shape)
    if problem.column_bias:
        return jnp.expand_dims(bias, tuple(range(axes + 2 - bias.ndim)))
    return bias if bias.ndim == 1 else jnp.broadcast_to(bias, (*result[:axes], bias.shape[-1]))


def is_column(bias: int, batch: int, matrices: bool) -> bool:
    """Whether a bias of so many axes, spelled out, is one for each row; ``matrices``: neither operand is a vector."""
    return matrices and bias == batch + 2


def varying_axes(x: Any) -> frozenset[str]:
    """Return the manual axes of `jax.shard_map` that an array varies over."""
    aval = jax.typeof(x)
    # jax 0.10 keeps them beside other kinds of axes; releases before, by themselves.
    kinds = getattr(aval, "manual_axis_type", None)
    return frozenset(getattr(aval, "vma", None) or () if kinds is None else kinds.varying)


def _attributes(spec: Spec, operands: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    yield "epilogue", spec.epilogue
    for name, x in zip(OPERANDS[2:], operands[2:], strict=True):  # a and b are always there
        yield f"has_{name}", np.bool_(x is not None)
    yield "transpose_a", np.bool_(spec.transpose_a)
    yield "transpose_b", np.bool_(spec.transpose_b)
    yield "compute", spec.compute or ""
    yield "alpha", np.float64(spec.alpha)
    yield "beta", np.float64(spec.beta)
    for name, scale in spec.scales.items():
        yield name, np.float64(scale)
    yield "options", spec.options
    if spec.clamp is not None:
        yield "low", np.float64(spec.clamp[0])
        yield "high", np.float64(spec.clamp[1])


def call(spec: Spec, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a product: one array, or two where the epilogue has a second output."""
    _, results = problem_of(spec, operands)
    present = [x for x in operands if x is not None]
    arrays = jax.ffi.ffi_call(_TARGET, results)(*present, **dict(_attributes(spec, operands)))
    axes = tuple(sorted(varying_axes(present[0])))
    # In jax.shard_map all operands vary over the same axes, and so do the results, which a call by itself does not say.
    return tuple(jax.lax.pcast(x, axes, to="varying") for x in arrays) if axes else tuple(arrays)
