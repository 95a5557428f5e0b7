# SPDX-License-Identifier: MIT
"""Predefined kernels for whole arrays: reductions and scans of rows, for numpy, torch and DLPack arrays."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from rocpy._messages.modules import is_tensor
from rocpy._messages.suggestions import did_you_mean
from rocpy.cooperative.api.combining import inclusive_scan
from rocpy.cooperative.api.device import blockDim, blockIdx, grid, local, this_block, threadIdx
from rocpy.cooperative.api.movement import shuffle
from rocpy.cooperative.api.operators import NAMES, name_of
from rocpy.cooperative.kernel.arguments import as_numpy, raise_versions
from rocpy.cooperative.kernel.kernel import Kernel, jit
from rocpy.cooperative.kernel.limits import MOST_THREADS
from rocpy.errors import InvalidOperandError, InvalidProblemError

_FEWEST_BLOCKS, _MOST_ROWS = 64, 256
_MOST_PARTIALS = MOST_THREADS.bit_length()
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # a number fits one of a later kind


def block_reduce(x: Any, op: Any = "+", *, threads: int = 256, out: Any = None) -> Any:
    """Reduce each row of an array, the last dimension, in the order in which a block of threads does.

    Parameters
    ----------
    x
        numpy array, torch tensor on the CPU, or any array with DLPack, of one dimension or more.
    op
        As for `reduce`; a Python function is compiled at its first use for `x`'s type, with the globals of then.
    threads
        Threads of the block, 1 to 1024; the order of the operations depends on this number only.
    out
        Array that receives the results, of the shape of `x` without its last dimension; it shares no memory with `x`.

    Returns
    -------
    array
        A tensor if `x` is one, otherwise a numpy array, of `x`'s type and without the last dimension; `out` if it was
        passed.

    Raises
    ------
    InvalidOperandError
        If `x` or `out` is not an array that a kernel can use, or they share memory, or `op` is not for `x`'s type.
    InvalidProblemError
        If `x` has no dimension or empty rows, `out` has another shape or type, or `threads` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> coop.block_reduce(np.array([[3, 1, 2], [6, 5, 4]]), "max").tolist()
    [3, 6]
    """
    return _reduce_rows("block_reduce", x, op, threads, out)


def _reduce_rows(name: str, x: Any, op: Any, threads: Any, out: Any) -> Any:
    """Reduce each row of an array; ``name`` is the function that the user called."""
    values, rows = _rows_of(name, x)
    if values.shape[-1] == 0:
        raise InvalidProblemError(f"{name}: x has shape {values.shape}; its rows are empty")
    block = _threads(name, threads, rows)
    result, array = _result(name, x, out, values, values.shape[:-1])
    kernel = _reducer(_operator(name, op, values.dtype), values.dtype)
    try:
        # Each thread has a row; there are many blocks, which are distributed over the CPUs.
        size = min(max(len(rows) // _FEWEST_BLOCKS, 1), _MOST_ROWS)
        kernel[-(-len(rows) // size), size](rows, array.reshape(len(rows)), block)
    finally:
        raise_versions((out,), [(0,)])
    return result


def block_scan(x: Any, op: Any = "+", *, exclusive: bool = False, initial: Any = None, threads: int = 256) -> Any:
    """Scan each row of an array, the last dimension, with one block of threads.

    Parameters
    ----------
    x
        numpy array, torch tensor on the CPU, or any array with DLPack, of one dimension or more.
    op
        As for `inclusive_scan`, and compiled as in `block_reduce`.
    exclusive
        Whether an item's own value is excluded.
    initial
        Value before the first item of each row: a number that `x`'s type has. Required for an exclusive scan with a
        Python function.
    threads
        Threads of a block, 1 to 1024; the order of the operations depends on this number only.

    Returns
    -------
    array
        A tensor if `x` is one, otherwise a numpy array, of `x`'s type and shape.

    Raises
    ------
    InvalidOperandError
        If `x` is not an array that a kernel can use, `op` is not for its type, or `initial` is not a number of it.
    InvalidProblemError
        If `x` has no dimension, an exclusive scan has no first value, or `threads` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> coop.block_scan(np.array([[3, 1, 2], [6, 5, 4]])).tolist()
    [[3, 4, 6], [6, 11, 15]]
    """
    values, rows = _rows_of("block_scan", x)
    chosen = _operator("block_scan", op, values.dtype)
    if not isinstance(exclusive, (bool, np.bool_)):
        raise InvalidOperandError(f"block_scan: exclusive is {exclusive!r}; pass True or False")
    first = np.zeros(1, values.dtype)
    if initial is not None:
        _set_first(first, initial)
    elif exclusive:
        first[0] = _identity(chosen, values.dtype)
    block = _threads("block_scan", threads, rows)
    result, array = _result("block_scan", x, None, values, values.shape)
    if values.shape[-1]:
        kernel = _scanner(chosen, values.dtype, bool(exclusive), bool(exclusive) or initial is not None)
        kernel[len(rows), block](rows, first, array.reshape(rows.shape))
    return result


def _row_reduction(name: str, op: str, what: str, example: int) -> Any:
    def function(x: Any, *, threads: int = 256, out: Any = None) -> Any:
        return _reduce_rows(name, x, op, threads, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return the {what} of each row of an array, as `block_reduce` does.

    Parameters
    ----------
    x, threads, out
        As for `block_reduce`.

    Returns
    -------
    array
        As `block_reduce` gives.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> coop.{name}(np.array([[3, 1, 2]])).tolist()
    [{example}]
    """
    return function


