# SPDX-License-Identifier: MIT
"""Makes a case's operands, runs the product through a callable and compares every output with the oracle."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from rocpy import platform
from rocpy._messages.modules import imported
from rocpy._messages.suggestions import did_you_mean
from rocpy.dtypes import DTYPES
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.runtime.memory import Buffer

from .arrays import dtype_of, to_numpy
from .cases import LAYOUTS, Case
from .oracles import Expected, Oracle, evaluate, lookup
from .tolerance import FORMATS, Comparison, bounds, compare

Array = np.ndarray
# Fields of a case that have a few values.
_CHOICES = {
    "bias": ("row", "column", "batch"),
    "data": ("normal", "integers"),
    "scale": ("", "scalar", "vector", "batch", "block32"),
}


def check_case(case: Case) -> Oracle:
    """Return the oracle of a case, or raise for a field that no case can have."""
    if not isinstance(case, Case):
        raise InvalidOperandError(f"case: got {type(case).__name__}, expected a rocpy.testing.Case")
    for field in ("dtype", "out_dtype", "dtype_b"):
        value = getattr(case, field)
        if not isinstance(value, str):
            raise InvalidProblemError(f"{field}: got {value!r}, expected the name of a dtype, such as 'float32'")
        if value and value not in DTYPES:
            raise InvalidProblemError(f"{field}: there is no dtype {value!r}{did_you_mean(value, DTYPES)}")
    for field, choices in _CHOICES.items():
        value = getattr(case, field)
        if value not in choices:
            raise InvalidProblemError(
                f"{field}: got {value!r}, expected {', '.join(map(repr, choices))}{did_you_mean(value, choices)}"
            )
    if len(case.layout) != 2 or not set(case.layout) <= set(LAYOUTS):
        raise InvalidProblemError(f"layout: got {case.layout!r}, expected two letters of {LAYOUTS!r}")
    return lookup(case.epilogue)


def bias_dtype_of(case: Case) -> np.dtype:
    """Return the numpy dtype of a case's bias: the result's, but no type of 8 bits and no half of integers."""
    result = case.result_dtype
    if result == "int8":
        return dtype_of("int32")
    return dtype_of(
        "float32" if result.startswith("float8") or (case.dtype == "int8" and result != "int32") else result
    )


def lay_out(logical: Array, layout: str) -> Array:
    """Return a view with the values of `logical` that lies in memory as a letter of `LAYOUTS` says."""
    *batch, rows, columns = logical.shape
    unread = 77 if logical.dtype.kind in "iu" else np.nan  # types of four and six bits have no NaN and get a zero
    if layout == "n":
        return np.ascontiguousarray(logical)
    if layout in "tq":
        stored = lay_out(np.swapaxes(logical, -1, -2), "n" if layout == "t" else "p")
        return np.swapaxes(stored, -1, -2)
    if layout == "p":
        stored = np.full((*batch, rows, columns + 5), unread, dtype=logical.dtype)
        view = stored[..., 2 : 2 + columns]
    elif layout == "x":
        stored = np.full((*batch, 2 * rows, 2 * columns), unread, dtype=logical.dtype)
        view = stored[..., ::2, ::2]
    elif layout == "r":
        view = np.empty_like(logical, order="C")[..., ::-1, :]
    else:
        raise ValueError(f"layout must be a letter of 'ntpqxr', not {layout!r}")
    view[...] = logical
    return view


def make_operands(case: Case, rng: np.random.Generator | None = None) -> dict[str, Array]:
    """Return the operands of a case, rounded to their dtype.

    Parameters
    ----------
    case : Case
    rng : numpy.random.Generator, optional
        By default seeded from the case's name, so that every run has the same values.

    Returns
    -------
    dict of str to ndarray
        ``a`` and ``b``, and ``c``, ``bias``, ``aux`` where the case has them.
    """
    oracle = check_case(case)
    rng = np.random.default_rng(case.seed) if rng is None else rng
    dtype, out = dtype_of(case.dtype), dtype_of(case.result_dtype)

    def draw(shape: tuple[int, ...], kind: np.dtype) -> Array:
        if kind.kind == "c":
            return (draw(shape, dtype_of("float64")) + 1j * draw(shape, dtype_of("float64"))).astype(kind)
        if kind == np.int8 and case.data == "normal":
            return rng.integers(-128, 128, shape).astype(kind)
        values = rng.standard_normal(shape) if case.data == "normal" else rng.integers(-2, 3, shape)
        return (values * 100 if kind == np.int32 and case.data == "normal" else values).astype(kind)

    operands = {
        "a": lay_out(draw((*case.batch_a, case.m, case.k), dtype), case.layout[0]),
        "b": lay_out(draw((*case.batch_b, case.k, case.n), dtype_of(case.dtype_b or case.dtype)), case.layout[1]),
    }
    full = (*case.batch, case.m, case.n)
    if case.beta != 0.0:
        operands["c"] = draw(full, out)
    if oracle.bias:
        shape = {"row": (case.n,), "column": (case.m, 1), "batch": (*case.batch, case.n)}[case.bias]
        operands["bias"] = draw(shape, bias_dtype_of(case))
    if oracle.aux_in is not None:
        operands["aux"] = draw(full, out)
    if case.scale:
        operands.update(_draw_scales(case, rng))
    return operands


def _draw_scales(case: Case, rng: np.random.Generator) -> dict[str, Array]:
    """Return the scales of a case: from 1/8 to 8, powers of two where the result must be exact."""
    if case.scale == "block32":
        shapes = (*case.batch_a, case.m, case.k // 32), (*case.batch_b, case.k // 32, case.n)
    else:
        lines = {"scalar": ((), ()), "vector": ((case.m,), (case.n,))}
        lines["batch"] = ((*case.batch_a, case.m), (*case.batch_b, case.n))
        shapes = lines[case.scale]
    scales = {}
    for name, shape in zip(("scale_a", "scale_b"), shapes, strict=True):
        exponents = rng.integers(-3, 4, shape) if case.data == "integers" else rng.uniform(-3.0, 3.0, shape)
        if case.scale == "block32":
            codes = (127 + rng.integers(-3, 4, shape)).astype(np.uint8)
            scales[name] = codes.view(dtype_of("float8_e8m0fnu"))
        else:
            scales[name] = np.asarray(np.exp2(exponents), dtype=np.float32)
    return scales


def keywords(case: Case) -> dict[str, Any]:
    """Return the keyword arguments of a case for `rocpy.matmul` that are not arrays."""
    arguments: dict[str, Any] = {}
    if case.epilogue != "default":
        arguments["epilogue"] = case.epilogue
    if case.alpha != 1.0 or case.alpha_imaginary:
        arguments["alpha"] = complex(case.alpha, case.alpha_imaginary) if case.alpha_imaginary else case.alpha
    if case.beta != 0.0:
        arguments["beta"] = case.beta
    if case.out_dtype:
        arguments["dtype"] = case.out_dtype
    if case.scale_d:
        arguments["scale_d"] = case.scale_d
    if case.amax:
        arguments["amax"] = True
    if lookup(case.epilogue).takes_clamp:
        arguments["clamp"] = (-1.0, 0.75) if case.data == "normal" else (-3.0, 5.0)
    return arguments


def reference(case: Case, operands: dict[str, Array]) -> Expected:
    """Return the oracle's answer for a case."""
    arrays: dict[str, Any] = {key: value for key, value in operands.items() if key not in ("a", "b", "c")}
    options = {key: value for key, value in keywords(case).items() if key != "dtype"}
    return evaluate(operands["a"], operands["b"], operands.get("c"), **arrays, **options)


