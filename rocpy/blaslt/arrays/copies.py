# SPDX-License-Identifier: MIT
"""Copies of arrays by their own frameworks: dense ones, transposed ones, and results written where they are wanted."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from rocpy import dtypes
from rocpy._fp_environment import default_arithmetic
from rocpy._messages.log import timed
from rocpy._messages.modules import is_tensor
from rocpy._operand import numpy_view
from rocpy.blaslt.arrays.columns import Columns, buffer_like
from rocpy.blaslt.arrays.framework import SATURATING, framework_of, root, values
from rocpy.blaslt.arrays.views import viewed
from rocpy.blaslt.model.lowering import lower
from rocpy.blaslt.model.preparation import Preparation
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.product_call import ProductCall
from rocpy.blaslt.model.refusals import cast_refused, copy_refused
from rocpy.errors import InvalidOperandError, OutOfMemoryError, UnsupportedError
from rocpy.runtime._foreign import array_view
from rocpy.runtime.handles.call_stream import await_operand
from rocpy.runtime.memory import Buffer


def contiguous(array: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return a C-contiguous copy of an array by its own framework, broadcast to ``shape`` if one is given.

    A copy is in native byte order: what a product has to copy again would never end.
    """
    await_operand(array)
    if isinstance(array, np.ndarray):
        return _numpy_copy(array if shape is None else np.broadcast_to(array, shape), "C")
    if isinstance(array, Buffer):
        buffer = buffer_like(array, array.shape if shape is None else shape)
        buffer.copy_from(array if shape is None else np.ascontiguousarray(np.broadcast_to(array.to_numpy(), shape)))
        return buffer
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
    view = numpy_view(array)
    return contiguous(view if isinstance(view, np.ndarray) else _foreign_view(array), shape)


def _foreign_view(array: Any) -> np.ndarray[Any, Any]:
    """Return numpy's view of memory whose elements must be copied, as those in the other byte order are."""
    try:
        return array_view(array if hasattr(array, "__array_interface__") else memoryview(array), "array")
    except TypeError:
        raise UnsupportedError(
            f"a {type(array).__module__}.{type(array).__name__} of this layout must be copied, and rocpy does "
            "not know how; "
            "pass a contiguous array"
        ) from None


def _numpy_copy(array: np.ndarray[Any, Any], order: Literal["C", "K"]) -> np.ndarray[Any, Any]:
    try:
        return np.array(array, dtype=array.dtype.newbyteorder("="), order=order, copy=True)
    except MemoryError:
        raise OutOfMemoryError(
            f"an array of shape {array.shape}, {array.dtype}, must be copied and there is no memory for it; pass a "
            "contiguous array"
        ) from None


def snapshot(array: Any) -> Any:
    """Return a copy of an array, lying as it does where its framework can; one that cannot change is itself."""
    await_operand(array)
    return _numpy_copy(array, "K") if isinstance(array, np.ndarray) else contiguous(array)


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
    if isinstance(array, Buffer):
        return Columns(array, shape)
    if isinstance(array, np.ndarray):
        wide = np.broadcast_to(array, shape)
    elif hasattr(array, "expand"):  # torch's name for it
        wide = array.expand(shape)
    else:
        plain = contiguous(array)
        if not isinstance(plain, np.ndarray):
            raise UnsupportedError(
                f"c: the result lies in columns, as out= does or a bias per row wants it, so that c must too, and a "
                f"{type(array).__name__} on the device cannot be copied to that layout; pass a column-major tensor, or "
                "call rocpy.matmul with arrays in CPU memory"
            )
        wide = np.broadcast_to(plain, shape)
    return contiguous(wide.swapaxes(-1, -2)).swapaxes(-1, -2)


def rounded(result: Any, dtype: str) -> Any:
    """Return a result in eight bits, or a float64 one in a narrower type, rounded once; others as they are."""
    if isinstance(result, Buffer) or dtype not in dtypes.DTYPES:
        return result
    if dtype not in SATURATING and not str(result.dtype).endswith("float64"):
        return result
    with np.errstate(all="ignore"):
        return framework_of(result).narrow(result, dtype)


def assign(out: Any, result: Any) -> None:
    """Write a result that was computed aside into ``out``, of whatever framework, cast to its type.

    What is beyond the largest number of a type of 8 bits, or of integers, becomes that, as in a product of that type.
    """
    out = viewed(out, "out")
    if type(result) is type(out) and result.dtype == out.dtype:
        _write(out, result)
    else:
        _cast(out, result)


@default_arithmetic
def _cast(out: Any, result: Any) -> None:
    dtype = getattr(out, "dtype", "")
    if isinstance(out, Buffer):
        result = values(result)
    elif root(out) != root(result):
        result = framework_of(out).own(result, out)
    with np.errstate(all="ignore"):  # what is too large for out's type is infinity, as in any product
        if result.dtype != dtype:
            result = _within(result, str(dtype).removeprefix("torch."))
        _write(out, np.ascontiguousarray(result, dtype) if isinstance(out, Buffer) else result)