row_sum = _row_reduction("row_sum", "+", "sum", 6)
row_min = _row_reduction("row_min", "min", "least item", 1)
row_max = _row_reduction("row_max", "max", "greatest item", 3)


def _rows_of(name: str, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return an array as numpy's, and as a matrix of its rows."""
    values = as_numpy(name, "x", x)
    if values.ndim == 0:
        raise InvalidProblemError(f"{name}: x has no dimensions; pass an array with at least one")
    _check_elements(name, values.dtype)
    count = values.size // values.shape[-1] if values.shape[-1] else int(np.prod(values.shape[:-1]))
    return values, values.reshape(count, values.shape[-1])


def _result(name: str, x: Any, out: Any, values: np.ndarray, shape: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """Return what the caller gets and the memory that the kernel fills."""
    if out is not None:
        array = as_numpy(name, "out", out)
        if array.shape != shape or array.dtype != values.dtype:
            raise InvalidProblemError(
                f"{name}: out has shape {array.shape} and type {array.dtype}; it must have {shape} and {values.dtype}"
            )
        if not array.flags.writeable or not array.flags.c_contiguous:
            raise InvalidOperandError(
                f"{name}: out is read-only or has gaps; pass a contiguous array that can be written"
            )
        if _share_memory(array, values):
            raise InvalidOperandError(f"{name}: out shares memory with x, which is read while out is written")
        return out, array
    if is_tensor(x):
        result = x.new_empty(shape)
        return result, as_numpy(name, "x", result)
    array = np.empty(shape, values.dtype)
    return array, array


def _share_memory(one: np.ndarray, other: np.ndarray) -> bool:
    try:
        return np.shares_memory(one, other, max_work=10**5)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _threads(name: str, threads: Any, rows: np.ndarray) -> int:
    """Return how many threads a block gets: no more than a row has items."""
    integer = isinstance(threads, (int, np.integer)) and not isinstance(threads, bool)
    if not integer or not 1 <= threads <= MOST_THREADS:
        raise InvalidProblemError(f"{name}: threads is {threads!r}; it must be an integer from 1 to {MOST_THREADS}")
    return min(int(threads), rows.shape[1])


def _set_first(first: np.ndarray, initial: Any) -> None:
    """Set the value that a scan begins with, which the type of its items must have."""
    dtype = first.dtype
    needed = f"pass a number that {dtype} has"
    if isinstance(initial, np.ndarray) and initial.ndim == 0:
        initial = initial[()]
    if dtype.kind in _KINDS:
        if not isinstance(initial, (bool, int, float, complex, np.number, np.bool_)):
            raise InvalidOperandError(f"block_scan: initial is {type(initial).__name__}; {needed}")
        kind = "i" if isinstance(initial, int) else np.asarray(initial).dtype.kind
        if _KINDS[kind] > max(_KINDS[dtype.kind], _KINDS["i"]):
            raise InvalidOperandError(f"block_scan: initial is {initial!r}, and x is {dtype}; {needed}")
    try:
        with np.errstate(over="ignore"):
            first[0] = initial
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidOperandError(f"block_scan: initial is {initial!r}, and x is {dtype}: {error}") from None
    exact = dtype.kind in "biu" and first[0] != initial
    finite = isinstance(initial, int) or dtype.kind not in "fc" or np.isfinite(initial)  # numpy has no larger integers
    if exact or (dtype.kind in "fc" and finite and not np.isfinite(first[0])):
        raise InvalidOperandError(f"block_scan: initial is {initial!r}, beyond the range of {dtype}; {needed}")


def _check_elements(name: str, dtype: np.dtype) -> None:
    """Refuse elements that kernels cannot combine."""
    if dtype.name == "bfloat16":
        raise InvalidOperandError(f"{name}: x is bfloat16, which is not supported here; pass float32")
    if not dtype.isnative:
        raise InvalidOperandError(
            f"{name}: x is {dtype.str!r}, in the other byte order; pass x.astype(x.dtype.newbyteorder('='))"
        )
    number = dtype.kind in "biufc" and dtype.char not in "gG"
    if not number and dtype.names is None:
        raise InvalidOperandError(
            f"{name}: x is {dtype}; booleans, integers of up to 64 bits, float16, float32, float64, complex64, "
            "complex128 and structured types are supported"
        )


_CALLABLE = (types.FunctionType, types.BuiltinFunctionType, Kernel)
_TYPES = {"&": "biu", "|": "biu", "^": "biu", "min": "biuf", "max": "biuf", "+": "biufc", "*": "biufc"}


def _operator(name: str, op: Any, dtype: np.dtype) -> Any:
    """Return an operator as its name if it has one, otherwise as a function of two items."""
    if isinstance(op, str) and op not in NAMES:
        raise InvalidProblemError(f"{name}: op is {op!r}; the names are {', '.join(NAMES)}{did_you_mean(op, NAMES)}")
    pairwise = (op.nin, op.nout) == (2, 1) if isinstance(op, np.ufunc) else isinstance(op, _CALLABLE)
    if not isinstance(op, str) and not pairwise and not hasattr(op, "py_func"):
        shown = f"np.{op.__name__}" if isinstance(op, np.ufunc) else type(op).__name__
        raise InvalidOperandError(
            f"{name}: op is {shown}; pass a name, a numpy ufunc of two values or a Python function"
        )
    word = op if isinstance(op, str) else name_of(op, booleans=dtype.kind == "b")
    if word is not None and dtype.kind not in _TYPES[word]:
        kinds = {"biu": "integers and booleans", "biuf": "ordered numbers", "biufc": "numbers"}[_TYPES[word]]
        raise InvalidOperandError(f"{name}: op {word!r} is for {kinds}, and x is {dtype}; pass a Python function")
    return op if word is None else word


def _identity(op: Any, dtype: np.dtype) -> Any:
    if not isinstance(op, str):
        raise InvalidProblemError("block_scan: a function has no known neutral element; pass initial=")
    if dtype.kind == "b":
        return op in ("*", "&", "min")
    if op in ("min", "max"):
        limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else None
        if limits is not None:
            return limits.max if op == "min" else limits.min
        return np.inf if op == "min" else -np.inf
    return {"*": 1, "&": -1 if dtype.kind == "i" else np.iinfo(dtype).max if dtype.kind == "u" else 1}.get(op, 0)


@functools.lru_cache(maxsize=256)
def _reducer(op: Any, dtype: np.dtype) -> Kernel:
    combine_into = _combiner_into(op, dtype)

    def row_reduction(x: Any, out: Any, threads: int) -> None:
        row, n = grid(1), x.shape[1]
        # As a block of so many threads reduces the row: whole runs of neighbours, so that the operands keep their
        # order, then neighbours of those. What is not yet combined has as many runs as the number of runs has bits.
        each = (n + threads - 1) // threads
        partial, top = local.array(_MOST_PARTIALS, dtype), -1
        for run in range((n + each - 1) // each if row < x.shape[0] else 0):
            top += 1
            partial[top] = x[row, run * each]
            for j in range(run * each + 1, min(run * each + each, n)):
                combine_into(partial, top, x[row, j])
            count = run + 1
            while count % 2 == 0:
                top -= 1
                combine_into(partial, top, partial[top + 1])
                count //= 2
        if row < x.shape[0]:
            while top > 0:
                top -= 1
                combine_into(partial, top, partial[top + 1])
            out[row] = partial[0]

    return jit(row_reduction)


@functools.lru_cache(maxsize=256)
def _scanner(op: Any, dtype: np.dtype, exclusive: bool, begins: bool) -> Kernel:
    combine_into = _combiner_into(op, dtype)

    def row_scan(x: Any, first: Any, out: Any) -> None:
        row, rank, n = blockIdx.x, threadIdx.x, x.shape[1]
        each = (n + blockDim.x - 1) // blockDim.x
        begin, end = rank * each, min(rank * each + each, n)
        held, before = local.array(1, dtype), local.array(1, dtype)
        held[0] = x[row, min(begin, n - 1)]
        for j in range(begin + 1, end):
            combine_into(held, 0, x[row, j])
        others = shuffle(this_block(), inclusive_scan(this_block(), held[0], op), "up", 1)
        before[0] = first[0] if begins else others
        if begins and rank > 0:
            combine_into(before, 0, others)
        for j in range(begin, end):
            held[0] = before[0]
            if begins or j > 0:
                combine_into(held, 0, x[row, j])
            else:
                held[0] = x[row, j]
            out[row, j] = before[0] if exclusive else held[0]
            before[0] = held[0]

    return jit(row_scan)


def _combiner_into(op: Any, dtype: np.dtype) -> Any:
    """Return a function that combines an element of an array with a value, which kernels call."""
    combine = _pairwise(op, dtype)
    code = getattr(getattr(op, "py_func", getattr(op, "function", op)), "__code__", None)
    if dtype.names is not None and code is not None and code.co_argcount == 3:

        def fill(values: Any, index: int, other: Any) -> None:
            result = local.array(1, dtype)
            combine(values[index], other, result[0])
            values[index] = result[0]

        return fill

    def replace(values: Any, index: int, other: Any) -> None:
        values[index] = combine(values[index], other)

    return replace


def _pairwise(op: Any, dtype: np.dtype) -> Any:
    """Return the operator as a function that kernels call."""
    if isinstance(op, np.ufunc) and dtype == np.float16:  # Numba has no ufuncs of it
        return lambda a, b: op(np.float32(a), np.float32(b))
    if not isinstance(op, str):
        return op
    array: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda a, b: a + b,
        "*": lambda a, b: a * b,
        "min": lambda a, b: a if (a < b or a != a) else b,  # a NaN differs from itself, and wins
        "max": lambda a, b: a if (a > b or a != a) else b,
        "&": lambda a, b: a & b,
        "|": lambda a, b: a | b,
        "^": lambda a, b: a ^ b,
    }
    return array[op]
