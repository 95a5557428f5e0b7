# SPDX-License-Identifier: MIT
"""torch tensors in RCCL's memory, as in nccl4py; torch is imported when the first one is created."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from rocpy._signatures import public_names
from rocpy.compat.nccl._enums import NcclDataType
from rocpy.compat.nccl._errors import MissingPackageError, NcclInvalid, translated
from rocpy.compat.nccl._functions import mem_alloc
from rocpy.compat.nccl._operands import row_of

if TYPE_CHECKING:
    import torch

__all__ = ["empty", "resolve_tensor"]

__dir__ = public_names(globals())


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingPackageError("torch", "rocpy.compat.nccl.torch") from None
    return torch


def _index(device: torch.device | int | str | None) -> int | None:
    """Return the number of a device; ``None`` for the thread's current one."""
    if device is None or isinstance(device, int):
        return device
    try:
        requested = _torch().device(device)
    except (RuntimeError, TypeError) as error:
        raise NcclInvalid(f"device: got {device!r}: {error}") from error
    if requested.type not in ("cuda", "cpu"):
        raise NcclInvalid(f"device: got {requested}, expected a GPU ('cuda'), or the CPU on the host platform")
    return None if requested.index is None else int(requested.index)


@translated
def empty(
    *size: int | Sequence[int],
    dtype: torch.dtype | None = None,
    device: torch.device | int | str | None = None,
    morder: Literal["C", "F"] = "C",
) -> torch.Tensor:
    """Create a tensor in RCCL's memory (ncclMemAlloc), for `register_buffer` or `register_window`.

    Parameters
    ----------
    *size
        Its shape, as numbers or as one sequence.
    dtype
        Dtype; torch's default dtype by default.
    device
        Device of the memory; the thread's current device by default.
    morder
        ``"C"``, or ``"F"``, by whose strides the first axis is contiguous.

    Returns
    -------
    torch.Tensor
        Uninitialised; the memory is freed with the last tensor that uses it. On the host platform it is CPU memory.

    Raises
    ------
    NcclInvalid
        The shape, dtype, device or order is not supported.
    MissingPackageError
        torch is not installed.

    Examples
    --------
    >>> import pytest; torch = pytest.importorskip("torch")
    >>> from rocpy.compat import nccl
    >>> nccl.torch.empty(2, 3, dtype=torch.float32).shape
    torch.Size([2, 3])
    """
    torch = _torch()
    if morder not in ("C", "F"):
        raise NcclInvalid(f"morder: got {morder!r}, expected 'C' or 'F'")
    single = size[0] if len(size) == 1 else None
    requested: Any = single if isinstance(single, Sequence) else size
    chosen = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(chosen, torch.dtype):
        raise NcclInvalid(f"dtype: got {chosen!r}, expected a dtype of torch's")
    if isinstance(requested, str) or not all(isinstance(extent, int) and extent >= 0 for extent in requested):
        raise NcclInvalid(f"size: got {requested}, expected extents of 0 or more")
    shape = tuple(requested)
    tensor = torch.from_dlpack(mem_alloc(math.prod(shape) * chosen.itemsize, _index(device))).view(chosen)
    if morder == "F":
        return tensor.view(shape[::-1]).permute(*reversed(range(len(shape))))
    return tensor.view(shape)


@translated
def resolve_tensor(tensor: torch.Tensor) -> tuple[int, int, NcclDataType, int]:
    """Return how a tensor is described to RCCL: address, number of elements, type, device.

    Raises
    ------
    NcclInvalid
        It is not a tensor, is not contiguous, or RCCL has no such type.
    MissingPackageError
        torch is not installed.
    """
    if not isinstance(tensor, _torch().Tensor):
        raise NcclInvalid(f"tensor: got {type(tensor).__name__}, expected a torch.Tensor")
    row = row_of(tensor, "tensor")
    return row.address, row.count, row.dtype, row.device_id
