# SPDX-License-Identifier: MIT
"""The dtypes that rocpy supports, one row each, with their names in each library and framework."""

from __future__ import annotations

import functools
import sys
from dataclasses import astuple, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from rocpy._integers import integer_of
from rocpy._messages.suggestions import did_you_mean
from rocpy._signatures import public_names
from rocpy.errors import InvalidOperandError

__all__ = ["DTYPES", "DType", "from_dlpack", "from_hip", "lookup"]

# DLPack's type codes for which numpy has the scalar types: signed, unsigned, floating, complex.
_NUMPY_CODES = (0, 1, 2, 5)


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes
    ----------
    name
        Its name: numpy's or ml_dtypes' own.
    bits
        Bits of one element. Elements of fewer than eight are packed in rocpy, one to a byte in ml_dtypes.
    kind
        ``"float"``, ``"int"``, ``"complex"`` or ``"scale"`` (powers of two that scale blocks).
    module
        ``"numpy"`` or ``"ml_dtypes"``: the package that defines the scalar type.
    dlpack
        DLPack's type code and bits.
    hip
        The number of its ``hipDataType``, as of hipBLASLt 1.4.1.
    torch
        torch's name for it; empty where torch has none.

    Examples
    --------
    >>> from rocpy import dtypes
    >>> dtypes.lookup("bfloat16").bits
    16
    """

    name: str
    bits: int
    kind: str
    module: str
    dlpack: tuple[int, int]
    hip: int
    torch: str

    @property
    def itemsize(self) -> int:
        """Size of one unpacked element, in bytes."""
        return (self.bits + 7) // 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype, ml_dtypes' for the types that numpy lacks."""
        dtype: np.dtype[Any] = _numpy_dtype(self)
        return dtype

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"rocpy.dtypes.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles of a row are the row itself.
        return _same_row, astuple(self)


def _same_row(*fields: Any) -> DType:
    dtype = DType(*fields)
    return next((row for row in DTYPES.values() if row == dtype), dtype)


def _row(name: str, bits: int, kind: str, code: int, hip: int, torch: str) -> DType:
    return DType(name, bits, kind, "numpy" if code in _NUMPY_CODES else "ml_dtypes", (code, bits), hip, torch)


# begin: dtypes, which `make tables` writes from csrc/core/arrays/dtypes.def
float64 = _row("float64", 64, "float", 2, 1, "float64")
float32 = _row("float32", 32, "float", 2, 0, "float32")
float16 = _row("float16", 16, "float", 2, 2, "float16")
bfloat16 = _row("bfloat16", 16, "float", 4, 14, "bfloat16")
float8_e4m3fn = _row("float8_e4m3fn", 8, "float", 10, 28, "float8_e4m3fn")
float8_e5m2 = _row("float8_e5m2", 8, "float", 12, 29, "float8_e5m2")
float8_e4m3fnuz = _row("float8_e4m3fnuz", 8, "float", 11, 1000, "float8_e4m3fnuz")
float8_e5m2fnuz = _row("float8_e5m2fnuz", 8, "float", 13, 1001, "float8_e5m2fnuz")
float8_e8m0fnu = _row("float8_e8m0fnu", 8, "scale", 14, 30, "float8_e8m0fnu")
float6_e2m3fn = _row("float6_e2m3fn", 6, "float", 15, 31, "")
float6_e3m2fn = _row("float6_e3m2fn", 6, "float", 16, 32, "")
float4_e2m1fn = _row("float4_e2m1fn", 4, "float", 17, 33, "float4_e2m1fn_x2")
int8 = _row("int8", 8, "int", 0, 3, "int8")
int32 = _row("int32", 32, "int", 0, 10, "int32")
complex64 = _row("complex64", 64, "complex", 5, 4, "complex64")
complex128 = _row("complex128", 128, "complex", 5, 5, "complex128")
# end of the generated rows

DTYPES = MappingProxyType({row.name: row for row in tuple(globals().values()) if isinstance(row, DType)})
"""Every dtype, by name."""

__dir__ = public_names(globals(), *DTYPES)

