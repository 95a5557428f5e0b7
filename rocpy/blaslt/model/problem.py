# SPDX-License-Identifier: MIT
"""A product as plain data: its operands, what must hold between them, and what the result will be. No device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from rocpy import _json, dtypes
from rocpy.blaslt.model import product_types as types
from rocpy.blaslt.model import record_values as _values
from rocpy.blaslt.model.epilogues import EPILOGUES, EpilogueRow, find_epilogue
from rocpy.blaslt.model.product_types import RESULT_TYPES
from rocpy.blaslt.model.settings import clamp_bounds
from rocpy.blaslt.model.shapes import broadcast, common_axes, dense_strides, extents_of, forms_of_bias, is_column_bias
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__ = ["RESULT_TYPES", "OperandInfo", "Problem"]

# Largest extent: hipBLASLt's kernels take m, n, k and batch as 32-bit numbers.
MAX_EXTENT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OperandInfo:
    """Description of one operand of a problem.

    Parameters
    ----------
    shape
        Extents.
    strides
        Strides along each axis, in elements.
    dtype
        Name of the element type.
    packed
        Whether it is a :class:`rocpy.Weight` in the platform's own layout.

    Examples
    --------
    >>> from rocpy.blaslt import OperandInfo
    >>> OperandInfo.dense((2, 3), "float32").strides
    (3, 1)
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    packed: bool = False

    def __post_init__(self) -> None:
        if type(self.shape) is not tuple or type(self.strides) is not tuple:  # lists, which no dictionary takes
            object.__setattr__(self, "shape", tuple(self.shape))
            object.__setattr__(self, "strides", tuple(self.strides))

    @property
    def text(self) -> str:
        """Shape, strides and dtype, as error messages show them."""
        return f"shape {self.shape}, strides {self.strides}, {self.dtype}"

    @classmethod
    def dense(cls, shape: tuple[int, ...], dtype: str) -> OperandInfo:
        """Return a C-contiguous operand."""
        return cls(tuple(shape), dense_strides(shape), dtype)


