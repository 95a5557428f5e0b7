# SPDX-License-Identifier: MIT
"""Memory that is shared with other libraries: what their arrays say of it, and numpy's view of ours."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from rocpy._integers import integer_of
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.runtime.handles.call_stream import await_stream

__all__ = [
    "address_of",
    "array_view",
    "check_plain",
    "count_writes",
    "elements_of",
    "has_version",
    "host_values",
    "is_immutable",
    "memory_owner",
    "pair_of",
]

_ROCM = 10  # kDLROCM


def is_immutable(array: Any) -> bool:
    """Whether an array is a value: jax's are, and not every version of jax marks its capsules read-only."""
    cls = getattr(sys.modules.get("jax"), "Array", None)
    return cls is not None and isinstance(array, cls)


def has_version(array: Any) -> bool:
    """Whether an array is a tensor of torch's with a version, by which autograd notices a write; not for inference."""
    cls = getattr(sys.modules.get("torch"), "Tensor", None)
    return cls is not None and isinstance(array, cls) and not array.is_inference()


def count_writes(tensors: Sequence[Any]) -> None:
    """Raise the version of tensors, and of all that share their memory, as an operation in place does."""
    sys.modules["torch"]._C._increment_version(tensors)


def memory_owner(array: Any) -> Any:
    """Return what keeps the memory of an array that may be given other memory meanwhile, which DLPack does not keep."""
    cls = getattr(sys.modules.get("torch"), "Tensor", None)
    if cls is not None and isinstance(array, cls):
        return array.untyped_storage()
    return weakref.ref(array) if isinstance(array, np.ndarray) else None  # numpy does not resize what it names


def check_plain(array: Any) -> None:
    """Refuse an array whose memory does not hold its values: a mask, or a tensor's lazy sign, would be lost."""
    if type(array) is np.ndarray:
        return
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if masked is not None and isinstance(array, masked):
        raise InvalidOperandError(
            "array: a masked array would lose its mask; pass array.filled(value) to read it, array.data to write to it"
        )
    if has_version(array) and array.is_neg():
        raise InvalidOperandError("array: a tensor with torch's negative bit; pass array.resolve_neg()")


def array_view(array: Any, name: str, dtype: Any = None) -> np.ndarray[Any, Any]:
    """Return what ``numpy.asarray`` does, of an object that lies in the memory which it names, and has no mask."""
    if isinstance(array, (np.ndarray, np.generic)):
        return np.asarray(array, dtype)
    interface = getattr(array, "__array_interface__", None)
    if not isinstance(interface, dict):
        return np.asarray(array, dtype)
    if interface.get("mask") is not None:
        raise InvalidOperandError(
            f"{name}: {_type_of(array)}: the mask of its __array_interface__ would be lost; pass the values that count"
        )
    data = interface.get("data")
    # An address has no size, and numpy asks for a buffer and for __array_struct__ first.
    if data is None or isinstance(data, tuple) or hasattr(array, "__array_struct__") or _exports_buffer(array):
        return np.asarray(array, dtype)
    view = np.asarray(_Elements(interface, array))  # of what is checked, where the property returns another one next
    _check_reach(array, view, interface, name)
    return view if dtype is None else np.asarray(view, dtype)


def _check_reach(array: Any, view: np.ndarray[Any, Any], interface: dict[str, Any], name: str) -> None:
    """Refuse a view that reaches beyond the buffer that is its data, which numpy does not look at."""
    if view.size == 0:
        return
    low = high = interface.get("offset", 0)
    for extent, stride in zip(view.shape, view.strides, strict=True):
        low, high = (low + stride * (extent - 1), high) if stride < 0 else (low, high + stride * (extent - 1))
    size, end = memoryview(interface["data"]).nbytes, high + view.itemsize
    if low < 0 or end > size:
        raise InvalidOperandError(
            f"{name}: {_type_of(array)}: the data of its __array_interface__ has {size} bytes, and shape {view.shape} "
            f"with strides {view.strides} reaches from byte {low} to {end}; pass an array that lies in its data"
        )


def _exports_buffer(array: Any) -> bool:
    try:
        memoryview(array).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True


def _type_of(array: Any) -> str:
    return f"{type(array).__module__}.{type(array).__qualname__}"


def host_values(array: Any, stream: Any) -> np.ndarray[Any, Any]:
    """Return the values of an array as numpy's, C-contiguous: as they are when a stream has done its earlier work."""
    if type(array) is np.ndarray and array.flags.c_contiguous:
        return array
    check_plain(array)
    await_stream(stream)
    try:
        return np.require(array_view(array, "array"), requirements="C")
    except InvalidOperandError:
        raise
    except Exception as error:
        raise InvalidOperandError(f"array: got {_type_of(array)}, which numpy cannot read: {error}") from error


def address_of(array: np.ndarray[Any, Any]) -> int:
    """Return where an array's memory is, also at the interpreter's end, where ``array.ctypes`` can import nothing."""
    address: int = array.__array_interface__["data"][0]
    return address


def pair_of(value: Any, name: str) -> tuple[int, int] | None:
    """Return what a consumer of DLPack asks for, two integers, as Python's own; ``None`` where it does not ask."""
    if value is None:
        return None
    try:
        first, second = map(integer_of, value)
    except (TypeError, ValueError):
        first = second = None
    if first is None or second is None:
        raise InvalidOperandError(f"{name}: got {value!r}, expected None or two integers")
    return first, second


class _Elements:
    """Memory as elements without a meaning, and its owner."""

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def elements_of(buffer: Any, address: int, owner: Any, dtype: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """Return numpy's view of a buffer, or a copy, of a type that the array interface has no name for."""
    if copy is False and dtype is not None and np.dtype(dtype) != buffer.dtype:
        raise InvalidProblemError(f"this Buffer of {buffer.dtype} is no array of {np.dtype(dtype)} without a copy")
    if copy:
        view = buffer.to_numpy()
    elif buffer.__dlpack_device__()[0] == _ROCM:
        raise InvalidOperandError("array: this Buffer's memory is on the device; copy it with to_numpy()")
    else:
        size, data = buffer.dtype.itemsize, (address, buffer.read_only)
        interface = {"version": 3, "shape": buffer.shape, "typestr": f"|V{size}", "data": data}
        view = np.asarray(_Elements(interface, owner)).view(buffer.dtype)
    return view if dtype is None else view.astype(dtype, copy=False)
