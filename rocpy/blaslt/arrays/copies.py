# SPDX-License-Identifier: MIT
"""Copies of arrays by their own frameworks: dense ones, transposed ones, and results written where they are wanted."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from rocpy._fp_environment import default_arithmetic
from rocpy._messages.log import timed
from rocpy.blaslt.arrays.framework import framework_of, root, values
from rocpy.blaslt.model.lowering import lower
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.refusals import cast_refused, copy_refused
from rocpy.blaslt.model.settings import COPY_BITS
from rocpy.errors import InvalidOperandError, OutOfMemoryError, UnsupportedError
from rocpy.runtime.memory import Buffer


def contiguous(array: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return a C-contiguous copy of an array by its own framework, broadcast to ``shape`` if one is given."""
    if isinstance(array, np.ndarray):
        source = array if shape is None else np.broadcast_to(array, shape)
        try:
            return np.array(source, order="C", copy=True)
        except MemoryError:
            raise OutOfMemoryError(
                f"an array of shape {source.shape}, {source.dtype}, must be copied and there is no memory for "
                "it; pass a contiguous array"
            ) from None
    if isinstance(array, Buffer):
        made = Buffer(array.shape if shape is None else shape, array.dtype)
        made.copy_from(array if shape is None else np.ascontiguousarray(np.broadcast_to(array.to_numpy(), shape)))
        return made
    if hasattr(array, "contiguous") and not isinstance(array, memoryview):  # torch's name for it
        if array.is_conj():
            array = array.resolve_conj()
            if shape is None and array.is_contiguous():
                return array
        source = array if shape is None else array.expand(shape)
        return source.contiguous() if not source.is_contiguous() else source.clone()
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    if module is not None and hasattr(module, "ascontiguousarray"):
        return module.ascontiguousarray(array if shape is None else module.broadcast_to(array, shape))
    if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == 1:
        return contiguous(np.from_dlpack(array), shape)
    if hasattr(array, "__array_interface__"):
        return contiguous(np.asarray(array), shape)
    try:
        return contiguous(np.asarray(memoryview(array)), shape)
    except TypeError:
        raise UnsupportedError(
            f"a {type(array).__module__}.{type(array).__name__} of this layout must be copied, and rocpy does "
            "not know how; "
            "pass a contiguous array"
        ) from None


def snapshot(array: Any) -> Any:
    """Return a copy of an array, lying as it does where its framework can; one that cannot change is itself."""
    return np.array(array, order="K", copy=True) if isinstance(array, np.ndarray) else contiguous(array)


def checksum(array: Any) -> int:
    """Return a number that changes with an array's values."""
    if array is None or not hasattr(array, "shape"):
        return 0
    if root(array) == "torch":
        torch = sys.modules["torch"]
        plain = array.detach().resolve_conj().resolve_neg().contiguous()
        array = plain.reshape(-1).view(torch.uint8).cpu().numpy()
    seen = np.ascontiguousarray(values(array))
    return zlib.crc32(seen.view(np.uint8).data if seen.size else b"")


def copy_of(array: Any, name: str, problem: Problem) -> Any:
    """Return a copy of an operand that the library can take in the place of the one given."""
    if name != "c":
        return contiguous(array)
    shape = problem.result_shape
    return in_columns(array, shape) if lower(problem).columns else contiguous(array, shape)


def in_columns(array: Any, shape: tuple[int, ...]) -> Any:
    """Return a copy whose matrices lie in columns, broadcast to ``shape``, by the array's own framework."""
    if isinstance(array, np.ndarray):
        wide = np.broadcast_to(array, shape)
    elif hasattr(array, "expand"):  # torch's name for it
        wide = array.expand(shape)
    else:
        raise UnsupportedError(
            f"c: with a bias for each row it must lie in columns, and a plan cannot copy a {type(array).__name__} on "
            "the device into them; pass a tensor that lies so, or call rocpy.matmul with arrays in CPU memory"
        )
    return contiguous(wide.swapaxes(-1, -2)).swapaxes(-1, -2)