def to_torch(array: Array) -> Any:
    """Return a torch tensor over a numpy array's memory, bfloat16 included; the caller has imported torch."""
    torch = imported("torch")
    if torch is None:
        raise RuntimeError("provider 'torch' needs torch: import torch first")
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype.kind == "V" or hasattr(ml_dtypes, array.dtype.name):
        same = np.int16 if array.dtype.itemsize == 2 else np.uint8
        return torch.from_numpy(array.view(same)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


class DeviceArray:
    """A copy of a numpy array on the device that lies there as the array does, gaps and transposition included.

    It has no operations and no framework: what reads ``__cuda_array_interface__`` can take it as an operand.
    """

    def __init__(self, array: Array) -> None:
        if any(stride < 0 for stride in array.strides):
            array = array.copy()
        last = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
        size = last + array.itemsize if array.size else 0
        memory = (ctypes.c_char * size).from_address(array.ctypes.data)
        self.shape, self.dtype = array.shape, array.dtype
        self._buffer = Buffer(max(size, 1))
        if size:
            self._buffer.copy_from(np.frombuffer(memoryview(memory), np.uint8))
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (self._buffer.handle, False),
            "shape": array.shape,
            "strides": array.strides,
            # ml_dtypes' types have no code in the interface, and numpy knows them by name.
            "typestr": array.dtype.name if array.dtype.isbuiltin == 2 else array.dtype.str,
        }


PROVIDERS: dict[str, Callable[[Array], Any]] = {
    "numpy": lambda array: array,
    "torch": to_torch,
    "device": DeviceArray,
}


def provider_of(case: Case) -> str:
    """Return what a case's operands are to be for the library to meet its layouts.

    numpy's arrays become row-major on their way to a device that cannot use CPU memory. What rocpy copies into another
    layout itself needs a framework that can, and stays numpy's.
    """
    has_own_memory = not platform.current().host_memory
    return "device" if has_own_memory and set(case.layout) <= set("ntpq") and case.bias != "column" else "numpy"