@dataclass(frozen=True, slots=True)
class Problem:
    """A validated product ``epilogue(alpha * a @ b + beta * c + bias)``.

    Created by :meth:`make`, which checks everything that can be checked without a device.

    Parameters
    ----------
    a, b, c, bias, aux, out
        The operands; ``aux`` is an input of a gradient epilogue.
    epilogue
        Name of the epilogue.
    dtype
        Element type of the result.
    compute
        Type of the accumulation: ``"float64"``, ``"float32"``, ``"tf32"`` or ``"int32"``.
    clamp
        Bounds of a clamp epilogue.
    m, n, k
        Extents of one product.
    batch_shape
        Broadcast batch axes.
    result_shape
        Shape of the result, promoted axes dropped.
    scale_a, scale_b
        Kinds of the scales: ``""``, ``"scalar"``, ``"vector"`` or ``"block32"``.
    scale_a_batch, scale_b_batch
        Batch axes of those scales; ``()`` for scales shared by all batch entries.
    scale_c, scale_d
        Whether c and the result have a scale.
    amax
        Whether the largest magnitude of the result is returned.
    conj_a, conj_b
        Whether the conjugate of the operand is multiplied.
    expression
        A custom epilogue as a JSON object (:class:`rocpy.epilogues.Expression`); empty for none.
    inputs
        The array inputs of the custom epilogue: name, shape and dtype.

    Examples
    --------
    >>> from rocpy.blaslt.model.problem import OperandInfo, Problem
    >>> p = Problem.make(OperandInfo.dense((5, 2, 3), "float32"), OperandInfo.dense((3, 4), "float32"))
    >>> p.result_shape, p.flops
    ((5, 2, 4), 240)
    >>> Problem.from_json(p.to_json()) == p
    True
    """

    a: OperandInfo
    b: OperandInfo
    c: OperandInfo | None
    bias: OperandInfo | None
    aux: OperandInfo | None
    out: OperandInfo | None
    epilogue: str
    dtype: str
    compute: str
    clamp: tuple[float, float] | None
    m: int
    n: int
    k: int
    batch_shape: tuple[int, ...]
    result_shape: tuple[int, ...]
    scale_a: str = ""
    scale_b: str = ""
    scale_a_batch: tuple[int, ...] = ()
    scale_b_batch: tuple[int, ...] = ()
    scale_c: bool = False
    scale_d: bool = False
    amax: bool = False
    conj_a: bool = False
    conj_b: bool = False
    expression: str = ""
    inputs: tuple[tuple[str, OperandInfo], ...] = ()

    @classmethod
    def make(
        cls,
        a: OperandInfo,
        b: OperandInfo,
        c: OperandInfo | None = None,
        *,
        bias: OperandInfo | None = None,
        aux: OperandInfo | None = None,
        out: OperandInfo | None = None,
        epilogue: str = "default",
        dtype: str | None = None,
        compute: str | None = None,
        clamp: tuple[float, float] | None = None,
        scale_a: str = "",
        scale_b: str = "",
        scale_a_batch: tuple[int, ...] = (),
        scale_b_batch: tuple[int, ...] = (),
        scale_c: bool = False,
        scale_d: bool = False,
        amax: bool = False,
        conj_a: bool = False,
        conj_b: bool = False,
    ) -> Problem:
        """Check the operands against each other and return the problem.

        Raises
        ------
        InvalidOperandError
            If an operand is not an :class:`OperandInfo`.
        InvalidProblemError
            If shapes do not fit, an operand of the epilogue is missing, or one is passed that it does not use.
        UnsupportedError
            If hipBLASLt has no product of these types.
        """
        row = find_epilogue(epilogue)
        for name, info in {"a": a, "b": b, "c": c, "bias": bias, "aux": aux, "out": out}.items():
            if not isinstance(info, OperandInfo) and (info is not None or name in "ab"):
                raise InvalidOperandError(f"{name}: got {type(info).__name__}, expected a rocpy.blaslt.OperandInfo")
        m, n, k, batch_shape, result_shape = extents_of(a.shape, b.shape)
        family = types.find_family(a.dtype, b.dtype, "block32" in (scale_a, scale_b))
        others = [None if x is None else x.dtype for x in (c, bias, aux)]
        scaled = bool(scale_a or scale_b)
        result_type, compute_type = types.result_and_compute(family, a.dtype, out, dtype, compute, others, scaled)
        problem = cls(
            a, b, c, bias, aux, out, row.name, result_type, compute_type,
            None if clamp is None else clamp_bounds(clamp), m, n, k, batch_shape, result_shape, scale_a, scale_b,
            tuple(scale_a_batch), tuple(scale_b_batch), scale_c, scale_d, amax, conj_a, conj_b,
        )  # fmt: skip
        types.check_scales(problem, family)
        _check_epilogue(problem, row)
        _check_extents(problem)
        if c is not None:
            _check_c(problem, c)
        if bias is not None:
            _check_bias(problem, bias, types.bias_types(family, result_type, scaled))
        if aux is not None:
            _check_aux(problem, aux)
        if out is not None and out.shape != result_shape:
            raise InvalidProblemError(
                f"out: shape {out.shape}, but the result has shape {result_shape}; pass out= of that shape"
            )
        return problem

    @property
    def row(self) -> EpilogueRow:
        """The epilogue's row."""
        return EPILOGUES[self.epilogue]

    @property
    def batch(self) -> int:
        """Number of products."""
        return math.prod(self.batch_shape)

    @property
    def flops(self) -> int:
        """Operations of the products without the epilogue, 2 m n k for each, 8 m n k for complex products."""
        return (8 if self.is_complex else 2) * self.m * self.n * self.k * self.batch

    @property
    def bytes(self) -> int:
        """Bytes of the operands and the result, each counted once."""
        operands = [x for x in (self.a, self.b, self.c, self.bias, self.aux) if x is not None]
        total = sum(types.operand_bytes(_distinct(x), x.dtype) for x in operands) + types.scale_bytes(self)
        total += (1 + (self.row.aux == "store")) * math.prod(self.result_shape) * dtypes.lookup(self.dtype).bits // 8
        if self.row.gradient:
            total += types.operand_bytes(math.prod(self.gradient_shape), self.gradient_dtype)
        return total

    @property
    def is_complex(self) -> bool:
        """Whether the elements are complex."""
        return self.dtype in ("complex64", "complex128")

    @property
    def gradient_dtype(self) -> str:
        """Element type of the bias gradient: that of the result, or a wider one for results of 8 bits."""
        return types.gradient_type(self.dtype, bool(self.scale_a or self.scale_b))

    @property
    def gradient_shape(self) -> tuple[int, ...]:
        """Shape of the bias gradient: M or N, preceded by the batch axes of the result, or of a or b and its scales."""
        if self.row.gradient == "bgrada":
            return (*common_axes(self.a.shape[:-2], self.scale_a_batch), self.m)
        if self.row.gradient == "bgradb":
            return (*common_axes(self.b.shape[:-2], self.scale_b_batch), self.n)
        return (*self.batch_shape, self.n)

    @property
    def column_bias(self) -> bool:
        """Whether the bias is one for each row of the result, of shape (M, 1), with or without batch axes."""
        matrices = min(len(self.a.shape), len(self.b.shape)) > 1
        return self.bias is not None and is_column_bias(self.bias.shape, self.m, self.n, self.batch_shape, matrices)

    def to_json(self) -> str:
        """Return the problem as a JSON object."""
        return _json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """Return the problem that :meth:`to_json` wrote; it is checked again.

        Raises
        ------
        InvalidProblemError
            If it is not such a record.
        """
        try:
            return cls._from_record(_json.loads(text))
        except InvalidProblemError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            shown = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise InvalidProblemError(f"this is not a problem's record: {shown}") from None

    @classmethod
    def _from_record(cls, data: dict[str, Any]) -> Problem:
        infos = {name: data[name] for name in ("a", "b", "c", "bias", "aux", "out")}
        operands = {name: None if info is None else _read_operand(info, name) for name, info in infos.items()}
        clamp = data["clamp"]
        a, b = operands.pop("a"), operands.pop("b")
        if a is None or b is None:
            raise InvalidProblemError("a problem needs operands a and b")
        problem = cls.make(
            a,
            b,
            clamp=None if clamp is None else (float(clamp[0]), float(clamp[1])),
            **_values.checked_settings(data),
            **dict[str, Any](operands),
        )
        for name in ("m", "n", "k", "batch_shape", "result_shape"):
            value, actual = data.get(name), getattr(problem, name)
            if name in data and (tuple(value) if isinstance(value, list) else value) != actual:
                raise InvalidProblemError(f"{name}: {value!r:.80} in a problem's record, whose operands make {actual}")
        inputs = tuple((str(name), _read_operand(info, str(name))) for name, info in data.get("inputs", ()))
        expression = _values.checked_expression(data.get("expression", ""))
        return replace(problem, expression=expression, inputs=inputs) if inputs or expression else problem

    def __repr__(self) -> str:
        return f"<Problem {self}>"

    def __str__(self) -> str:
        """Return one readable line."""
        batch = "x".join(map(str, self.batch_shape))
        return (
            f"{batch + ' of ' if batch else ''}({self.m} x {self.k}) @ ({self.k} x {self.n}), "
            f"{self._operand_text} -> {self.dtype}, epilogue {self._epilogue_text}{self._scale_text}"
        )

    @property
    def _epilogue_text(self) -> str:
        return str(_json.loads(self.expression)["name"]) if self.expression else self.epilogue

    @property
    def _operand_text(self) -> str:
        names = [f"conj({x.dtype})" if conj else x.dtype for x, conj in ((self.a, self.conj_a), (self.b, self.conj_b))]
        return names[0] if names[0] == names[1] else " x ".join(names)

    @property
    def _scale_text(self) -> str:
        parts = [f"a {self.scale_a}" if self.scale_a else "", f"b {self.scale_b}" if self.scale_b else ""]
        parts += ["c" if self.scale_c else "", "d" if self.scale_d else ""]
        text = ", ".join(part for part in parts if part)
        return (f", scales of {text}" if text else "") + (", amax" if self.amax else "")