@default_arithmetic
def assign(out: Any, result: Any) -> None:
    """Write a result that was computed aside into ``out``, cast to its type, by out's own framework."""
    if isinstance(out, Buffer):
        if isinstance(result, Buffer) and result.dtype == out.dtype:
            out.copy_from(result)
            return
        values = result.to_numpy() if isinstance(result, Buffer) else np.asarray(result)
        with np.errstate(all="ignore"):
            out.copy_from(np.ascontiguousarray(values, out.dtype))
    elif hasattr(out, "copy_"):
        out.copy_(result)
    elif hasattr(out, "__setitem__"):
        with np.errstate(all="ignore"):  # what is too large for out's type is infinity, as in any product
            out[...] = result
    else:
        raise InvalidOperandError(
            f"out: a {type(out).__name__} of this layout cannot be written; pass a row-major array"
        )


def copied_product(
    run: Callable[..., Any],
    bits: int,
    options: Options,
    operands: tuple[Any, ...],
    layouts: tuple[str, ...],
    result_shape: tuple[int, ...],
    result_dtype: str,
    arguments: dict[str, Any],
    settle: Callable[[], None],
) -> Any:
    """Copy what the library cannot take as it lies, run, and put the result where the user wants it.

    ``settle`` waits until a stream that the user gave is idle: copies are made by the operands' framework, outside
    that stream's order.
    """
    named = dict(zip(COPY_BITS, operands, strict=False))
    chosen = [name for name, bit in COPY_BITS.items() if bits >> bit & 1]
    if options.copies == "error":
        layout = layouts[COPY_BITS[chosen[0]]]
        if chosen[0] == "out" and not layout.endswith(f" {result_dtype}"):
            raise cast_refused(layout.rpartition(" ")[2], result_dtype)
        raise copy_refused(chosen[0], layout)
    settle()
    with timed("copied %s", ", ".join(chosen)):
        for name in chosen:
            if name == "c" and "columns" in chosen and len(result_shape) > 1:
                named[name] = in_columns(named[name], result_shape)
            elif name not in ("out", "columns"):
                named[name] = contiguous(named[name], result_shape if name == "c" else None)
    if "out" not in chosen:
        settle()
        return run(**named, **arguments)
    out, named["out"] = named["out"], None
    settle()
    result = run(**named, **{**arguments, "dtype": result_dtype})
    settle()
    assign(out, result[0] if isinstance(result, tuple) else result)
    return (out, result[1]) if isinstance(result, tuple) else out


def unpacked(weight: Any, bias: Any) -> Any:
    """Return what stands for a packed weight in a product with this bias: one per row takes the weight as it came."""
    shape = tuple(getattr(bias, "shape", ()))
    if not weight.packed or len(shape) < 2 or shape[-1] != 1:
        return weight
    return weight.matrix()


def turned_rows(array: Any) -> Any:
    """Return a dense array of shape (..., N, M) as one of shape (..., M, N), by its own framework."""
    if isinstance(array, Buffer):
        rows = turned_rows(array.to_numpy())
        made = Buffer(rows.shape, array.dtype)
        made.copy_from(rows)
        array.close()
        return made
    rows = array.swapaxes(-1, -2)
    # Frameworks that have neither (jax) make arrays of their own of whatever they give.
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    if hasattr(rows, "contiguous"):
        return framework_of(rows).given_away(rows.contiguous(), tuple(rows.shape))
    return getattr(module, "ascontiguousarray", lambda array: array)(rows)


def turned_product(outputs: Any, out: Any, settle: Callable[[], None]) -> Any:
    """Return results that were computed in columns as the user wants them: in rows, or in ``out``."""
    settle()
    result, *more = outputs if isinstance(outputs, tuple) else (outputs,)
    if out is None:
        result = turned_rows(result)
    else:
        assign(out, turned_rows(result) if isinstance(result, Buffer) else result.swapaxes(-1, -2))
        result = out
    if not more:
        return result
    return (result, None if more[0] is None else turned_rows(more[0]), *more[1:])
