# SPDX-License-Identifier: MIT
"""What was probably meant by a name that there is not: the nearest of those there are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from rocpy._messages.distribution import install_command

__all__ = ["did_you_mean", "nearest", "require", "tell_of_keyword", "with_suggestions"]

_Callable = TypeVar("_Callable", bound=Callable[..., Any])

# Names of other libraries for what rocpy calls otherwise, and that are not like rocpy's.
_OTHER_NAMES = {
    "activation": "epilogue",
    "bf16": "bfloat16",
    "double": "float64",
    "dim": "axis",
    "float": "float32",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "half": "float16",
    "iterations": "budget_ms",
    "op": "epilogue",
    "quantization_scales": "scale_a",
    "swish": "silu",
}


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")


def nearest(word: object, choices: Iterable[str]) -> str:
    """Return the choice that is most like a word, whatever its case; empty where none is.

    Parameters
    ----------
    word
        What was written; nothing is like what is no string.
    choices
        What could have been written.

    Examples
    --------
    >>> nearest("GELU-bais", ["gelu", "gelu_bias", "relu"])
    'gelu_bias'
    """
    import difflib  # only calls that fail need it

    if not isinstance(word, str):
        return ""
    written = _plain(word)
    known = {_plain(choice): choice for choice in choices}
    other = _OTHER_NAMES.get(written, "")
    if written not in known and other in known:
        return other
    near = difflib.get_close_matches(written, list(known), n=1)
    return known[near[0]] if near else ""


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'gelu'?"`` for the nearest choice, empty where none is near."""
    near = nearest(word, choices)
    return f"; did you mean {near!r}?" if near else ""


def tell_of_keyword(function: Callable[..., Any], error: BaseException) -> None:
    """Add what was probably meant to the error of a call with a keyword that the function does not take.

    Parameters
    ----------
    function
        Function or class that was called.
    error
        What the call raised; one of another kind stays as it is.
    """
    import inspect
    import re

    text = str(error)
    match = re.search(r"got an unexpected keyword argument '(\w+)'$", text)
    if match is None:
        return
    parameters = inspect.signature(function).parameters
    names = [
        name
        for name, one in parameters.items()
        if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD) and name != "self"
    ]
    # A keyword that this function takes was refused by one below it, which said so already.
    if match[1] in names or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    near = nearest(match[1], names)
    more = f". Did you mean {near!r}?" if near else f"; it takes {', '.join(names) or 'none'}"
    error.args = (f"{function.__qualname__}() {match[0]}{more}",)


def with_suggestions(function: _Callable) -> _Callable:
    """Return a function of Python that tells which keyword was probably meant, where Python itself does not."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            if keywords:
                tell_of_keyword(function, error)
            raise

    return cast("_Callable", call)


def require(package: str) -> None:
    """Import the framework that a part of rocpy stands on, or say how to install it.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed.
    """
    import importlib

    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"rocpy.{package}: {package} is not installed ({error}): {install_command(package)}",
            name=package,
        ) from None
