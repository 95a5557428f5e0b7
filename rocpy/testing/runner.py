# SPDX-License-Identifier: MIT
"""Makes a case's operands, runs the product through a callable and compares every output with the oracle."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .oracles import Expected, evaluate, lookup
from .tolerance import Comparison, bounds, compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cases import Case

Array = np.ndarray


def dtype_of(name: str) -> np.dtype:
    """Return the numpy dtype of a dtype's name, ml_dtypes' included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def lay_out(logical: Array, layout: str) -> Array:
    """Return a view with the values of `logical` that lies in memory as a letter of `LAYOUTS` says."""
    *batch, rows, columns = logical.shape
    if layout == "n":
        return np.ascontiguousarray(logical)
    if layout in "tq":
        stored = lay_out(np.swapaxes(logical, -1, -2), "n" if layout == "t" else "p")
        return np.swapaxes(stored, -1, -2)
    if layout == "p":
        stored = np.full((*batch, rows, columns + 5), np.nan, dtype=logical.dtype)
        view = stored[..., 2 : 2 + columns]
    elif layout == "x":
        stored = np.full((*batch, 2 * rows, 2 * columns), np.nan, dtype=logical.dtype)
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
    rng = np.random.default_rng(case.seed) if rng is None else rng
    dtype, out = dtype_of(case.dtype), dtype_of(case.result_dtype)
    oracle = lookup(case.epilogue)

    def draw(shape: tuple[int, ...], kind: np.dtype) -> Array:
        values = rng.standard_normal(shape) if case.data == "normal" else rng.integers(-2, 3, shape)
        return values.astype(kind)

    operands = {
        "a": lay_out(draw((*case.batch_a, case.m, case.k), dtype), case.layout[0]),
        "b": lay_out(draw((*case.batch_b, case.k, case.n), dtype), case.layout[1]),
    }
    full = (*case.batch, case.m, case.n)
    if case.beta != 0.0:
        operands["c"] = draw(full, out)
    if oracle.bias:
        shape = {"row": (case.n,), "column": (case.m, 1), "batch": (*case.batch, case.n)}[case.bias]
        operands["bias"] = draw(shape, out)
    if oracle.aux_in is not None:
        operands["aux"] = draw(full, out)
    return operands


def keywords(case: Case) -> dict[str, Any]:
    """Return the keyword arguments of a case for `rocpy.matmul` that are not arrays."""
    found: dict[str, Any] = {}
    if case.epilogue != "default":
        found["epilogue"] = case.epilogue
    if case.alpha != 1.0:
        found["alpha"] = case.alpha
    if case.beta != 0.0:
        found["beta"] = case.beta
    if case.out_dtype:
        found["dtype"] = case.out_dtype
    if lookup(case.epilogue).takes_clamp:
        found["clamp"] = (-1.0, 0.75) if case.data == "normal" else (-3.0, 5.0)
    return found


def reference(case: Case, operands: dict[str, Array]) -> Expected:
    """Return the oracle's answer for a case."""
    arrays: dict[str, Any] = {key: value for key, value in operands.items() if key not in ("a", "b", "c")}
    options = {key: value for key, value in keywords(case).items() if key != "dtype"}
    return evaluate(operands["a"], operands["b"], operands.get("c"), **arrays, **options)


def to_torch(array: Array) -> Any:
    """Return a torch tensor over a numpy array's memory, bfloat16 included; the caller has imported torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        raise RuntimeError("provider 'torch' needs torch: import torch first")
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(result: Any) -> Array:
    """Return a numpy array with the values of a result that is a numpy array or a torch tensor."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(result, torch.Tensor):
        result = result.detach().cpu()
        if result.dtype == torch.bfloat16:
            return result.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return result.numpy()
    return np.asarray(result)


PROVIDERS: dict[str, Callable[[Array], Any]] = {"numpy": lambda array: array, "torch": to_torch}


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


def check_outputs(
    expected: Expected, outputs: Any, dtype: npt.DTypeLike, *, exact: bool = False
) -> dict[str, Comparison]:
    """Compare what a product returned, ``d`` or ``(d, aux)``, with the oracle's answer.

    With `exact` the correctly rounded values are demanded, bit for bit.
    """
    if isinstance(outputs, tuple) != bool(expected.aux):
        message = (
            f"returned {type(outputs).__name__}; the epilogue's further outputs are: {sorted(expected.aux) or 'none'}"
        )
        return {"result": Comparison(np.inf, np.inf, (), message)}
    result, further = outputs if expected.aux else (outputs, {})
    if set(further) != set(expected.aux):
        message = f"further outputs: {sorted(further)}, expected {sorted(expected.aux)}"
        return {"result": Comparison(np.inf, np.inf, (), message)}
    limits = bounds(expected, dtype)
    comparisons = {}
    for name, wanted in {"result": expected.result, **expected.aux}.items():
        actual = to_numpy(result if name == "result" else further[name])
        if actual.dtype != np.dtype(dtype):
            comparisons[name] = Comparison(
                np.inf, np.inf, (), f"{name}: dtype {actual.dtype}, expected {np.dtype(dtype)}"
            )
        elif exact:
            rounded = wanted.astype(actual.dtype).astype(np.float64)
            comparisons[name] = compare(actual, rounded, np.zeros_like(rounded), name=name)
        else:
            comparisons[name] = compare(actual, wanted, limits[name], name=name)
    return comparisons


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
    provider : {'numpy', 'torch'} or callable
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
    wrap = PROVIDERS[provider] if isinstance(provider, str) else provider
    operands = make_operands(case) if operands is None else operands
    wrapped: dict[str, Any] = {key: wrap(value) for key, value in operands.items()}
    outputs = matmul(wrapped.pop("a"), wrapped.pop("b"), **wrapped, **keywords(case))
    exact = case.data == "integers" and lookup(case.epilogue).is_linear
    return CaseResult(case, check_outputs(reference(case, operands), outputs, dtype_of(case.result_dtype), exact=exact))