def _write(out: Any, result: Any) -> None:
    if isinstance(out, Buffer):
        out.copy_from(result)
    elif hasattr(out, "copy_"):
        out.copy_(result)
    elif hasattr(out, "__setitem__"):
        out[...] = result
    else:
        raise InvalidOperandError(
            f"out: a {type(out).__name__} of this layout cannot be written; pass a row-major array"
        )


def _within(result: Any, dtype: str) -> Any:
    """Return a result as it is cast to a type: rounded once, integers not beyond those of the type."""
    if re.fullmatch("int(8|16|32)", dtype) and "int" in str(result.dtype):
        return framework_of(result).within(result, dtype)
    return rounded(result, dtype)


def refuse_copied(name: str, layout: str, result_dtype: str, form: str) -> NoReturn:
    """Refuse a product that would copy an operand, which the options forbid; ``form`` says what to pass instead."""
    if name == "out" and not layout.endswith(f" {result_dtype}"):
        raise cast_refused(layout.rpartition(" ")[2], result_dtype)
    raise copy_refused(name, layout, form)


class Copied(Preparation[ProductCall]):
    """A product of copies, where the library cannot take operands or write the result as they lie.

    ``names`` are those of what is copied, ``result_shape`` and ``result_dtype`` the result's; ``c_in_columns`` says how
    a copy of c is to lie.
    """

    def __init__(
        self,
        call: ProductCall,
        names: tuple[str, ...],
        result_shape: tuple[int, ...],
        result_dtype: str,
        c_in_columns: bool,
    ) -> None:
        self._call, self._names, self._shape, self._dtype = call, names, result_shape, result_dtype
        self._c_in_columns = c_in_columns and len(result_shape) > 1
        self.works_on_result = "out" in names

    def prepare(self) -> ProductCall:
        """Return the call on the copies."""
        changes: dict[str, Any] = {}
        with timed("copied %s", ", ".join(self._names)):
            for name in self._names:
                if name == "c" and self._c_in_columns:
                    changes[name] = in_columns(self._call.c, self._shape)
                elif name != "out":
                    changes[name] = contiguous(getattr(self._call, name), self._shape if name == "c" else None)
        if self.works_on_result:
            changes.update(out=None, dtype=self._dtype)
        return self._call.replaced(**changes)

    def finish(self, outputs: Any) -> Any:
        """Write the result where the user wants it."""
        if not self.works_on_result:
            return outputs
        result, *extra = outputs if isinstance(outputs, tuple) else (outputs,)
        assign(self._call.out, result)
        return (self._call.out, *extra) if extra else self._call.out


class _TensorBytes(NamedTuple):
    """A tensor of narrow floats as bytes: torch pickles a storage of those that it cannot read again."""

    data: Any
    dtype: Any
    is_parameter: bool


def picklable(array: Any) -> Any:
    """Return what an array is pickled as: itself, or a tensor of narrow floats as its bytes."""
    if not is_tensor(array) or array.dtype.itemsize > 1 or not array.dtype.is_floating_point:
        return array
    torch = sys.modules["torch"]
    return _TensorBytes(array.detach().view(torch.uint8), array.dtype, isinstance(array, torch.nn.Parameter))


def unpickled(array: Any) -> Any:
    """Return the array that :func:`picklable` was called with."""
    if not isinstance(array, _TensorBytes):
        return array
    tensor = array.data.view(array.dtype)
    return sys.modules["torch"].nn.Parameter(tensor, requires_grad=False) if array.is_parameter else tensor


def unpacked(weight: Any, bias: Any) -> Any:
    """Return what stands for a packed weight in a product with this bias: one per row takes the weight as it came."""
    shape = tuple(getattr(bias, "shape", ()))
    if not weight.packed or len(shape) < 2 or shape[-1] != 1:
        return weight
    return weight.matrix()


def transposed_rows(array: Any) -> Any:
    """Return a dense array of shape (..., N, M) as one of shape (..., M, N), by its own framework."""
    if isinstance(array, Buffer):
        rows = transposed_rows(array.to_numpy())
        buffer = buffer_like(array, rows.shape)
        buffer.copy_from(rows)
        array.close()
        return buffer
    rows = array.swapaxes(-1, -2)
    # Frameworks that have neither (jax) make arrays of their own of whatever they give.
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    if hasattr(rows, "contiguous"):
        return framework_of(rows).hand_over(rows.contiguous(), tuple(rows.shape))
    return getattr(module, "ascontiguousarray", lambda array: array)(rows)


def transposed_product(outputs: Any, out: Any, synchronize: Callable[[], None]) -> Any:
    """Return results that were computed in columns as the user wants them: in rows, or in ``out``."""
    synchronize()
    result, *more = outputs if isinstance(outputs, tuple) else (outputs,)
    if out is None:
        result = transposed_rows(result)
    else:
        assign(out, transposed_rows(result) if isinstance(result, Buffer) else result.swapaxes(-1, -2))
        result = out
    if not more:
        return result
    return (result, None if more[0] is None else transposed_rows(more[0]), *more[1:])
