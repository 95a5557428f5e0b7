# SPDX-License-Identifier: MIT
"""nccl4py's exceptions, as kinds of rocpy's."""

from __future__ import annotations

import functools
import operator
import re
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from rocpy.compat._errors import UnsupportedAttributeError
from rocpy.errors import (
    ClosedError,
    InvalidOperandError,
    InvalidProblemError,
    RcclError,
    RocpyError,
    UnsupportedError,
)
from rocpy.rccl import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NCCLError = RcclError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class NcclInvalid(RocpyError, ValueError):  # noqa: N818  (nccl4py's name)
    """An argument is invalid, or the communicator can no longer be used.

    Examples
    --------
    >>> from rocpy.compat import nccl
    >>> try:
    ...     nccl.Communicator().get_last_error()
    ... except nccl.NcclInvalid as error:
    ...     error.msg
    'this is the null communicator'
    """

    @property
    def msg(self) -> str:
        """What is wrong."""
        return str(self)


class MissingPackageError(RocpyError, ModuleNotFoundError):
    """An optional package is not installed; ``name`` says which."""

    def __init__(self, name: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {name}, which is not installed")
        self.name = name
        self._purpose = purpose

    def __reduce__(self) -> tuple[type[MissingPackageError], tuple[str, str]]:
        return type(self), (str(self.name), self._purpose)


#: What RCCL has nothing for, and why.
DEVICE_API = "RCCL 2.30 has no device API whose communicators, barriers and teams Python could create"
MULTIMEM = "multimem is NVLink SHARP's: no AMD GPU has it"
CFT = "Compute Fabric Transport is NVIDIA's, from NCCL 2.31 on; RCCL has none"
GIN = "RCCL 2.30 has no GPU-initiated networking that Python could set up"
PER_CALL = "RCCL takes settings for single calls from 2.31 on, rocpy's binding is for 2.30; pass them in NCCLConfig"


def unsupported(name: str, reason: str) -> UnsupportedError:
    """Return the error of something that is called or made."""
    return UnsupportedError(f"{name}: {reason}", library="rccl")


def unsupported_attribute(name: str, reason: str) -> UnsupportedAttributeError:
    """Return the error of something that is read."""
    return UnsupportedAttributeError(f"{name}: {reason}", library="rccl")


def whole_number(name: str, value: object, expected: str) -> int:
    """Return an integer of any kind, numpy's too; others are refused by name."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise NcclInvalid(f"{name}: got {value!r}, expected {expected}") from None


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a message with other words for what rocpy's calls have."""
    for own, name in names.items():
        text = re.sub(rf"(?<!\w){re.escape(own)}(?!\w)", name, text)
    return text


@contextmanager
def translation(names: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Have a block raise `NcclInvalid` for what nccl4py checks itself.

    Parameters
    ----------
    names
        What nccl4py calls the words of rocpy's messages.
    """
    try:
        yield
    except (InvalidOperandError, InvalidProblemError, InvalidArgumentError, ClosedError) as error:
        raise NcclInvalid(_renamed(str(error), names)) from error


def translated(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Have a function raise `NcclInvalid` for what nccl4py checks itself."""
    return translated_as()(function)


def translated_as(**names: str) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Return a decorator that does so, with nccl4py's names of the operands in messages.

    Examples
    --------
    >>> from rocpy.compat.nccl._errors import translated_as
    >>> from rocpy.errors import InvalidOperandError
    >>> @translated_as(x="sendbuf", out="recvbuf")
    ... def send():
    ...     raise InvalidOperandError("out: overlaps x")
    >>> try:
    ...     send()
    ... except ValueError as error:
    ...     print(error)
    recvbuf: overlaps sendbuf
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        @functools.wraps(function)
        def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            with translation(names):
                return function(*args, **kwargs)

        return call

    return decorate
