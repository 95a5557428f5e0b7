# SPDX-License-Identifier: MIT
"""Arrays of the packages that nvmath-python takes (numpy, cupy, torch), by the few operations that the rules need."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._producers.torch_refusals import refuse_layout
from rocpy.compat.nvmath._errors import PackageError
from rocpy.errors import InvalidOperandError, InvalidProblemError

PACKAGES = ("numpy", "cupy", "torch")


def package_of(array: Any, name: str) -> str:
    """Return the package of an array's class; others than nvmath's are refused."""
    for kind in type(array).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in PACKAGES and hasattr(type(array), "shape"):
            if package == "torch":
                refuse_layout(array, name)
            return package
    package = type(array).__module__.partition(".")[0]
    raise PackageError(
        f"{name}: got {package}.{type(array).__name__}; nvmath takes arrays of {', '.join(PACKAGES)}; rocpy.matmul "
        "takes any DLPack array"
    )


def same_package(package: str, array: Any, name: str) -> None:
    """Refuse an array of another package than that of a."""
    other = package_of(array, name)
    if other != package:
        raise PackageError(f"{name} is of {other} and a of {package}; all operands must be of one package")


def dtype_name(array: Any, name: str) -> str:
    """Return rocpy's name of an array's dtype; others are refused, by ValueError as in nvmath."""
    try:
        return dtypes.lookup(array.dtype).name
    except InvalidOperandError:
        raise InvalidProblemError(
            f"{name}: its dtype {array.dtype} is not supported; cast it to one of {', '.join(dtypes.DTYPES)}"
        ) from None


def strides_of(array: Any) -> tuple[int, ...]:
    """Return an array's strides in elements."""
    if hasattr(array, "stride"):
        return tuple(array.stride())
    return tuple(stride // array.itemsize for stride in array.strides)


def device_of(array: Any) -> str:
    """Return where an array lies, for comparing and for messages."""
    return str(getattr(array, "device", "cpu"))


def is_column_major(array: Any) -> bool:
    """Whether the last but one axis is the contiguous one; where both could be, it is."""
    strides = strides_of(array)
    rows, columns = array.shape[-2:]
    if strides[-2] == 1:
        return True
    return strides[-1] != 1 and rows == 1 and columns != 1


def is_column_ordered(array: Any) -> bool:
    """Whether a matrix of the plain product lies in columns: each ends before the next begins, by the strides alone."""
    (rows, columns), (down, across) = array.shape[-2:], strides_of(array)[-2:]
    if 1 not in (down, across) and 0 not in (down, across):
        # The stride of an axis of extent 1 says nothing.
        down, across = (0 if rows == 1 else down), (0 if columns == 1 else across)
    return bool(rows * down <= across)


def column(c: Any) -> Any:
    """Return a c of one axis as a matrix of one column."""
    return c[:, None] if c is not None and len(c.shape) == 1 else c


def transposed(array: Any) -> Any:
    """Return the view with the last two axes swapped, ``None`` for none."""
    return None if array is None else array.swapaxes(-1, -2)


def _module(array: Any) -> Any:
    return sys.modules[package_of(array, "array")]


def expand(array: Any, shape: Sequence[int]) -> Any:
    """Return the view of an array broadcast to a shape."""
    return _module(array).broadcast_to(array, tuple(shape))


def conjugate(array: Any) -> Any:
    """Return the complex conjugate: torch's is a lazy view."""
    return array.conj()


def is_lazily_conjugated(array: Any) -> bool:
    """Whether torch has only marked the tensor as conjugated."""
    return hasattr(array, "is_conj") and bool(array.is_conj())


def round_up(value: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-value // step) * step


def mask_rows(m: int) -> int:
    """Return the rows of a ReLU bit mask: a bit for each of M, bytes in steps of 16."""
    return round_up(-(-m // 8), 16)


def padded(array: Any, extent: int) -> Any:
    """Return an array whose last axis is extended by zeros."""
    short = extent - array.shape[-1]
    if hasattr(array, "new_zeros"):
        return sys.modules["torch"].cat([array, array.new_zeros((*array.shape[:-1], short))], -1)
    return _module(array).pad(array, [(0, 0)] * (array.ndim - 1) + [(0, short)])


def pack_bits(array: Any) -> Any:
    """Return a mask of bytes, one bit for each positive element along the last axis, in steps of 16 bytes."""
    positive = array > 0
    if not hasattr(array, "new_zeros"):
        packed = _module(array).packbits(positive, axis=-1, bitorder="little")
    else:
        bits = padded(positive.to(dtype=_torch("uint8")), round_up(array.shape[-1], 8))
        bits = bits.unflatten(-1, (-1, 8))
        weights = bits.new_tensor([1 << bit for bit in range(8)])
        packed = (bits * weights).sum(-1, dtype=bits.dtype)
    return padded(packed, mask_rows(array.shape[-1]))


def unpack_bits(mask: Any, m: int, dtype: Any) -> Any:
    """Return the ones and zeros of a bit mask, M of them along the last axis."""
    if not hasattr(mask, "new_zeros"):
        module = _module(mask)
        bits = module.unpackbits(module.ascontiguousarray(mask), axis=-1, bitorder="little")
        return bits[..., :m].astype(dtype)
    shifts = mask.new_tensor(range(8))
    bits = (mask.unsqueeze(-1) >> shifts) & 1
    return bits.flatten(-2)[..., :m].to(dtype)


def _torch(name: str) -> Any:
    return getattr(sys.modules["torch"], name)


def scalar_array(value: Any, like: Any) -> Any:
    """Return a number as a float32 array of one element beside another array."""
    if hasattr(like, "new_zeros"):
        return like.new_tensor([value], dtype=_torch("float32"))
    return _module(like).asarray([value], np.float32)


def positions(array: Any) -> tuple[Any, Any]:
    """Return an array's module, and the numbers of its last axis' elements beside it."""
    module, extent = _module(array), array.shape[-1]
    if hasattr(array, "new_zeros"):
        return module, module.arange(extent, device=array.device)
    return module, module.arange(extent)


def diagonal(vector: Any, backward: bool) -> Any:
    """Return the diagonal matrix of a vector that is read forward or backward."""
    module = _module(vector)
    return module.diag(module.flip(vector, (0,)) if backward else vector)


def device_index(array: Any) -> int | None:
    """Return the number of the device that an array lies on, ``None`` in CPU memory."""
    device = getattr(array, "device", None)
    if getattr(device, "type", "cuda") == "cpu" or isinstance(device, (str, type(None))):
        return None
    index = device.index if hasattr(device, "index") else device.id
    return 0 if index is None else int(index)
