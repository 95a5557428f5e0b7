# SPDX-License-Identifier: MIT
"""Exceptions and warnings of rocpy, and the one table that picks the exception for a library's status."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeVar

from rocpy._signatures import public_names

__all__ = [
    "ClosedError",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "DivergentBarrierError",
    "GlobalMemoryRaceError",
    "InvalidArgumentError",
    "InvalidOperandError",
    "InvalidProblemError",
    "InvalidUsageError",
    "KernelDivisionError",
    "KernelError",
    "KernelIndexError",
    "KernelTypeError",
    "LibraryError",
    "OutOfMemoryError",
    "RcclError",
    "RcclInternalError",
    "RcclOutOfMemoryError",
    "RcclSystemError",
    "RemoteError",
    "RocpyError",
    "RocpyWarning",
    "SharedMemoryRaceError",
    "UninitializedResultError",
    "UnsupportedError",
]

__dir__ = public_names(globals())


_Error = TypeVar("_Error", bound="RocpyError")


class RocpyError(Exception):
    """Root of every exception that rocpy defines."""

    def __init__(self, *args: object) -> None:
        # As the constructors in C do, of which torch's compiler traces no call: it would show an error of its own.
        self.args = args


class _CallError(RocpyError):
    """What the exceptions for a failed library call share.

    Parameters
    ----------
    message
        What happened and what to do, for a person.
    function
        C function that failed, ``None`` if no call was made.
    library
        Library of that function, as the rows name it (``"hip"``, ``"hipblaslt"``).
    status
        Number that the function returned.
    status_name
        The library's name for that number, ``None`` if it has none.
    """

    def __init__(
        self,
        message: str = "",
        *,
        function: str | None = None,
        library: str | None = None,
        status: int | None = None,
        status_name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.function = function
        self.library = library
        self.status = status
        self.status_name = status_name


def shown_as(public: type[RocpyError]) -> Callable[[type[_Error]], type[_Error]]:
    """Return what gives an exception of the package's own the name of one of those above, as which a user catches it.

    A copy, as another process gets it, is of that class.
    """

    def reduce(self: RocpyError) -> tuple[Any, ...]:
        return public, self.args, self.__dict__

    def name(own: type[_Error]) -> type[_Error]:
        own.__name__, own.__qualname__, own.__module__ = public.__name__, public.__qualname__, public.__module__
        own.__reduce__ = reduce  # type: ignore[method-assign, assignment]
        return own

    return name


class LibraryError(_CallError, RuntimeError):
    """A platform's library failed, or none could be loaded.

    ``function``, ``library``, ``status`` and ``status_name`` describe the call that failed; they are ``None`` if no
    call was made.
    """


class OutOfMemoryError(_CallError, MemoryError):
    """The device or the host is out of memory."""


class UnsupportedError(_CallError, NotImplementedError):
    """The platform or this version of rocpy does not support the request."""


class InvalidProblemError(RocpyError, ValueError):
    """Values or shapes that do not make a valid problem."""


class InvalidOperandError(RocpyError, TypeError):
    """An operand of the wrong kind: type, device, dtype, writability, layout."""


class ClosedError(RocpyError, RuntimeError):
    """An object was used after its ``close()``."""


class RcclError(_CallError):
    """A collective or its communicator failed.

    Parameters
    ----------
    message
        What happened and what to do, for a person.
    op
        Operation that failed, ``None`` if it was none.
    seq
        Its number in the order of the communicator's operations.
    rank
        Rank that the error is about: the one that called, or the one that exited.
    **facts
        Function, library, status and its name, as other failed calls have them.
    """

    def __init__(
        self,
        message: str = "",
        *,
        op: str | None = None,
        seq: int | None = None,
        rank: int | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.op = op
        self.seq = seq
        self.rank = rank


class CollectiveTimeoutError(RcclError, TimeoutError):
    """A wait on a collective passed its deadline.

    Parameters
    ----------
    message
        What happened and what to do, for a person.
    waiting_for
        Ranks that had not arrived.
    **facts
        As for :class:`RcclError`.
    """

    def __init__(self, message: str = "", *, waiting_for: Iterable[int] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.waiting_for = tuple(waiting_for)


class CollectiveMismatchError(RcclError):
    """The ranks of a communicator do not agree on an operation, its dtype, count or root.

    Parameters
    ----------
    message
        What happened and what to do, for a person.
    signatures
        What each rank called, in the order of the ranks.
    **facts
        As for :class:`RcclError`.
    """

    def __init__(self, message: str = "", *, signatures: Iterable[str] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.signatures = tuple(signatures)


class RemoteError(RcclError):
    """Another rank failed or exited; ``rank`` is that rank."""


class InvalidUsageError(RcclError):
    """The communicator's state does not allow the call."""


class InvalidArgumentError(RcclError, ValueError):
    """The collective does not accept an argument."""


class RcclSystemError(RcclError):
    """Sockets, shared memory or a driver failed under a collective."""


class RcclOutOfMemoryError(RcclError, OutOfMemoryError):
    """A device, or the host, has no memory for a collective, its communicator, or RCCL's allocator."""


class RcclInternalError(RcclError):
    """An internal error of the collectives' library."""


class KernelTypeError(RocpyError, TypeError):
    """A kernel cannot be compiled for the types of its arguments."""


