# SPDX-License-Identifier: MIT
"""Names for what rocpy's functions take: arrays, streams and dtypes of any framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocpy.dtypes import DType

__all__ = [
    "ArrayLike",
    "DTypeLike",
    "StreamLike",
    "SupportsArrayInterface",
    "SupportsCudaArrayInterface",
    "SupportsCudaStream",
    "SupportsDLPack",
    "SupportsHandle",
    "SupportsInt",
]


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array that exports itself through DLPack: torch's, jax's, CuPy's, numpy's."""

    def __dlpack__(self, *, stream: Any = ...) -> Any:
        """Return a capsule with the array's memory, ready for work on `stream`."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and the device's number."""


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


ArrayLike: TypeAlias = SupportsDLPack | SupportsArrayInterface | SupportsCudaArrayInterface
"""An operand: an array of any framework. The result is of the same framework."""


@runtime_checkable
class SupportsCudaStream(Protocol):
    """A stream that names itself by the ``__cuda_stream__`` protocol: rocpy's own and those of cuda.core's kind."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the stream's handle."""


@runtime_checkable
class SupportsHandle(Protocol):
    """A stream that keeps its handle as ``cuda_stream`` (torch)."""

    @property
    def cuda_stream(self) -> int:
        """The handle."""


@runtime_checkable
class SupportsInt(Protocol):
    """A stream whose ``int()`` is its handle: hip-python's pointers, and numbers."""

    def __int__(self) -> int:
        """Return the handle."""


StreamLike: TypeAlias = SupportsCudaStream | SupportsHandle | SupportsInt
"""A stream: rocpy's, torch's, CuPy's, hip-python's, or a handle as a number."""

DTypeLike: TypeAlias = "DType | str | type | Any"
"""A dtype: rocpy's, its name, numpy's, ml_dtypes', torch's."""