def _read_operand(data: Mapping[str, Any], name: str) -> OperandInfo:
    shape = _values.checked_integers(data["shape"], f"{name}: shape")
    strides = _values.checked_strides(data["strides"], f"{name}: strides", len(shape))
    if not isinstance(data["dtype"], str):
        raise InvalidProblemError(f"{name}: dtype {data['dtype']!r:.80} in a problem's record, expected a name")
    return OperandInfo(shape, strides, data["dtype"], bool(data["packed"]))


def _distinct(operand: OperandInfo) -> int:
    return math.prod(
        extent for extent, stride in zip(operand.shape, operand.strides, strict=True) if stride or extent == 0
    )


def _check_extents(problem: Problem) -> None:
    for name, extent in (("m", problem.m), ("n", problem.n), ("k", problem.k), ("batch", problem.batch)):
        if extent > MAX_EXTENT:
            raise UnsupportedError(
                f"{name} = {extent}: hipBLASLt supports extents up to {MAX_EXTENT}; split the product"
            )
    if math.prod(problem.result_shape) * dtypes.lookup(problem.dtype).bits // 8 >= 2**62:
        raise InvalidProblemError(f"the result, shape {problem.result_shape}, would not fit in any memory")


def _check_epilogue(problem: Problem, row: EpilogueRow) -> None:
    if row.bias and problem.bias is None:
        raise InvalidProblemError(
            f"epilogue {row.name!r} needs bias=, of length N = {problem.n}, or a Weight with a bias"
        )
    if problem.bias is not None and not row.bias:
        other = f"{row.name}_bias" if row.name != "default" else "bias"
        hint = f"use epilogue={other!r}" if other in EPILOGUES else "omit it"
        raise InvalidProblemError(f"bias: epilogue {row.name!r} takes no bias; {hint}")
    if row.aux == "load" and problem.aux is None:
        raise InvalidProblemError(
            f"epilogue {row.name!r} needs aux=, the pre-activation returned by an _aux epilogue, of shape "
            f"{problem.result_shape}"
        )
    if problem.aux is not None and row.aux != "load":
        names = _names(lambda other: other.aux == "load")
        raise InvalidProblemError(f"aux: epilogue {row.name!r} takes no aux; it is an input of {names}")
    if row.clamp and problem.clamp is None:
        raise InvalidProblemError(f"epilogue {row.name!r} needs clamp=(low, high)")
    whole = dtypes.lookup(problem.dtype).kind == "int"
    if problem.clamp is not None and whole and any(math.isfinite(x) and x != round(x) for x in problem.clamp):
        # hipBLASLt's bounds are converted to the type that it adds up in.
        raise InvalidProblemError(
            f"clamp={problem.clamp}: a bound is not an integer, and the result is {problem.dtype}; round the bounds"
        )
    if problem.clamp is not None and not row.clamp:
        raise InvalidProblemError(
            f"clamp: epilogue {row.name!r} takes no bounds; they are arguments of {_names(lambda r: r.clamp)}"
        )


