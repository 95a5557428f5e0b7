# SPDX-License-Identifier: MIT
"""Types of the arguments that rocpy's functions accept: arrays, streams and dtypes of any framework."""

from __future__ import annotations

import datetime as dt
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from rocpy._signatures import public_names
from rocpy.dtypes import DType

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    _Row: TypeAlias = array[Any]
else:
    CapsuleType = type(dt.datetime_CAPI)  # Python has a name for it from 3.13 on
    _Row = array  # takes a parameter from 3.12 on

__all__ = [
    "ArrayDType",
    "ArrayDTypeName",
    "ArrayLike",
    "ComputeName",
    "DTypeLike",
    "DTypeName",
    "FrameworkArray",
    "HostMemory",
    "ResultDType",
    "StreamLike",
    "SupportsArrayInterface",
    "SupportsCudaArrayInterface",
    "SupportsCudaStream",
    "SupportsDLPack",
    "SupportsDetach",
    "SupportsHandle",
    "SupportsInt",
    "TorchDType",
]

_Detached_co = TypeVar("_Detached_co", covariant=True)
__dir__ = public_names(globals())


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array that exports itself through DLPack: torch's, jax's, CuPy's, numpy's.

    It also has ``__dlpack_device__``, and ``__dlpack__`` takes a stream; the type stubs of jax declare neither.
    """

    def __dlpack__(self) -> Any:
        """Return a capsule with the array's memory."""


@runtime_checkable
class SupportsArrayInterface(Protocol):
    """An array in CPU memory with numpy's array interface."""

    @property
    def __array_interface__(self) -> Mapping[str, Any]:
        """Pointer, shape, strides and type."""


@runtime_checkable
class SupportsCudaArrayInterface(Protocol):
    """An array in device memory with the CUDA array interface, which ROCm's frameworks use too."""

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """Pointer, shape, strides, type and stream."""


FrameworkArray: TypeAlias = SupportsDLPack | SupportsArrayInterface | SupportsCudaArrayInterface
"""An array of any framework."""

HostMemory: TypeAlias = memoryview | _Row | CapsuleType
"""Memory of Python's without a framework: a view of a buffer, an `array.array`, or a capsule of DLPack."""

ArrayLike: TypeAlias = FrameworkArray | HostMemory
"""An operand. The result is of a framework array's framework, and of numpy's for a `HostMemory`."""


@runtime_checkable
class SupportsDetach(SupportsDLPack, Protocol[_Detached_co]):
    """An array that autograd may record: torch's.

    A result has the type that ``detach`` returns: for a ``torch.nn.Parameter``, ``torch.Tensor``.
    """

    def detach(self) -> _Detached_co:
        """Return the array without its history."""


@runtime_checkable
class SupportsCudaStream(Protocol):
    """A stream with the ``__cuda_stream__`` protocol: rocpy's own, and those of cuda.core."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the stream's handle."""


@runtime_checkable
class SupportsHandle(Protocol):
    """A stream that has its handle as ``cuda_stream`` (torch)."""

    @property
    def cuda_stream(self) -> int:
        """The handle."""


@runtime_checkable
class SupportsInt(Protocol):
    """A stream whose ``int()`` is its handle: hip-python's pointers, and numbers."""

    def __int__(self) -> int:
        """Return the handle."""


StreamLike: TypeAlias = SupportsCudaStream | SupportsHandle | SupportsInt
"""A stream of rocpy, torch, CuPy or hip-python, or a handle as a number."""

DTypeName: TypeAlias = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int8", "int32", "complex64", "complex128",
]  # fmt: skip
"""The names of rocpy's dtypes."""

ArrayDTypeName: TypeAlias = Literal[
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "complex64", "complex128",
]  # fmt: skip
"""The names of the element types of a Buffer, those that products do not take among them."""


class TorchDType(Protocol):
    """A dtype of torch."""

    @property
    def is_floating_point(self) -> bool:
        """Whether it is a type of real floating-point numbers."""


DTypeLike: TypeAlias = DType | str | type | Any
"""A dtype of rocpy, its name, or a dtype of numpy, ml_dtypes or torch."""

ResultDType: TypeAlias = DType | DTypeName | np.dtype[Any] | type[Any] | TorchDType
"""The dtype of a product's operand or result, `DTypeLike` with the names spelt out, so that a wrong one is reported."""

ArrayDType: TypeAlias = DType | ArrayDTypeName | np.dtype[Any] | type[Any] | TorchDType
"""The dtype of a Buffer's elements, with the names spelt out."""

ComputeName: TypeAlias = Literal["float32", "tf32", "float64", "int32"]
"""The arithmetic inside a product."""