@dataclass(frozen=True)
class CaseResult:
    """Outcome of one case: one comparison per output."""

    case: Case
    comparisons: dict[str, Comparison]

    @property
    def ok(self) -> bool:
        """Whether every output is within its bounds."""
        return all(item.ok for item in self.comparisons.values())

    @property
    def ratio(self) -> float:
        """Largest error over its bound."""
        return max(item.ratio for item in self.comparisons.values())

    @property
    def max_error(self) -> float:
        """Largest absolute error."""
        return max(item.max_error for item in self.comparisons.values())

    @property
    def message(self) -> str:
        """What is wrong; empty when nothing is."""
        return "; ".join(item.message for item in self.comparisons.values() if item.message)


def saturated(x: Array, kind: np.dtype) -> Array:
    """Return numbers rounded to a type, to nearest with ties to even; integers and 8-bit floats saturate."""
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.clip(np.rint(x), limits.min, limits.max).astype(kind)
    if kind.itemsize == 1:
        largest = FORMATS[kind.name].max_value
        return np.where(np.isnan(x), x, np.clip(x, -largest, largest)).astype(kind)
    with np.errstate(over="ignore"):
        return x.astype(kind)


def check_outputs(
    expected: Expected, outputs: Any, dtype: npt.DTypeLike, *, exact: bool = False
) -> dict[str, Comparison]:
    """Compare what a product returned, ``d`` or ``(d, aux)``, with the oracle's answer.

    With `exact` the correctly rounded values are demanded, bit for bit.
    """
    wanted_aux = dict(expected.aux)
    if expected.amax is not None:
        wanted_aux["amax"] = np.asarray(expected.amax)
    if isinstance(outputs, tuple) != bool(wanted_aux):
        message = (
            f"returned {type(outputs).__name__}; the epilogue's further outputs are: {sorted(wanted_aux) or 'none'}"
        )
        return {"result": Comparison(np.inf, np.inf, (), message)}
    result, further = outputs if wanted_aux else (outputs, {})
    if set(further) != set(wanted_aux):
        message = f"further outputs: {sorted(further)}, expected {sorted(wanted_aux)}"
        return {"result": Comparison(np.inf, np.inf, (), message)}
    limits = bounds(expected, dtype)
    comparisons = {}
    eight = np.dtype(dtype).name.startswith("float8")
    for name, wanted in {"result": expected.result, **wanted_aux}.items():
        actual = to_numpy(result if name == "result" else further[name])
        kind = np.dtype(np.float32) if name == "amax" or (eight and name == expected.oracle.sums) else np.dtype(dtype)
        if actual.dtype != kind:
            comparisons[name] = Comparison(np.inf, np.inf, (), f"{name}: dtype {actual.dtype}, expected {kind}")
        elif exact:
            rounded = saturated(wanted, kind).astype(wanted.dtype)
            comparisons[name] = compare(actual, rounded, np.zeros(rounded.shape), name=name)
        else:
            comparisons[name] = compare(actual, wanted, limits[name], name=name)
    return comparisons


def _check_names(case: Case, operands: dict[str, Array]) -> None:
    oracle = check_case(case)
    needed = {
        "a": True,
        "b": True,
        "c": case.beta != 0.0,
        "bias": oracle.bias,
        "aux": oracle.aux_in is not None,
        "scale_a": case.scale != "",
        "scale_b": case.scale != "",
    }
    missing = [name for name, is_needed in needed.items() if is_needed and name not in operands]
    if missing:
        raise InvalidProblemError(
            f"operands: {case.name} needs {', '.join(missing)}, too; rocpy.testing.make_operands makes them"
        )


def run_case(
    case: Case,
    matmul: Callable[..., Any] | None = None,
    provider: str | Callable[[Array], Any] = "numpy",
    *,
    operands: dict[str, Array] | None = None,
) -> CaseResult:
    """Run one case and compare it with the oracle.

    Parameters
    ----------
    case : Case
    matmul : callable, optional
        Called like `rocpy.matmul`, which is the default.
    provider : {'numpy', 'torch', 'device'} or callable
        What the operands are; a callable gets a numpy array and returns the operand.
    operands : dict, optional
        What `make_operands` returned; made here by default.

    Returns
    -------
    CaseResult
    """
    if matmul is None:
        import rocpy

        matmul = rocpy.matmul
    wrap = PROVIDERS.get(provider) if isinstance(provider, str) else provider
    if not callable(wrap):
        raise InvalidProblemError(f"provider: got {provider!r}, expected {', '.join(PROVIDERS)} or a function")
    operands = make_operands(case) if operands is None else operands
    _check_names(case, operands)
    wrapped: dict[str, Any] = {key: wrap(value) for key, value in operands.items()}
    outputs = matmul(wrapped.pop("a"), wrapped.pop("b"), **wrapped, **keywords(case))
    exact = (case.data == "integers" and lookup(case.epilogue).is_linear) or case.result_dtype in ("int32", "int8")
    return CaseResult(case, check_outputs(reference(case, operands), outputs, dtype_of(case.result_dtype), exact=exact))