_BY_HIP = {row.hip: row for row in DTYPES.values()}
_BY_DLPACK = {row.dlpack: row for row in DTYPES.values()}
_BY_TORCH = {f"torch.{row.torch}": row for row in DTYPES.values() if row.torch}


@functools.cache
def _numpy_dtype(row: DType) -> np.dtype[Any]:
    scalar: type
    if row.module == "numpy":
        scalar = getattr(np, row.name)
    else:
        import ml_dtypes  # when one of its types is met: half the users never need it

        scalar = getattr(ml_dtypes, row.name)
    return np.dtype(scalar)


def _from_numpy(dtype: np.dtype[Any]) -> DType | None:
    row = DTYPES.get(dtype.name)
    if dtype.itemsize == 1:
        dtype = dtype.newbyteorder("=")  # one byte has no order, but types of ml_dtypes may be marked with one
    # The name alone does not do: structured and byte-swapped dtypes have names too.
    if row is None or not dtype.isnative or (row.module == "ml_dtypes" and "ml_dtypes" not in sys.modules):
        return None
    same: bool = dtype == row.numpy
    return row if same else None


def _as_numpy(value: Any) -> np.dtype[Any] | None:
    try:
        dtype: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError):
        return None
    return dtype


def lookup(value: Any) -> DType:
    """Return the row of a dtype of any framework.

    Parameters
    ----------
    value
        A :class:`DType`, its name, a dtype or scalar type of numpy or ml_dtypes (jax uses those), or torch's dtype.

    Returns
    -------
    DType
        The row.

    Raises
    ------
    InvalidOperandError
        If rocpy has no such dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import dtypes
    >>> dtypes.lookup(np.float32) is dtypes.lookup("float32") is dtypes.float32
    True
    """
    if isinstance(value, DType):
        if value not in _BY_HIP.values():
            raise InvalidOperandError(f"dtype {astuple(value)} is a DType that rocpy does not have")
        return DTYPES[value.name]
    row: DType | None = None
    if isinstance(value, str):
        row = DTYPES.get(value) or _BY_TORCH.get(value)
    elif type(value).__module__ == "torch":
        row = _BY_TORCH.get(str(value))
    if row is None and value is not None and type(value).__module__ != "torch":
        dtype = _as_numpy(value)
        row = None if dtype is None else _from_numpy(dtype)
    if row is None:
        raise InvalidOperandError(
            f"dtype {value!r} is not one of rocpy's: {', '.join(DTYPES)}{did_you_mean(value, DTYPES)}"
        )
    return row


def from_hip(number: int) -> DType:
    """Return the row of a ``hipDataType``.

    Parameters
    ----------
    number
        The enumerator's number.

    Returns
    -------
    DType
        The row.

    Raises
    ------
    InvalidOperandError
        If rocpy has no such dtype.

    Examples
    --------
    >>> from rocpy import dtypes
    >>> dtypes.from_hip(14)
    rocpy.dtypes.bfloat16
    """
    enumerator = integer_of(number)
    row = None if enumerator is None else _BY_HIP.get(enumerator)
    if row is None:
        raise InvalidOperandError(f"hipDataType {number!r} is not one of rocpy's dtypes")
    return row


def from_dlpack(code: int, bits: int, lanes: int = 1) -> DType:
    """Return the row of a DLPack type.

    Parameters
    ----------
    code
        DLPack's type code.
    bits
        Bits of one lane.
    lanes
        DLPack's number of lanes: 1, or 2 for the four-bit type, which torch packs in pairs.

    Returns
    -------
    DType
        The row.

    Raises
    ------
    InvalidOperandError
        If rocpy has no such dtype.

    Examples
    --------
    >>> from rocpy import dtypes
    >>> dtypes.from_dlpack(2, 16)
    rocpy.dtypes.float16
    """
    type_code, width, count = (integer_of(one) for one in (code, bits, lanes))
    row = None if type_code is None or width is None else _BY_DLPACK.get((type_code, width))
    if row is None or (count != 1 and (count, width) != (2, 4)):
        raise InvalidOperandError(
            f"DLPack type (code {code!r}, {bits!r} bits, {lanes!r} lanes) is not one of rocpy's dtypes"
        )
    return row
