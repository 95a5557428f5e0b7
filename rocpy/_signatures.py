# SPDX-License-Identifier: MIT
"""What Python's own tools read of rocpy: signatures of classes that are written in C, and ``dir()`` of a module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Never

__all__ = ["CREATED_BY_METHODS", "public_names", "refuse_construction", "signature_like"]


def signature_like(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, for the ``__signature__`` of a class whose constructor takes the same."""
    return inspect.signature(function)


# Of a class that is made by class methods, or by methods of another class, alone.
CREATED_BY_METHODS = inspect.Signature()


def refuse_construction(name: str, methods: str) -> Never:
    """Raise the error of such a class's constructor, whose objects could not be used.

    Parameters
    ----------
    name
        Of the class.
    methods
        What creates one.
    """
    raise TypeError(f"{name}() creates nothing that can be used; create one with {methods}")


def public_names(namespace: dict[str, Any], *others: str) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a module, which lists what is public: no import of its own.

    A name that the module lacks is then an error with the nearest public name, unless it has a ``__getattr__``.

    Parameters
    ----------
    namespace
        The module's ``globals()``.
    *others
        Public names that are not in ``__all__``.
    """

    def listed() -> list[str]:
        special = (name for name in namespace if name.startswith("__"))
        return sorted({*namespace.get("__all__", ()), *others, *special})

    def missing(name: str) -> Never:
        from rocpy._messages.suggestions import missing_attribute

        raise missing_attribute(namespace["__name__"], name, {*namespace.get("__all__", ()), *others})

    # Not in the module's source: type checkers would believe that it has every name.
    namespace.setdefault("__getattr__", missing)
    return listed
