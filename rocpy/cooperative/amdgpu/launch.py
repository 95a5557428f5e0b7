# SPDX-License-Identifier: MIT
"""Launches on an AMD GPU: a kernel is compiled for the device and queued through HIP's module functions."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from rocpy._messages.modules import is_tensor
from rocpy.cooperative.amdgpu import code_object, device_library
from rocpy.cooperative.kernel.arguments import number_of, raise_versions
from rocpy.cooperative.kernel.kernel import Kernel
from rocpy.cooperative.kernel.limits import MOST_THREADS
from rocpy.errors import InvalidOperandError, UnsupportedError
from rocpy.runtime.device import Device, device_generation
from rocpy.runtime.kernels.module import Module
from rocpy.runtime.memory import Buffer

_GPU_TYPES = (2, 10)  # kDLCUDA, which ROCm builds of some frameworks say, and kDLROCM
_PLAIN = (np.ndarray, np.generic, bool, int, float, complex)


def device_of(argument: Any) -> int | None:
    """Return the number of the device whose memory an argument is in, None for what a CPU can read."""
    if isinstance(argument, _PLAIN):
        return None
    if isinstance(argument, tuple):
        return next((index for each in argument if (index := device_of(each)) is not None), None)
    ask = getattr(argument, "__dlpack_device__", None)
    if ask is None:
        return None
    try:
        kind, index = ask()
    except Exception:  # noqa: BLE001  (what an array that was deleted raises; it is refused where its memory is read)
        return None
    return int(index) if kind in _GPU_TYPES else None


def launch(kernel: Kernel, settings: Any, arguments: tuple[Any, ...], index: int) -> None:
    """Queue a kernel on a device.

    Parameters
    ----------
    kernel
        The kernel.
    settings
        ``grid``, ``block``, ``stream`` and ``shared_bytes`` of the launch.
    arguments
        What it is called with, arrays in the device's memory.
    index
        The device.
    """
    names = kernel.function.__code__.co_varnames
    types: list[Any] = []
    flat: list[Any] = []
    for position, argument in enumerate(arguments):
        name = names[position] if position < len(names) else f"argument {position}"
        types.append(_flatten(kernel, name, argument, index, flat))
    threads = settings.block[0] * settings.block[1] * settings.block[2]
    capacity = next(each for each in (64, 128, 256, 512, MOST_THREADS) if each >= threads)
    key = (tuple(types), index, device_generation(index), capacity)
    loaded = kernel._loaded.get(key)
    if loaded is None:
        loaded = kernel._loaded[key] = _load(kernel, tuple(types), index, capacity)
    stream = settings.stream
    if stream is None and any(map(is_tensor, arguments)):
        stream = sys.modules["torch"].cuda.current_stream(index)
    function, written = loaded
    function.launch(settings.grid, settings.block, *flat, shared_bytes=settings.shared_bytes, stream=stream)
    raise_versions(arguments, written)


def _load(kernel: Kernel, types: tuple[Any, ...], index: int, threads: int) -> Any:
    arch = Device(index).arch.partition(":")[0]  # what follows are features, as in gfx942:sramecc+:xnack-
    if arch not in device_library.ARCHITECTURES:
        raise UnsupportedError(
            f"kernel {kernel.name}: device {index} is {arch}; kernels are compiled for "
            f"{', '.join(device_library.ARCHITECTURES)}"
        )
    compiled = code_object.compile(kernel, types, arch, threads=threads)
    return Module.from_code(compiled.code, device=index).kernel(compiled.name), compiled.written


def _flatten(kernel: Kernel, name: str, argument: Any, index: int, flat: list[Any]) -> Any:
    """Add an argument to the flat ones, in the form that a code object takes; return its type."""
    typed = code_object.linker()
    if isinstance(argument, tuple):
        members = [_flatten(kernel, f"{name}[{i}]", each, index, flat) for i, each in enumerate(argument)]
        return typed.tuple_type(members)
    number = number_of(argument)
    if number is not None:
        flat.append(number)
        return typed.type_of(number)
    where = device_of(argument)
    if where != index:
        raise InvalidOperandError(
            f"kernel {kernel.name}: {name} is {'on the CPU' if where is None else f'on device {where}'}, and other "
            f"arguments are on device {index}"
        )
    shape, strides, dtype = _described(kernel, name, argument, flat)
    flat += [*shape, *strides]
    return typed.array_type(dtype, len(shape), contiguous=strides == _c_strides(shape, dtype.itemsize))


def _described(kernel: Kernel, name: str, argument: Any, flat: list[Any]) -> tuple[list[int], list[int], np.dtype[Any]]:
    """Add an array's address; return its extents, its strides in bytes, and the type of its elements."""
    if is_tensor(argument):
        if argument.requires_grad:
            raise InvalidOperandError(
                f"kernel {kernel.name}: {name} requires a gradient, which a kernel does not compute; pass "
                f"{name}.detach()"
            )
        try:
            dtype = np.dtype(str(argument.dtype).partition(".")[2])
        except TypeError:
            raise InvalidOperandError(
                f"kernel {kernel.name}: {name} is {argument.dtype}, which Numba does not support"
            ) from None
        address = ctypes.c_void_p(argument.data_ptr())
        address.tensor = argument  # a launch keeps its arguments, and so the memory
        flat.append(address)
        return list(argument.shape), [each * dtype.itemsize for each in argument.stride()], dtype
    buffer = argument if isinstance(argument, Buffer) else Buffer.from_dlpack(argument)
    flat.append(buffer)
    return list(buffer.shape), _c_strides(buffer.shape, buffer.dtype.itemsize), buffer.dtype


def _c_strides(shape: Any, itemsize: int) -> list[int]:
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return strides
