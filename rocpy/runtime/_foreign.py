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


def host_values(array: Any, stream: Any) -> np.ndarray[Any, Any]:
    """Return the values of an array as numpy's, C-contiguous: as they are when a stream has done its earlier work."""
    if type(array) is np.ndarray and array.flags.c_contiguous:
        return array
    check_plain(array)
    await_stream(stream)
    try:
        return np.require(array, requirements="C")
    except Exception as error:
        raise InvalidOperandError(
            f"array: got {type(array).__module__}.{type(array).__name__}, which numpy cannot read: {error}"
        ) from error


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