class KernelError(RocpyError, RuntimeError):
    """A kernel failed while it ran.

    Parameters
    ----------
    message
        What happened and what to do, for a person.
    kernel
        Name of the kernel.
    block, thread
        Indices (x, y, z) of the block and of the thread in it.
    filename, line
        Source line that the thread was at; ``None`` where that is not known.
    """

    def __init__(
        self,
        message: str = "",
        *,
        kernel: str | None = None,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        filename: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.kernel = kernel
        self.block = block
        self.thread = thread
        self.filename = filename
        self.line = line


class DivergentBarrierError(KernelError):
    """Some threads of a group wait at a barrier or in a collective that the others do not reach."""


class SharedMemoryRaceError(KernelError):
    """Two threads of a block access the same shared memory, at least one writes, and no barrier is between them."""


class GlobalMemoryRaceError(KernelError):
    """Two threads access the same element of an array, at least one writes, and nothing orders them."""


class KernelDivisionError(KernelError, ZeroDivisionError):
    """A kernel divides an integer by zero."""


class KernelIndexError(KernelError, IndexError):
    """An index in a kernel is outside its array."""


class UninitializedResultError(KernelError):
    """A kernel reads uninitialized shared memory or a result that is undefined in this thread."""


class RocpyWarning(RuntimeWarning):
    """A failure where no exception can be raised, such as in a destructor, or behaviour that may be unexpected."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)


# Packages whose functions run between a caller and rocpy, or between two functions of rocpy: layers, managers, caches.
_BETWEEN = frozenset({"contextlib", "functools", "jax", "numpy", "rocpy", "torch"})


def warn(message: str) -> None:
    """Warn at the innermost line that is not of rocpy: filters by module and "once for each line" are about callers.

    Parameters
    ----------
    message
        Text of the warning.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_between(frame):
        frame = frame.f_back
    namespace = frame.f_globals
    warnings.warn_explicit(
        message,
        RocpyWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=namespace.get("__name__") or "<unknown>",
        registry=namespace.setdefault("__warningregistry__", {}),
    )


def _is_between(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN


# (library, status) to class; every other status is a LibraryError, of RCCL an RcclError.
_CLASS_OF_STATUS: dict[tuple[str, int], type[_CallError]] = {
    ("hip", 2): OutOfMemoryError,  # hipErrorOutOfMemory
    ("hip", 701): OutOfMemoryError,  # hipErrorLaunchOutOfResources
    ("hip", 209): UnsupportedError,  # hipErrorNoBinaryForGpu
    ("hip", 215): UnsupportedError,  # hipErrorUnsupportedLimit
    ("hip", 217): UnsupportedError,  # hipErrorPeerAccessUnsupported
    ("hip", 801): UnsupportedError,  # hipErrorNotSupported
    ("hip", 900): UnsupportedError,  # hipErrorStreamCaptureUnsupported
    ("hipblaslt", 2): OutOfMemoryError,  # HIPBLAS_STATUS_ALLOC_FAILED
    ("hipblaslt", 7): UnsupportedError,  # HIPBLAS_STATUS_NOT_SUPPORTED
    ("hipblaslt", 8): UnsupportedError,  # HIPBLAS_STATUS_ARCH_MISMATCH
    ("hiprtc", 1): OutOfMemoryError,  # HIPRTC_ERROR_OUT_OF_MEMORY
    ("rccl", 2): RcclSystemError,  # ncclSystemError
    ("rccl", 3): RcclInternalError,  # ncclInternalError
    ("rccl", 4): InvalidArgumentError,  # ncclInvalidArgument
    ("rccl", 5): InvalidUsageError,  # ncclInvalidUsage
    ("rccl", 6): RemoteError,  # ncclRemoteError
    ("rccl", 8): CollectiveTimeoutError,  # ncclTimeout
}

# (library, status) to what its library's text does not say.
_ADVICE = {
    # hipErrorStreamCaptureImplicit
    ("hip", 906): "a blocking stream was being captured, and its capture is now invalid; capture on streams with "
    "nonblocking=True, which the null stream does not wait for",
}


def error_for_status(
    library: str, function: str, status: int, status_name: str | None = None, detail: str | None = None
) -> RocpyError:
    """Return the exception for a failed library call; raising it is the caller's part.

    Parameters
    ----------
    library
        Library as the rows name it, ``"hip"`` or ``"hipblaslt"``.
    function
        C function that failed.
    status
        Number that it returned.
    status_name
        The library's name for that number, if it has one.
    detail
        What else is known, as the library's own description of the status.

    Returns
    -------
    RocpyError
        A :class:`LibraryError`, :class:`OutOfMemoryError` or :class:`UnsupportedError` that carries the arguments.

    Examples
    --------
    >>> from rocpy.errors import error_for_status
    >>> error_for_status("hip", "hipMalloc", 2, "hipErrorOutOfMemory")
    OutOfMemoryError('hipMalloc (hip) failed: hipErrorOutOfMemory (2)')
    """
    shown = f"{status_name} ({status})" if status_name else f"status {status}"
    message = f"{function} ({library}) failed: {shown}"
    if detail:
        message += f": {detail}"
    if advice := _ADVICE.get((library, status)):
        message += f"; {advice}"
    chosen = _CLASS_OF_STATUS.get((library, status), RcclError if library == "rccl" else LibraryError)
    return chosen(message, function=function, library=library, status=status, status_name=status_name)


def error_for_missing(library: str, function: str, status: int, status_name: str | None, text: str) -> UnsupportedError:
    """Return the exception for a function that the loaded library lacks.

    Parameters
    ----------
    library
        Library as the rows name it.
    function
        C function that is missing.
    status
        The "not supported" number that stands in for it.
    status_name
        The library's name for that number.
    text
        The message, with the library's path and version.

    Returns
    -------
    UnsupportedError
        The exception, for the caller to raise.
    """
    return UnsupportedError(text, function=function, library=library, status=status, status_name=status_name)
