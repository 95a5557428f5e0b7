# SPDX-License-Identifier: MIT
"""Kernel arguments as the bytes that a kernel reads: numbers by their C type, arrays by their address."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rocpy import platform
from rocpy._integers import integer_of
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.runtime.memory import Buffer, memory_of

__all__ = ["check_sizes", "extents", "pack"]

_POINTER = struct.Struct("=Q")
_CPU = 1  # of DLPack's device types


def pack(arguments: Sequence[Any]) -> tuple[list[bytes], list[Any]]:
    """Return the bytes of each argument, and what must live until the kernel has run.

    A bool is one byte, an int 8 bytes (signed, or unsigned from 2**63 on), a float a double, a complex two doubles; a
    numpy scalar or an object of ctypes is what it says, None a null pointer, and an array its address.
    """
    packed: list[bytes] = []
    owners: list[Any] = []
    for index, argument in enumerate(arguments):
        packed.append(_bytes_of(argument, f"argument {index}", owners))
    return packed, owners


def _bytes_of(argument: Any, name: str, owners: list[Any]) -> bytes:
    if argument is None:
        return _POINTER.pack(0)
    if isinstance(argument, np.generic):
        return argument.tobytes()
    if isinstance(argument, bool):
        return struct.pack("=?", argument)
    if isinstance(argument, int):
        if not -(1 << 63) <= argument < 1 << 64:
            raise InvalidProblemError(f"{name}: {argument} does not fit into 64 bits")
        return struct.pack("=q" if argument < 1 << 63 else "=Q", argument)
    if isinstance(argument, float):
        return struct.pack("=d", argument)
    if isinstance(argument, complex):
        return struct.pack("=dd", argument.real, argument.imag)
    if isinstance(argument, (ctypes._SimpleCData, ctypes.Structure, ctypes.Array, ctypes.Union)):
        owners.append(argument)  # which keeps what it points to
        return bytes(argument)
    owners.append(argument)
    if isinstance(argument, Buffer):
        address, memory = memory_of(argument)
        owners.append(memory)  # close() lets a Buffer itself go of it
        return _POINTER.pack(address)
    if hasattr(argument, "__dlpack__"):
        try:
            view = Buffer.from_dlpack(argument)
        except InvalidOperandError as error:
            raise InvalidOperandError(f"{name}: {str(error).removeprefix('array: ')}") from error
        owners.append(view)
        if view.__dlpack_device__()[0] == _CPU and not platform.current().host_memory:
            raise InvalidOperandError(
                f"{name}: got {type(argument).__name__} in CPU memory, which the device cannot access; copy it into a "
                "rocpy.Buffer (copy_from), or pass an array on the device"
            )
        return _POINTER.pack(view.handle)
    raise InvalidOperandError(
        f"{name}: got {type(argument).__name__}, expected a number, a numpy scalar, an object of ctypes, None, or "
        "an array with DLPack"
    )


def check_sizes(kernel: str, sizes: Sequence[int], arguments: Sequence[Any], packed: Sequence[bytes]) -> None:
    """Refuse arguments that are not those of a kernel, which would read beyond them.

    Parameters
    ----------
    kernel
        Its name.
    sizes
        Bytes of each of its arguments.
    arguments, packed
        What it is launched with, and the bytes of that.
    """
    if len(arguments) != len(sizes):
        raise InvalidProblemError(
            f"arguments: kernel {kernel!r} has {len(sizes)}, got {len(arguments)}; pass one for each that its code "
            f"declares (of {', '.join(map(str, sizes)) or 'no'} bytes)"
        )
    for index, (size, argument, value) in enumerate(zip(sizes, arguments, packed, strict=True)):
        if isinstance(argument, int) and not isinstance(argument, bool) and size < len(value):
            if not -(1 << 8 * size - 1) <= argument < 1 << 8 * size:
                raise InvalidProblemError(
                    f"argument {index}: {argument} does not fit into the {size} bytes that kernel {kernel!r} has for it"
                )
        elif size != len(value):
            raise InvalidOperandError(
                f"argument {index}: {type(argument).__name__} has {len(value)} bytes, kernel {kernel!r} has {size} for "
                "it; pass a numpy scalar or an object of ctypes of its type, such as numpy.float32(0.5)"
            )


def extents(sizes: int | Sequence[int], name: str) -> tuple[int, int, int]:
    """Return a grid's or a block's three extents, missing ones being 1."""
    values = [integer_of(each) for each in sizes] if isinstance(sizes, Iterable) else [integer_of(sizes)]
    known = [value for value in values if value is not None and 0 < value < 1 << 32]
    if not 1 <= len(values) == len(known) <= 3:
        raise InvalidProblemError(f"{name}: got {sizes!r}, expected one to three positive numbers below 2**32")
    x, y, z = (*known, 1, 1)[:3]
    return x, y, z