def _names(wanted: Any) -> str:
    return ", ".join(row.name for row in EPILOGUES.values() if wanted(row))


def _check_c(problem: Problem, c: OperandInfo) -> None:
    if c.dtype != problem.dtype:
        raise InvalidProblemError(f"c is {c.dtype} and the result is {problem.dtype}; they must be equal: cast c")
    if broadcast(c.shape, problem.result_shape) != problem.result_shape:
        raise InvalidProblemError(f"c: shape {c.shape} does not broadcast to the result's {problem.result_shape}")


def _check_bias(problem: Problem, bias: OperandInfo, allowed: tuple[str, ...]) -> None:
    if bias.dtype not in allowed:
        raise InvalidProblemError(
            f"bias is {bias.dtype}; for a {problem.dtype} result it must be {' or '.join(allowed)}: cast it"
        )
    batch = problem.batch_shape
    if problem.column_bias or (bias.shape[-1:] == (problem.n,) and broadcast(bias.shape[:-1], batch) == batch):
        return
    raise InvalidProblemError(
        f"bias: got shape {bias.shape}, expected {forms_of_bias(problem.a.shape, problem.b.shape)}"
    )


def _check_aux(problem: Problem, aux: OperandInfo) -> None:
    if aux.shape != problem.result_shape:
        raise InvalidProblemError(f"aux: got shape {aux.shape}, expected the result's shape {problem.result_shape}")
    if aux.dtype != problem.dtype:
        raise InvalidProblemError(f"aux is {aux.dtype} and the result is {problem.dtype}; they must be equal")


def check_record(record: Any, problem: Problem) -> None:
    """Refuse the record of an algorithm that is of another problem."""
    try:
        recorded = record if isinstance(record, Problem) else Problem.from_json(_json.dumps(record))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidProblemError):
            raise
        raise InvalidProblemError(f"algorithm: its record's problem is none: {error}") from None
    if recorded != problem:
        raise InvalidProblemError(
            f"algorithm: its record is for {recorded}, and this product is {problem}"
            + (_values.hidden_difference(recorded, problem) if str(recorded) == str(problem) else "")
        )
