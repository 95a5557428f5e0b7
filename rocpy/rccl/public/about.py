# SPDX-License-Identifier: MIT
"""What RCCL tells and gives without a communicator: its version, its words, its parameters, its memory."""

from __future__ import annotations

from collections.abc import Sequence

from rocpy.rccl.engine import library
from rocpy.rccl.handles import memory
from rocpy.rccl.model.arguments import integer_in
from rocpy.runtime.device import Device
from rocpy.runtime.memory import Buffer
from rocpy.typing import ArrayDType

__all__ = ["empty", "error_string", "last_error", "parameters", "version"]


def version() -> int:
    """Return the version of the platform's RCCL, major * 10000 + minor * 100 + patch (ncclGetVersion).

    Examples
    --------
    >>> from rocpy import rccl
    >>> rccl.version() >= 21803
    True
    """
    return library.library_version()


def error_string(code: int) -> str:
    """Return RCCL's description of a result code (ncclGetErrorString).

    Parameters
    ----------
    code
        An ncclResult_t.

    Examples
    --------
    >>> from rocpy import rccl
    >>> rccl.error_string(0)
    'no error'
    """
    return library.error_string(integer_in("code", code, -(2**31), 2**31 - 1, "an ncclResult_t"))


def last_error() -> str:
    """Return RCCL's last error message (ncclGetLastError).

    The host platform keeps one message per thread. AMD's RCCL keeps one per process: if the process has several
    communicators, the text says that it may be about another one.

    Examples
    --------
    >>> from rocpy import rccl
    >>> isinstance(rccl.last_error(), str)
    True
    """
    return library.last_error()


def parameters() -> dict[str, str]:
    """Return RCCL's parameters, which NCCL_* variables set, and their values (ncclParamGetParameter).

    The host platform's RCCL has none.

    Raises
    ------
    UnsupportedError
        The platform's RCCL is older than 2.30.

    Examples
    --------
    >>> from rocpy import rccl
    >>> isinstance(rccl.parameters(), dict)
    True
    """
    return library.parameters()


def empty(shape: int | Sequence[int], dtype: ArrayDType = "float32", *, device: Device | int | None = None) -> Buffer:
    """Allocate an array in RCCL's memory (ncclMemAlloc), for `Communicator.window` or `Communicator.register_buffer`.

    Parameters
    ----------
    shape, dtype
        Of the array.
    device
        Device of the memory; the thread's current device by default.

    Returns
    -------
    Buffer
        Uninitialised memory, as from `Communicator.empty` with ``window=True``.

    Examples
    --------
    >>> from rocpy import rccl
    >>> rccl.empty((2, 3), "float16").nbytes
    12
    """
    return memory.empty(shape, dtype, device)
