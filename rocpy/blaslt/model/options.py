# SPDX-License-Identifier: MIT
"""Options of a product, what rocpy may do that costs time or memory: a frozen record, a dict, a context manager."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Literal, Never, TypedDict, TypeVar, Unpack

from rocpy._integers import integer_of
from rocpy._messages.decorators import in_blocks
from rocpy._messages.suggestions import did_you_mean
from rocpy._messages.text import plain_text
from rocpy.blaslt._options_scope import ACTIVE, STACK, OptionsScope
from rocpy.errors import InvalidProblemError

__all__ = ["ACTIVE", "Options", "OptionsDict", "block_of", "current_options", "options", "resolve_options"]

_CHOICES: dict[str, tuple[object, ...]] = {
    "copies": ("allow", "error"),
    "host_operands": ("copy", "error"),
    "fallback": ("allow", "error"),
    "reproducible": (False, True, "batch"),
    "dynamic": (None, "m"),
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


class OptionsDict(TypedDict, total=False):
    """Changes to the options as a dict: the fields of :class:`Options`, each of which may be missing."""

    copies: Literal["allow", "error"]
    host_operands: Literal["copy", "error"]
    max_workspace_bytes: int
    fallback: Literal["allow", "error"]
    reproducible: Literal[False, True, "batch"]
    dynamic: Literal["m"] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """What a product may do.

    Parameters
    ----------
    copies
        ``"allow"``: an operand whose layout, byte order or alignment the library cannot use is copied once;
        ``"error"``: it is refused. Scales are copied all the same.
    host_operands
        ``"copy"``: on a GPU, arrays in CPU memory are copied to the device and back, and the call blocks;
        ``"error"``: they are refused.
    max_workspace_bytes
        Maximum scratch memory of an algorithm, in bytes.
    fallback
        ``"allow"``: what the platform's library cannot fuse is its nearest product followed by the operands'
        framework's own operations, lowering ``"unfused"``; ``"error"``: it is refused, with the reason.
    reproducible
        ``True``: results are bitwise identical from run to run, whatever else is running; tuned choices are not used,
        because another machine may choose differently. ``"batch"``: in addition, each row is bitwise identical
        whatever the number and content of the other rows, but for the sign and payload of a NaN. Raises
        UnsupportedError if the platform cannot guarantee this.
    dynamic
        ``"m"``: a :class:`rocpy.Matmul` accepts new operands with a different M and plans again; ``None``: it refuses
        them.

    Examples
    --------
    >>> from rocpy.blaslt import Options
    >>> Options(copies="error").copies
    'error'
    """

    copies: Literal["allow", "error"] = "allow"
    host_operands: Literal["copy", "error"] = "copy"
    max_workspace_bytes: int = 128 << 20
    fallback: Literal["allow", "error"] = "allow"
    reproducible: Literal[False, True, "batch"] = False
    dynamic: Literal["m"] | None = None

    def __post_init__(self) -> None:
        """Check the values, so that a wrong one is reported where it is written."""
        for name, allowed in _CHOICES.items():
            value = plain_text(getattr(self, name))
            object.__setattr__(self, name, value)
            # By type too: 1 is no True, and two options that are equal must be one key of the plan cache.
            if not any(type(value) is type(choice) and value == choice for choice in allowed):
                raise InvalidProblemError(
                    f"option {name}: got {value!r}, expected {' or '.join(repr(choice) for choice in allowed)}"
                    f"{did_you_mean(value, (choice for choice in allowed if isinstance(choice, str)))}"
                )
        limit = integer_of(self.max_workspace_bytes)
        if limit is None or not 0 <= limit < 1 << 64:
            raise InvalidProblemError(
                f"option max_workspace_bytes: got {self.max_workspace_bytes!r}, expected a number of bytes from 0 to "
                "2**64 - 1"
            )
        object.__setattr__(self, "max_workspace_bytes", limit)


DEFAULT = Options()
_numbers = itertools.count(1)


@functools.lru_cache(maxsize=1024)
def key_word(value: Options) -> int:
    """Return a number for the keys of plans that no other options have, 0 for the defaults.

    A hash would not do: those of two limits of the workspace may be equal.
    """
    return 0 if value == DEFAULT else next(_numbers)


_NAMES = [field.name for field in dataclasses.fields(Options)]


def current_options() -> Options:
    """Return the options that hold here: those of the innermost ``with rocpy.options(...)``, else the defaults."""
    for block in reversed(STACK.get()):
        if not block.is_left:
            return block.options
    return DEFAULT


def forbids_composing() -> bool:
    """Whether the options that hold here allow a framework's own functions for an epilogue only after a check."""
    options = current_options()
    return options.fallback == "error" or options.reproducible == "batch"


