# SPDX-License-Identifier: MIT
"""nccl4py's exceptions, as kinds of rocpy's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError, RcclError, RocpyError
from rocpy.rccl import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

NCCLError = RcclError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class NcclInvalid(RocpyError, ValueError):  # noqa: N818  (nccl4py's name)
    """An argument is wrong, or the communicator is of no more use."""


def translated(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Have a function raise `NcclInvalid` for what nccl4py checks itself."""

    @functools.wraps(function)
    def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return function(*args, **kwargs)
        except (InvalidOperandError, InvalidProblemError, InvalidArgumentError, ClosedError) as error:
            raise NcclInvalid(str(error)) from error

    return call
