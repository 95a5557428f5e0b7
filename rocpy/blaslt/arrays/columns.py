# SPDX-License-Identifier: MIT
"""Memory of the device whose matrices lie in columns, which a Buffer's do not."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rocpy import dtypes
from rocpy.blaslt.model.shapes import dense_strides
from rocpy.runtime.memory import Buffer

_PINNED = 11  # kDLROCMHost

__all__ = ["Columns", "buffer_like"]


def buffer_like(array: Buffer, shape: tuple[int, ...]) -> Buffer:
    """Return a new Buffer of another's type, on its device, pinned if that is: a product's operands lie together."""
    location: Literal["host", "device"] = "host" if array.__dlpack_device__()[0] == _PINNED else "device"
    return Buffer(shape, array.dtype, device=array.device_index, location=location)


class Columns:
    """A copy of a Buffer, broadcast to a shape, whose matrices lie in columns.

    It has no operations and no framework: what reads ``__cuda_array_interface__`` can take it as an operand.
    """

    def __init__(self, array: Buffer, shape: tuple[int, ...]) -> None:
        rows = np.broadcast_to(array.to_numpy(), shape).swapaxes(-1, -2)
        self._buffer = buffer_like(array, rows.shape)
        self._buffer.copy_from(np.ascontiguousarray(rows))
        self.shape, self.dtype = shape, array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where the elements lie, in CUDA's version 3 of the array interface."""
        element = dtypes.lookup(self.dtype).numpy
        *batch, column, row = dense_strides(self._buffer.shape)
        # By name: ml_dtypes' types have no code in the interface.
        return {
            "version": 3,
            "data": (self._buffer.handle, False),
            "shape": self.shape,
            "strides": tuple(step * element.itemsize for step in (*batch, row, column)),
            "typestr": element.name,
        }

    def to_numpy(self) -> np.ndarray[Any, Any]:
        """Return the elements as numpy's."""
        return self._buffer.to_numpy().swapaxes(-1, -2)