def guarantees_rows() -> bool:
    """Whether the options that hold here guarantee that a row does not depend on the others."""
    return current_options().reproducible == "batch"


# torch's compiler runs them, and keeps their answers.
forbids_composing._dynamo_marked_constant = True  # type: ignore[attr-defined]
guarantees_rows._dynamo_marked_constant = True  # type: ignore[attr-defined]


def resolve_options(requested: object) -> Options:
    """Return the options of a call: a record, a dict or ``options(...)`` of changes to the current ones, or those."""
    if requested is None:
        return current_options()
    if isinstance(requested, Options):
        return requested
    if isinstance(requested, options):
        return requested.value
    if isinstance(requested, Mapping):
        if type(requested) is dict and all(type(value) in _PLAIN_TYPES for value in requested.values()):
            return _changed_plainly(current_options(), tuple(requested), *requested.values())
        return _changed(current_options(), requested)
    raise InvalidProblemError(
        f"options must be rocpy.blaslt.Options, rocpy.options(...) or a dict, not {type(requested).__name__}"
    )


def _changed(base: Options, changes: Mapping[str, object]) -> Options:
    for name in changes:
        if name not in _NAMES:
            raise InvalidProblemError(
                f"there is no option {name!r}{did_you_mean(name, _NAMES)}; options: {', '.join(_NAMES)}"
            )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


# A dict in a loop has the same contents each time. By type too: True equals 1, which is refused.
_PLAIN_TYPES = (str, int, bool, type(None))


@functools.lru_cache(maxsize=64, typed=True)
def _changed_plainly(base: Options, names: tuple[str, ...], *values: object) -> Options:
    return _changed(base, dict(zip(names, values, strict=True)))


class options(OptionsScope):  # noqa: N801 (used like a function: `with rocpy.options(...)`)
    """Change the options for a block of code, for a function, or for one call as ``options=``.

    Parameters
    ----------
    **changes
        Fields of :class:`rocpy.blaslt.Options`; the others keep the values of the surrounding options.

    Raises
    ------
    InvalidProblemError
        If there is no such option, or its value is not one of those allowed.

    Notes
    -----
    The options of a block apply in its thread and asyncio task and in tasks started there, not in other threads; it is
    left where it was entered. As a decorator it covers the body of an ordinary function; inside an ``async def`` or a
    generator use ``with``, and leave the block before a ``yield`` after which another thread or task may go on.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> a = np.ones((4, 8), np.float32)[::2, ::-2]
    >>> with rocpy.options(copies="error"):
    ...     rocpy.matmul(a, np.ones((4, 3), np.float32))
    Traceback (most recent call last):
    ...
    rocpy.errors.UnsupportedError: a: shape (2, 4), strides (16, -2), float32: the library cannot take this layout, ...
    >>> @rocpy.options(reproducible=True)
    ... def layer(x, w):
    ...     return rocpy.matmul(x, w)
    >>> layer(np.ones((1, 2)), np.ones((2, 1))).item()
    2.0
    """

    def __init__(self, *values: Never, **changes: Unpack[OptionsDict]) -> None:
        if values:
            raise TypeError(f"rocpy.options takes keywords, as in rocpy.options(copies='error'); got {values[0]!r}")
        self._over_defaults = _changed(DEFAULT, changes)  # a wrong name or value is told where it is written
        self._changes = changes

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self),), dict(self.__dict__)  # type: ignore[attr-defined]  # a copy was not entered

    def __repr__(self) -> str:
        return f"rocpy.options({', '.join(f'{name}={value!r}' for name, value in self._changes.items())})"

    @property
    def value(self) -> Options:
        """The current options, with the changes."""
        current = current_options()
        return self._over_defaults if current is DEFAULT else _changed(current, self._changes)

    def __call__(self, function: _Function) -> _Function:
        """Return a function that runs with these options."""
        return in_blocks(function, lambda: self, InvalidProblemError, (repr(self), "with rocpy.options(...)"))


@functools.lru_cache(maxsize=64)
def block_of(value: Options) -> options:
    """Return a context manager in whose blocks all options are these."""
    return options(**{name: getattr(value, name) for name in _NAMES})
