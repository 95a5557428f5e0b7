# SPDX-License-Identifier: MIT
"""Options of a product, what rocpy may do that costs time or memory: a frozen record, a dict, a context manager."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType

from rocpy.errors import InvalidProblemError

__all__ = ["Options", "current_options", "options", "resolve_options"]

_CHOICES = {"copies": ("allow", "error"), "host_operands": ("copy", "error")}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a product may do.

    Parameters
    ----------
    copies
        ``"allow"``: an operand whose layout the library cannot take is copied once; ``"error"``: it is refused.
    host_operands
        ``"copy"``: on a GPU, arrays in CPU memory are copied to the device and back, and the call blocks;
        ``"error"``: they are refused.
    max_workspace_bytes
        Largest scratch memory an algorithm may ask for, in bytes.

    Examples
    --------
    >>> from rocpy.blaslt import Options
    >>> Options(copies="error").copies
    'error'
    """

    copies: str = "allow"
    host_operands: str = "copy"
    max_workspace_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        """Check the values, so that a wrong one is told where it is written."""
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise InvalidProblemError(
                    f"option {name}={value!r}; it may be {' or '.join(repr(choice) for choice in allowed)}"
                )
        limit = self.max_workspace_bytes
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise InvalidProblemError(f"option max_workspace_bytes={limit!r}; it must be a number of bytes, 0 or more")


_DEFAULT = Options()
_current: ContextVar[Options] = ContextVar("rocpy_options", default=_DEFAULT)
# Contexts entered and not left, in any thread: while there are none, the per-call path need not look at the context
# variable.
ACTIVE: list[Options] = []


def current_options() -> Options:
    """Return the options that hold here: those of the innermost ``with rocpy.options(...)``, else the defaults."""
    return _current.get()


def resolve_options(given: object) -> Options:
    """Return the options of a call: a record, a dict of changes to the current ones, or ``None`` for those."""
    if given is None:
        return _current.get()
    if isinstance(given, Options):
        return given
    if isinstance(given, options):
        return given.value
    if isinstance(given, Mapping):
        return _changed(_current.get(), given)
    raise InvalidProblemError(f"options must be rocpy.blaslt.Options or a dict, not {type(given).__name__}")


def _changed(base: Options, changes: Mapping[str, object]) -> Options:
    known = [field.name for field in dataclasses.fields(Options)]
    for name in changes:
        if name not in known:
            raise InvalidProblemError(f"there is no option {name!r}; options: {', '.join(known)}")
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


class options:  # noqa: N801 (used like a function: `with rocpy.options(...)`)
    """Change the options for a block of code, or for one call as ``options=``.

    Parameters
    ----------
    **changes
        Fields of :class:`rocpy.blaslt.Options`.

    Raises
    ------
    InvalidProblemError
        If there is no such option, or its value is not one of those allowed.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> a = np.ones((4, 8), np.float32)[::2, ::-2]
    >>> with rocpy.options(copies="error"):
    ...     rocpy.matmul(a, np.ones((4, 3), np.float32))
    Traceback (most recent call last):
    ...
    rocpy.errors.UnsupportedError: a: shape (2, 4), strides (16, -2), float32: the library cannot take this layout, ...
    """

    def __init__(self, **changes: object) -> None:
        self.value = _changed(_current.get(), changes)
        self._tokens: list[Token[Options]] = []

    def __enter__(self) -> Options:
        self._tokens.append(_current.set(self.value))
        ACTIVE.append(self.value)
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._tokens.pop())
        ACTIVE.pop()
