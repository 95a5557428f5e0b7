# SPDX-License-Identifier: MIT
"""What was probably meant by a name that there is not: the nearest of those there are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, cast

from rocpy._messages.distribution import install_command

__all__ = [
    "check_keywords",
    "did_you_mean",
    "keywords_of",
    "missing_attribute",
    "nearest",
    "require",
    "tell_of_arguments",
    "tell_of_keyword",
    "with_suggestions",
]

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
        What was written; nothing is like what is no string, or has no letter.
    choices
        What could have been written.

    Examples
    --------
    >>> nearest("GELU-bais", ["gelu", "gelu_bias", "relu"])
    'gelu_bias'
    """
    import difflib  # only calls that fail need it

    if not isinstance(word, str) or not any(map(str.isalpha, word)):
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


def missing_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return the error of a module's ``__getattr__``, with the public name that was probably meant."""
    near = "" if name.startswith("_") else did_you_mean(name, names)
    # With its name the error is complete: Python adds no suggestion of its own.
    return AttributeError(f"module {module!r} has no attribute {name!r}{near}", name=name)


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """Return the parameters of a function or class that a call can name."""
    import inspect

    parameters = inspect.signature(function).parameters
    return [
        name
        for name, one in parameters.items()
        if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD) and name != "self"
    ]


def check_keywords(function: str, keywords: Iterable[str], names: Collection[str]) -> None:
    """Raise the TypeError of a function that passes its keywords on, for those that it does not take.

    Parameters
    ----------
    function
        The function's name.
    keywords
        The keywords of the call.
    names
        Those that it takes.
    """
    for keyword in keywords:
        if keyword not in names:
            raise TypeError(_unexpected(function, keyword, names))


def _unexpected(function: str, keyword: str, names: Collection[str], passed: Collection[str] = ()) -> str:
    # One that the call has already is not what was meant.
    near = nearest(keyword, [name for name in names if name not in passed])
    more = f". Did you mean {near!r}?" if near else f"; it takes {', '.join(names) or 'none'}"
    return f"{function}() got an unexpected keyword argument '{keyword}'{more}"


def tell_of_keyword(function: Callable[..., Any], error: BaseException, passed: Collection[str] = ()) -> None:
    """Add what was probably meant to the error of a call with a keyword that the function does not take.

    Parameters
    ----------
    function
        Function or class that was called.
    error
        What the call raised; one of another kind stays as it is.
    passed
        The keywords that it was called with.
    """
    import inspect
    import re

    text = str(error)
    match = re.search(r"got an unexpected keyword argument '(\w+)'$", text)
    if match is None:
        return
    # A keyword that this function takes was refused by one below it, which said so already.
    names = keywords_of(function)
    parameters = inspect.signature(function).parameters.values()
    if match[1] in names or any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    error.args = (_unexpected(function.__qualname__, match[1], names, passed),)


def tell_of_arguments(
    function: Callable[..., Any], error: BaseException, count: int = 0, names: tuple[str, ...] | None = None
) -> None:
    """Have the error of a call of a compiled function say what was probably meant, or which arguments are missing.

    Parameters
    ----------
    function
        Function or class that was called.
    error
        What the call raised; one of another kind stays as it is.
    count
        Of its positional arguments: those of a method begin with the object, as its parameters do.
    names
        The keywords that it was called with.
    """
    import inspect
    import re

    own = "__c?init__" if isinstance(function, type) else re.escape(getattr(function, "__name__", ""))
    match = re.fullmatch(rf"{own}(\(\) (?:takes .* given\)|needs an argument))", str(error))
    if match is None:
        tell_of_keyword(function, error, names or ())
        return
    others = list(inspect.signature(function).parameters.values())[count:]
    missing = [one for one in others if one.kind <= one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    named = [repr(one.name) for one in missing if one.kind is one.POSITIONAL_ONLY and one.name in (names or ())]
    absent = [repr(one.name) for one in missing if one.name not in (names or ())]
    shown = function.__qualname__
    if absent:
        several = "s" if len(absent) > 1 else ""
        error.args = (f"{shown}() missing {len(absent)} required positional argument{several}: {' and '.join(absent)}",)
    elif named:
        takes = f"takes {' and '.join(named)} by position only"
        error.args = (f"{shown}() {takes}: pass {'them' if len(named) > 1 else 'it'} without a name",)
    else:
        error.args = (f"{shown}{match[1]}",)


def with_suggestions(function: _Callable) -> _Callable:
    """Return a function of Python that tells which keyword was probably meant, where Python itself does not."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            if keywords:
                tell_of_keyword(function, error, keywords)
            raise

    return cast("_Callable", call)


def require(package: str, least: str) -> None:
    """Import the framework that a part of rocpy stands on, or say how to install it.

    Parameters
    ----------
    package
        Its name.
    least
        Oldest version that works, as ``"2.10"``.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed.
    ImportError
        If it is an older version.
    """
    import importlib
    import re

    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"rocpy.{package}: {package} is not installed ({error}): {install_command(package)}",
            name=package,
        ) from None
    seen, wanted = (tuple(map(int, re.findall(r"\d+", one)[:3])) for one in (module.__version__, least))
    if seen < wanted:
        raise ImportError(
            f"rocpy.{package}: {package} is version {module.__version__}, and {least} or newer is needed: "
            f"{install_command(package)}",
            name=package,
        )
