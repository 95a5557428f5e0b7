# SPDX-License-Identifier: MIT
"""The buffers of nccl4py's calls: any array, looked at as one row of elements."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from rocpy._operand import describe
from rocpy.compat.nccl._enums import NcclDataType
from rocpy.compat.nccl._errors import NcclInvalid
from rocpy.errors import UnsupportedError
from rocpy.rccl.engine.operands import part_of
from rocpy.rccl.model import dtypes
from rocpy.runtime.device import Device
from rocpy.runtime.memory import Buffer

_CPU = 1  # DLPack's number


@dataclass(frozen=True)
class Row:
    """An array's elements in one row.

    Attributes
    ----------
    array
        What rocpy's calls take.
    count
        How many elements there are.
    dtype
        Their type.
    address, device_id
        Where they are.
    is_boolean
        Whether they are booleans, whose type here is that of bytes.
    """

    array: Any
    count: int
    dtype: NcclDataType
    address: int
    device_id: int
    is_boolean: bool

    @property
    def nbytes(self) -> int:
        """The size."""
        return self.count * self.dtype.itemsize

    def first(self, count: int) -> Any:
        """Return the first elements as an array."""
        if count == self.count:
            return self.array
        if isinstance(self.array, Buffer):
            return part_of(self.array, (count,), self.dtype.name_of_dtype)
        return self.array[:count]


class _DeviceRow:
    """A row of an array in device memory that has nothing but the CUDA array interface."""

    def __init__(self, owner: Any, interface: dict[str, Any], count: int) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {**interface, "shape": (count,), "strides": None}

    def __getitem__(self, part: slice) -> _DeviceRow:
        return _DeviceRow(self._owner, self.__cuda_array_interface__, part.stop)


def _is_boolean(array: Any) -> bool:
    return str(getattr(array, "dtype", "")) in ("bool", "torch.bool")


def _plain(array: Any) -> Any:
    """Return an array without what nccl4py does not look at: its gradient, and that its bytes are booleans."""
    if hasattr(array, "detach"):
        array = array.detach()
    if not _is_boolean(array):
        return array
    return array.view(np.uint8 if str(array.dtype) == "bool" else sys.modules["torch"].uint8)


def _flattened(array: Any, seen: dict[str, Any], count: int) -> Any:
    if hasattr(array, "reshape"):
        return array.reshape(-1)
    if isinstance(array, Buffer):
        return part_of(array, (count,), seen["dtype"])
    if seen["device_type"] == _CPU:
        dtype = dtypes.numpy_type(seen["dtype"])
        memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(seen["data"])
        memory.owner = array, seen["kept"]  # alive as long as the row is
        return np.frombuffer(memory, dtype, count)
    if not hasattr(array, "__dlpack__"):
        return _DeviceRow(array, array.__cuda_array_interface__, count)
    return part_of(Buffer.from_dlpack(array), (count,), seen["dtype"])


def row_of(array: Any, name: str, *, is_written: bool = False) -> Row:
    """Return the elements of an array in one row; never a copy.

    Parameters
    ----------
    array
        Any array, of C-contiguous memory.
    name
        What errors call it.
    is_written
        Whether a call writes to it.

    Raises
    ------
    NcclInvalid
        It is no array, of no type that RCCL has, not C-contiguous, or cannot be written.
    """
    if array is None or isinstance(array, str | bytes | int | float | list | tuple):
        raise NcclInvalid(f"{name}: got {type(array).__name__}, expected an array")
    is_boolean, array = _is_boolean(array), _plain(array)
    try:
        seen = describe(array, name, output=is_written)
    except UnsupportedError as error:
        raise NcclInvalid(str(error)) from None
    if seen["dtype"] not in dtypes.NAMES:
        raise NcclInvalid(f"{name}: RCCL has no collectives of {seen['dtype']}")
    step, count = 1, int(np.prod(seen["shape"], dtype=np.int64))
    for extent, stride in zip(reversed(seen["shape"]), reversed(seen["strides"]), strict=True):
        if count and extent > 1 and stride != step:
            raise NcclInvalid(
                f"{name}: is not C-contiguous (shape {seen['shape']}, strides {seen['strides']} in elements): nccl4py "
                "would use the memory as it is laid out; pass a contiguous array"
            )
        step *= extent
    is_row = len(seen["shape"]) == 1 and (hasattr(array, "reshape") or isinstance(array, Buffer))
    flat = array if is_row else _flattened(array, seen, count)
    device_id = Device.current().index if seen["device_type"] == _CPU else seen["device_id"]
    dtype = NcclDataType.from_numpy_dtype(seen["dtype"])
    return Row(flat, count, dtype, seen["data"], device_id, is_boolean)


def check_pair(sent: Row, received: Row, at_least: int, *, exactly: bool = False) -> None:
    """Refuse a buffer to receive into that is of another type than the one that is sent, or too small.

    Raises
    ------
    NcclInvalid
        It is.
    """
    if sent.dtype is not received.dtype:
        raise NcclInvalid(f"recvbuf: has dtype {received.dtype.name}, sendbuf has {sent.dtype.name}; they must agree")
    if received.count < at_least or (exactly and received.count != at_least):
        words = "exactly" if exactly else "at least"
        raise NcclInvalid(f"recvbuf: has {received.count} elements, expected {words} {at_least}")
