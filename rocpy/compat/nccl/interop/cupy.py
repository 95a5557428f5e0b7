# SPDX-License-Identifier: MIT
"""CuPy arrays in RCCL's memory, as in nccl4py; CuPy is imported when the first one is created."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from rocpy._signatures import public_names
from rocpy.compat.nccl._enums import NcclDataType
from rocpy.compat.nccl._errors import MissingPackageError, NcclInvalid, translated
from rocpy.compat.nccl._functions import mem_alloc
from rocpy.compat.nccl._operands import row_of
from rocpy.typing import ArrayLike

__all__ = ["empty", "resolve_array"]

__dir__ = public_names(globals())


@translated
def empty(shape: int | Sequence[int], dtype: Any = float, order: Literal["C", "F"] = "C") -> Any:
    """Create a CuPy array in RCCL's memory (ncclMemAlloc), for `register_buffer` or `register_window`.

    Parameters
    ----------
    shape, dtype
        Of the array.
    order
        ``"C"``, or ``"F"``, by whose strides the first axis is contiguous.

    Returns
    -------
    cupy.ndarray
        Uninitialised, on the thread's current device; the memory is freed with the last array that uses it.

    Raises
    ------
    NcclInvalid
        The shape, dtype or order is not supported.
    MissingPackageError
        CuPy is not installed.
    """
    try:
        import cupy
    except ModuleNotFoundError:
        raise MissingPackageError("cupy", "rocpy.compat.nccl.cupy.empty") from None
    if order not in ("C", "F"):
        raise NcclInvalid(f"order: got {order!r}, expected 'C' or 'F'")
    requested: Any = shape
    extents = tuple(requested) if isinstance(requested, Sequence) else (requested,)
    if isinstance(requested, str) or not all(isinstance(extent, int) and extent >= 0 for extent in extents):
        raise NcclInvalid(f"shape: got {shape}, expected extents of 0 or more")
    try:
        chosen = np.dtype(dtype)
    except TypeError as error:
        raise NcclInvalid(f"dtype: got {dtype!r}: {error}") from None
    return cupy.from_dlpack(mem_alloc(math.prod(extents) * chosen.itemsize)).view(chosen).reshape(extents, order=order)


@translated
def resolve_array(array: ArrayLike) -> tuple[int, int, NcclDataType, int]:
    """Return how an array is described to RCCL: address, number of elements, type, device.

    Any array with DLPack or the CUDA array interface is accepted; CuPy need not be installed.

    Raises
    ------
    NcclInvalid
        It is not an array, is not contiguous, or RCCL has no such type.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat import nccl
    >>> nccl.cupy.resolve_array(np.ones((2, 3), "float32"))[1:3]
    (6, <NcclDataType.FLOAT32: 7>)
    """
    row = row_of(array, "array")
    return row.address, row.count, row.dtype, row.device_id
