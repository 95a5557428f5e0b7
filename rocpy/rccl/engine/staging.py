# SPDX-License-Identifier: MIT
"""Arrays in CPU memory where devices have memory of their own: copied there, and back when a call is done."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from typing import Any, NamedTuple, Protocol

import numpy as np

from rocpy._operand import allocate_like, describe, touch
from rocpy.errors import InvalidOperandError
from rocpy.rccl.engine.operands import part_of
from rocpy.rccl.model.dtypes import numpy_type
from rocpy.rccl.model.shapes import result_shape
from rocpy.runtime.device import Device
from rocpy.runtime.memory import Buffer

__all__ = ["Staged", "StagedOperands", "stage_all_to_all_v", "stage_collective"]


class Ranks(Protocol):
    """What staging needs of a communicator."""

    @property
    def device_index(self) -> int:
        """Device of the calling rank."""

    @property
    def nranks(self) -> int:
        """Number of ranks."""


# Memory of each communicator's device that no call uses.
_pools: weakref.WeakKeyDictionary[Ranks, list[Buffer]] = weakref.WeakKeyDictionary()
_pools_lock = threading.Lock()


def _memory(array: Any, name: str, *, output: bool) -> tuple[Any, Any]:
    """Return a dense array's memory as numpy sees it, and what keeps it alive."""
    seen = describe(array, name, output=output)
    dtype, shape = numpy_type(seen["dtype"]), seen["shape"]
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype), None
    step = 1
    for extent, stride in zip(reversed(shape), reversed(seen["strides"]), strict=True):
        if extent != 1 and stride != step:
            raise InvalidOperandError(f"{name}: shape {shape} with strides {seen['strides']} is not C-contiguous")
        step *= extent
    block = (ctypes.c_char * (count * dtype.itemsize)).from_address(seen["data"])
    return np.frombuffer(block, dtype).reshape(shape), (array, seen["kept"])


class Staged:
    """What one call has on the device: memory that is used again, because to free it would wait for all of the device.

    A communicator's calls in one process would then wait for one another: one thread frees what another's call has done
    with, while that one's next call waits for this thread.

    Parameters
    ----------
    comm
        The communicator of the call.
    """

    def __init__(self, comm: Ranks) -> None:
        with _pools_lock:
            self._free = _pools.setdefault(comm, [])
        self._device = comm.device_index
        self._used: list[Buffer] = []
        self.target: Any = None

    def _take(self, shape: tuple[int, ...], dtype: Any) -> Buffer:
        nbytes = max(math.prod(shape) * dtype.itemsize, 1)
        fitting = [raw for raw in self._free if raw.nbytes >= nbytes]
        if fitting:
            raw = min(fitting, key=lambda one: one.nbytes)
            self._free.remove(raw)
        else:
            raw = Buffer(1 << (nbytes - 1).bit_length(), "uint8", device=self._device)
        self._used.append(raw)
        return part_of(raw, shape, dtype)

    def upload(self, array: Any, name: str) -> Buffer:
        """Return a copy of a C-contiguous array on the device."""
        view, owners = _memory(array, name, output=False)
        buffer = self._take(view.shape, view.dtype)
        with Device(self._device):  # the null stream of another device may wait for this rank
            buffer.copy_from(view)
        del owners
        return buffer

    def reserve(self, target: Any, name: str) -> Buffer:
        """Return memory for a result that goes to a C-contiguous array when the call is done."""
        view, _ = _memory(target, name, output=True)
        self.target = target
        return self._take(view.shape, view.dtype)

    def finish(self, on_device: Buffer | None) -> None:
        """Copy the result, and give the memory back: the call is done."""
        if self.target is not None and on_device is not None:
            view, owners = _memory(self.target, "out", output=True)
            if view.size:
                view.setflags(write=True)
                with Device(self._device):
                    on_device.copy_to(view)
            touch(self.target)
            del owners
        self._free += self._used
        self._used = []


class StagedOperands(NamedTuple):
    """Copies of a call's operands on the device, and what brings the result back."""

    x: Buffer | None
    out: Buffer | None
    bias: Buffer | None
    staged: Staged


def stage_collective(comm: Ranks, name: str, x: Any, out: Any, bias: Any, has_result: bool) -> StagedOperands:
    """Copy the operands of a collective; its result goes to `out`, or to a new array like `x`, when it is done."""
    staged = Staged(comm)
    bias_copy = None if bias is None else staged.upload(bias, "bias")
    if name == "recv":
        return StagedOperands(staged.reserve(x, "x"), None, bias_copy, staged)
    source = None if x is None else staged.upload(x, "x")
    if has_result and out is None:
        out = allocate_like(x, result_shape(name, tuple(x.shape), comm.nranks))
    result = staged.reserve(out, "out") if has_result else None
    return StagedOperands(source, result, bias_copy, staged)


def stage_all_to_all_v(comm: Ranks, x: Any, rows: int, out: Any) -> StagedOperands:
    """Copy the operands of an all-to-all with counts, of whose result this rank gets `rows` rows."""
    staged = Staged(comm)
    source = staged.upload(x, "x")
    target = allocate_like(x, (rows, *source.shape[1:])) if out is None else out
    return StagedOperands(source, staged.reserve(target, "out"), None, staged)
