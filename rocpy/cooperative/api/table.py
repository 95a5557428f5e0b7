# SPDX-License-Identifier: MIT
"""The table of primitives: one record each, which its name in kernels, its code and its tests are made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SCALAR, THREAD_DATA = "scalar", "ThreadData"


@dataclass(frozen=True)
class Primitive:
    """One primitive of blocks and warps.

    Attributes
    ----------
    name
        As in ``coop.<name>``.
    function
        What kernels name; its signature is the primitive's.
    payloads
        Kinds of values that it takes: ``"scalar"``, ``"ThreadData"``.
    defined
        Where its result is defined: ``"first"``, rank 0 unless ``all=True``; ``"all"``; ``"some"``, as its page says.
    family
        Page of the guide and oracle that it belongs to.
    template
        Its C++ function template in namespace ``rocpy``, whose first template argument is the group. Its function
        arguments are the group, then a plan's parameters and, by reference, its outputs, in their order.
    choices
        The template's other arguments, in order: keys of a plan's ``choices``, known when a call is compiled.
    """

    name: str
    function: Callable[..., Any]
    payloads: tuple[str, ...]
    defined: str
    family: str
    template: str
    choices: tuple[str, ...]


PRIMITIVES: dict[str, Primitive] = {}

_PAYLOAD = "a number or a structured value of each thread, or a `ThreadData`"
# What several docstrings say, by its mark in them.
PHRASES = {
    "group": "group\n    ``coop.this_block()`` or ``coop.this_warp(width)``.",
    "warp": "group\n    ``coop.this_warp(width)``.",
    "value": f"value\n    The values of the threads: {_PAYLOAD}; the items are ordered by thread, then by index.",
    "keys": f"keys\n    The keys: {_PAYLOAD}; the items are ordered by thread, then by index.",
    "values": "values\n    The values of the keys: as many per thread, of any type.",
    "op": (
        'op\n    ``"+"``, ``"*"``, ``"min"``, ``"max"``, ``"&"``, ``"|"``, ``"^"``, a numpy ufunc, or a Python '
        "function: of two values,\n    or, for structured ones, of two and of one that it fills. It must be "
        "associative; it need not be commutative."
    ),
    "all": "all\n    Whether each thread receives the result; otherwise it is defined in rank 0 only.",
    "fresh": "Of the type of `value`. A returned ThreadData is valid until the same call runs again.",
    "fresh_keys": "Of the types of the arguments. A returned ThreadData is valid until the same call runs again.",
    "setup": ("Examples\n--------\n>>> import numpy as np\n>>> from rocpy import cooperative as coop\n>>> @coop.jit"),
}


def primitive(
    family: str,
    choices: str,
    *,
    payloads: tuple[str, ...] = (SCALAR, THREAD_DATA),
    defined: str = "all",
    template: str = "",
    marks: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[F], F]:
    """Make a record of a function that has a signature and a docstring, whose marks are filled in.

    Parameters
    ----------
    family, payloads, defined
        As in `Primitive`.
    choices
        Names between spaces.
    template
        By default the function's name.
    marks
        Texts for marks of the docstring, beside `PHRASES`.
    """

    def register(function: F) -> F:
        name = function.__name__
        if function.__doc__:
            function.__doc__ = inspect.cleandoc(function.__doc__).format_map({**PHRASES, **marks})
        PRIMITIVES[name] = Primitive(
            name, function, payloads, defined, family, template or name, tuple(choices.split())
        )
        return function

    return register
