# SPDX-License-Identifier: MIT
"""What launches of compiled kernels share: operands on the device, their addresses and steps, loaded code, waiting."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rocpy._operand import allocate_like, describe, resolve_stream
from rocpy._producers.torch_copies import resolved
from rocpy.blaslt.arrays import copies as _copies
from rocpy.blaslt.arrays import staging as _staging
from rocpy.blaslt.engine.streams import SynchronizeStream, device_and_stream, refuse_capturing
from rocpy.blaslt.model import refusals as _refusals
from rocpy.blaslt.model.shapes import dense_strides
from rocpy.errors import UnsupportedError
from rocpy.runtime.device import DeviceGeneration, device_generation
from rocpy.runtime.kernels.module import Kernel, Module
from rocpy.runtime.memory import Buffer

__all__ = ["Placed", "launch", "placed", "refuse_captured_outs", "results_of", "synchronize_user_stream", "write"]

_CPU = 1


class _Address(ctypes.c_void_p):
    """An array's address as a kernel's argument, with the array, which lives until the kernel has run."""

    owner: Any = None


@dataclass(frozen=True, slots=True)
class Placed:
    """An array where the device can read it.

    Parameters
    ----------
    array
        The array.
    shape, strides
        Its extents, and the steps along them in elements.
    address
        Its memory.
    dtype
        Type of its elements in memory.
    kept
        What else keeps the memory alive.
    """

    array: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    dtype: str
    retained: Any = None

    @property
    def argument(self) -> Any:
        """Its address as a kernel's argument."""
        address = _Address(self.address)
        address.owner = self.array, self.retained
        return address

    def steps(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the steps of this array broadcast to a result's shape: of the whole batch, of rows and of columns.

        ``None`` where the batch axes cannot be walked with one step.
        """
        lead = len(shape) - len(self.shape)
        strides = [0] * lead + [
            0 if extent == 1 else step for extent, step in zip(self.shape, self.strides, strict=True)
        ]
        whole = (1,) * max(0, 2 - len(shape)) + shape
        strides = [0] * (len(whole) - len(shape)) + strides
        batch = _one_step(whole[:-2], strides[:-2])
        return None if batch is None else (batch, strides[-2], strides[-1])


def _one_step(extents: Sequence[int], strides: Sequence[int]) -> int | None:
    """Return the step that walks several axes as one, if there is one."""
    step, count = None, 1
    for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
        if extent == 1:
            continue
        if step is None:
            step = stride
        elif stride != step * count:
            return None
        count *= extent
    return step or 0


def placed(array: Any, name: str) -> Placed:
    """Return an array where the device can read it: copied there from CPU memory that it cannot use."""
    shown = as_bytes(array)
    if hasattr(shown, "resolve_conj"):
        shown = resolved(shown)
    if _staging.has_own_memory():
        shown = _staging._moved(shown, name, None)
    view = describe(shown, name)
    return Placed(shown, tuple(view["shape"]), tuple(view["strides"]), int(view["data"]), view["dtype"], view["kept"])


def as_bytes(array: Any) -> Any:
    """Return truth values, which no product has, as the bytes that they are in memory; other arrays as they are."""
    if isinstance(array, np.ndarray):  # whose types take long to write
        return array.view(np.uint8) if array.dtype == np.bool_ else array
    if str(array.dtype).removeprefix("torch.") != "bool":
        return array
    module = sys.modules.get(type(array).__module__.partition(".")[0])
    return array.view(module.uint8 if module is not None and hasattr(module, "Tensor") else "uint8")


def dense(one: Placed, name: str, shape: tuple[int, ...] | None, options: Any, stream: Any = None) -> Placed:
    """Return a dense copy, broadcast to a shape if one is given; refused where the options or a capture forbid it."""
    refuse_capturing(stream, f"{name} must be copied", _refusals.readable_form(name))
    if options.copies == "error":
        raise _refusals.copy_refused(name, f"of shape {one.shape} with strides {one.strides}")
    return placed(_copies.contiguous(one.array, shape), name)


def results_of(like: Any, shape: tuple[int, ...], dtypes: Sequence[str]) -> list[Placed]:
    """Return new arrays of a's framework for the results."""
    results = []
    for dtype in dtypes:
        array = allocate_like(like, shape, dtype)
        view = describe(array, "result", output=True)
        results.append(Placed(array, shape, dense_strides(shape), int(view["data"]), view["dtype"]))
    return results


@functools.lru_cache(maxsize=256)
def _loaded(code: bytes, name: str, device: int, _generation: DeviceGeneration) -> Kernel:
    return Module.from_code(code, device=device).kernel(name)


def launch(
    code: bytes,
    name: str,
    device: int,
    grid: tuple[int, int, int],
    threads: int,
    arguments: Sequence[Any],
    *,
    like: Any,
    stream: Any,
    shared_bytes: int = 0,
) -> None:
    """Queue a kernel behind what was queued for an array, and wait for it where the array's framework could not."""
    handle = resolve_stream(stream, like)
    kernel = _loaded(code, name, device, device_generation(device))
    kernel.launch(grid, threads, *arguments, shared_bytes=shared_bytes, stream=handle)
    if stream is None and not isinstance(like, Buffer) and describe(like, "a")["device_type"] == _CPU:
        SynchronizeStream(handle)()


def synchronize_user_stream(stream: Any, like: Any) -> None:
    """Wait for a stream that the user gave: a framework's copies do not follow its order."""
    if stream is not None:
        SynchronizeStream(resolve_stream(stream, like), like)()


def write(results: Sequence[Placed], outs: Sequence[Any], like: Any, stream: Any) -> tuple[Any, ...]:
    """Return the results as arrays of the framework of ``like``, written where the user wants them."""
    written: list[Any] = []
    for result, out in zip(results, outs, strict=True):
        array = result.array
        if _staging.has_own_memory() and describe(like, "a")["device_type"] == _CPU:
            array = _staging.download(array, like, stream)
        if out is not None:
            synchronize_user_stream(stream, like)
            _copies.assign(out, array)
            synchronize_user_stream(stream, like)
        written.append(array if out is None else out)
    return tuple(written)


def refuse_captured_outs(outs: Sequence[Any], stream: Any) -> None:
    """Refuse arrays to copy results to on a stream that is being captured."""
    if any(out is not None for out in outs):
        refuse_capturing(stream, "results with a custom epilogue are copied to out=", "omit out=")


def refuse_host_operands(array: Any, options: Any) -> None:
    """Refuse operands in CPU memory where they must be copied and the options forbid it."""
    if _staging.has_own_memory() and describe(array, "a")["device_type"] == _CPU:
        _staging.check_allowed(options)


def device_of(array: Any, stream: Any) -> int:
    """Return the device that a call on an array runs on."""
    return device_and_stream(array, stream)[0]


def check_reach(array: Placed, name: str, limit: int) -> None:
    """Refuse an array whose elements lie further apart than a kernel counts."""
    far = sum((extent - 1) * abs(step) for extent, step in zip(array.shape, array.strides, strict=True) if extent)
    if far >= limit:
        raise UnsupportedError(
            f"{name}: its elements span {far + 1} elements of memory; the kernel supports fewer than {limit}"
        )
