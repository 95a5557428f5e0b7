# SPDX-License-Identifier: MIT
"""Context managers as decorators: a block around each call of an ordinary function, and of no other."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CoroutineType
from typing import Any, TypeVar

__all__ = ["in_blocks"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _is_late(function: object) -> bool:
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def _called(function: Any) -> Any:
    """Return the function that is called by a partial or by an object that is called like a function."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004


def _late_code(function: Any) -> object:
    """Return the code that runs after a call of a wrapper that returns the generator or coroutine of its function."""
    with contextlib.suppress(ValueError):  # a wrapper of itself
        function = _called(inspect.unwrap(_called(function)))
    return getattr(function, "__code__", None) if _is_late(function) else None


def _has_code(result: object, code: object) -> bool:
    # A context manager has its generator as `gen`.
    return any(
        getattr(one, name, None) is code
        for one in (result, getattr(result, "gen", None))
        for name in ("gi_code", "cr_code", "ag_code")
    )


def in_blocks(
    function: _Function,
    block: Callable[[], AbstractContextManager[Any]],
    error: Callable[[str], Exception],
    names: tuple[str, str],
) -> _Function:
    """Return a function each of whose calls is in a block.

    Parameters
    ----------
    function
        What was decorated.
    block
        Called before each call: the context manager.
    error
        Returns what is raised, from its message, where `function` is no function, or its body runs after the call.
    names
        The decorator, and how the block is written as a statement.
    """
    decorator, statement = names
    if not callable(function) or isinstance(function, type | staticmethod):
        raise error(
            f"{decorator}: decorates a function, not {function!r}; decorate the methods of a class one by one, and "
            "below @staticmethod and the like"
        )
    name = getattr(function, "__qualname__", None) or repr(function)
    late = (
        f"{name}: a coroutine, a generator or a context manager made of one runs after its call has returned; use "
        f"`{statement}` inside it"
    )
    if _is_late(function) or _is_late(_called(function)):
        raise error(late)
    code = _late_code(function)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with block():
            result = function(*args, **kwargs)
            if code is not None and _has_code(result, code):
                if isinstance(result, CoroutineType):
                    result.close()  # it will not be awaited
                raise error(late)
        return result

    return wrapped  # type: ignore[return-value]
