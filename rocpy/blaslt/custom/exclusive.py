# SPDX-License-Identifier: MIT
"""Methods of a planned product that one thread at a time may be in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar, cast

from rocpy.blaslt.custom.execution import CustomExecution

__all__ = ["exclusive"]

S = TypeVar("S", bound=CustomExecution)
P = ParamSpec("P")
T = TypeVar("T")


def exclusive(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make a method refuse to run while another thread is in one."""

    @functools.wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.enter()
        try:
            return method(self, *args, **kwargs)
        finally:
            self.leave()

    return cast("Callable[Concatenate[S, P], T]", run)
