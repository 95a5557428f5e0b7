# SPDX-License-Identifier: MIT
"""Tracing: a user's function is called once on placeholders that record the operations applied to them."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType, MethodDescriptorType
from typing import Any, NoReturn

from rocpy._fp_environment import default_arithmetic
from rocpy.epilogues.expressions.expression import Builder, Expression
from rocpy.epilogues.expressions.types import plain_number
from rocpy.epilogues.tracing import vocabulary as _vocabulary
from rocpy.epilogues.tracing.names import CASTS, CHANGES_RANK, METHODS, canonical, shown
from rocpy.epilogues.tracing.writer import TypeOf, Value, Writer
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyError, UnsupportedError, shown_as

__all__ = ["Traced", "applied", "trace"]

_ROCPY = str(Path(__file__).parents[2])
# Packages whose frames are never the line that the user wrote.
_FOREIGN = ("numpy", "torch", "scipy", "ml_dtypes", "jax")


def _is_foreign(filename: str) -> bool:
    for name in _FOREIGN:
        module = sys.modules.get(name)
        home = None if module is None else getattr(module, "__file__", None)
        if home is not None and filename.startswith(str(Path(home).parent)):
            return True
    return False


def where_written() -> str:
    """Return file, line and text of the innermost line of the user's that is being run, ending in a colon."""
    return _line_among(traceback.walk_stack(sys._getframe(1)))


def _line_among(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return the first line of the user's, as `where_written` does."""
    for frame, line in frames:
        filename = frame.f_code.co_filename
        if not filename.startswith((_ROCPY, "<frozen")) and not _is_foreign(filename):
            text = textwrap.shorten(linecache.getline(filename, line, frame.f_globals).strip(), 90, placeholder=" ...")
            return f"{filename}:{line}: {text + ': ' if text else ''}"
    return ""


@shown_as(UnsupportedError)
class _NoAttributeError(UnsupportedError, AttributeError):
    """An attribute that stand-ins lack; ``hasattr`` answers no."""


@shown_as(InvalidProblemError)
class _OtherShapeError(InvalidProblemError, AttributeError):
    """An attribute that would give another shape."""


class DTypeOf(TypeOf):
    """What ``x.dtype`` gives while a function is traced: the type of another value, whichever that will be."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "the dtype of a traced value"

    def _refuse(self, _: object) -> NoReturn:
        raise UnsupportedError(
            f"{where_written()}an epilogue is traced once for all types, so types cannot be compared in it"
        )

    __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


class Traced(Value):
    """Stands for the product or an input while a function is traced."""

    __slots__ = ()

    # ---- what functions see ----

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise UnsupportedError(f"{where_written()}{shown(ufunc)}.{method}: an epilogue works element by element")
        if kwargs.get("out") is not None:
            _refuse_writing(shown(ufunc))
        return apply(shown(ufunc), ufunc.__name__, args, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply(shown(func), func.__name__, args, kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if isinstance(func, MethodDescriptorType):
            name = METHODS.get(name, name)
        return apply(shown(func), name, args, kwargs or {})

    # ---- methods ----

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in CASTS:
            return lambda: self._cast(CASTS[name])
        if name in CHANGES_RANK:
            raise _OtherShapeError(_rank_text(f".{name}"))
        ours, _ = canonical(name)
        if ours in _vocabulary.MEANINGS:
            return lambda *args, **kwargs: apply(f".{name}", METHODS.get(name, name), (self, *args), kwargs)
        raise _NoAttributeError(f"{where_written()}.{name}: not in an epilogue's vocabulary: {_vocabulary.LISTED}")

    @property
    def dtype(self) -> DTypeOf:
        """Its type, to cast others to."""
        return DTypeOf(self)

    def _cast(self, dtype: str) -> Traced:
        return Traced(self.builder, self.builder.op("cast", self.node, value=dtype), self.is_half)

    def __getitem__(self, index: Any) -> Traced:
        lane = _lane_of(index)
        if lane is None:
            raise InvalidProblemError(
                f"{where_written()}[{index!r}]: an epilogue works element by element; the only indices are [..., 0::2] "
                "and [..., 1::2], the columns of two interleaved weights. Pass an input of shape (N,) for "
                "one value per column, (M, 1) for one per row"
            )
        if self.is_half:
            raise InvalidProblemError(
                f"{where_written()}[{index!r}]: this has half of the product's columns already, and cannot be halved "
                "again"
            )
        return Traced(self.builder, self.builder.op("pick", self.node, value=lane), True)

    # ---- what would need a value ----

    def __bool__(self) -> NoReturn:
        raise UnsupportedError(
            f"{where_written()}control flow on a traced value: an epilogue is traced once for all elements; use "
            "where(condition, x, y), and & | ~ instead of and, or, not"
        )

    def _refuse_value(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(
            f"{where_written()}a traced value cannot be converted to a number or an array: use functions of numpy or "
            "torch instead of math, and pass known values as named inputs"
        )

    __float__ = __int__ = __index__ = __complex__ = __array__ = __dlpack__ = __dlpack_device__ = _refuse_value
    __bytes__ = __trunc__ = __floor__ = __ceil__ = _refuse_value

    def __format__(self, spec: str) -> str:
        return self._refuse_value() if spec else str(self)

    def __hash__(self) -> NoReturn:
        raise UnsupportedError(
            f"{where_written()}a traced value cannot be looked up or be in a set: what it equals is not known"
        )

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse it: it is no function."""
        raise UnsupportedError(f"{where_written()}a traced value cannot be called: it is an array, not a function")

    def __copy__(self) -> Traced:  # nothing can change it
        return self

    def __deepcopy__(self, _: Any) -> Traced:
        return self

    def _refuse_length(self, *_: Any) -> NoReturn:
        raise InvalidProblemError(
            f"{where_written()}the shape of a traced value is not known: an epilogue is traced once for all shapes"
        )

    __len__ = __iter__ = __contains__ = __reversed__ = _refuse_length
    shape = ndim = size = numel = dim = property(_refuse_length)

    # ---- mutation ----

    def _refuse_change(self, *_: Any) -> NoReturn:
        _refuse_writing("an operation in place")

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __iand__ = __ior__ = __ixor__ = _refuse_change
    __imatmul__ = __ifloordiv__ = __imod__ = __setitem__ = __delitem__ = _refuse_change

    def __round__(self, digits: int = 0) -> Traced:
        rounded: Traced = apply("round", "round", (self, digits or 0), {})
        return rounded

    def __matmul__(self, other: Any) -> NoReturn:
        raise InvalidProblemError(_rank_text("@"))

    __rmatmul__ = __matmul__


def _operator(name: str, reflected: bool = False) -> Callable[..., Any]:
    def run(self: Traced, other: Any, *more: Any) -> Any:  # pow() has a modulus
        return apply(name, name, (other, self, *more) if reflected else (self, other, *more), {})

    return run


for _name, _ours in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow", "and": "and", "or": "or",
}.items():  # fmt: skip
    setattr(Traced, f"__{_name}__", _operator(_ours))
    setattr(Traced, f"__r{_name}__", _operator(_ours, reflected=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Traced, f"__{_name}__", _operator(_name))
for _name, _ours in {"neg": "neg", "pos": "positive", "abs": "abs", "invert": "not"}.items():
    setattr(Traced, f"__{_name}__", lambda self, ours=_ours: apply(ours, ours, (self,), {}))
for _name in ("floordiv", "mod", "lshift", "rshift", "xor", "divmod"):
    for _form in (_name, f"r{_name}"):
        setattr(
            Traced,
            f"__{_form}__",
            lambda self, other, name=_name: apply(f"the operator {name}", name, (self, other), {}),
        )


def _lane_of(index: Any) -> int | None:
    """Return which of two interleaved columns an index means, ``None`` for any other index."""
    if not isinstance(index, tuple) or len(index) != 2 or index[0] is not Ellipsis or not isinstance(index[1], slice):
        return None
    part = index[1]
    if part.step != 2 or part.stop is not None or part.start not in (None, 0, 1):
        return None
    return part.start or 0


def _refuse_writing(what: str) -> NoReturn:
    raise UnsupportedError(
        f"{where_written()}{what} would write into an operand: an epilogue creates new values; write y = x + b instead "
        "of x += b"
    )


def _rank_text(what: str) -> str:
    return (
        f"{where_written()}{what}: it gives another shape, and each element of an epilogue's result is computed from "
        "the elements at its own position; do it before or after the product"
    )


def apply(label: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write down a call of a function on traced values."""
    ours, form = canonical(name)
    if form == "in place" or kwargs.get("inplace") or kwargs.get("out") is not None:
        _refuse_writing(label)
    if ours in CHANGES_RANK:
        raise InvalidProblemError(_rank_text(label))
    if form == "reflected":
        args = args[::-1]
    meaning = _vocabulary.MEANINGS.get(ours)
    if meaning is None:
        raise UnsupportedError(f"{where_written()}{label}: not in an epilogue's vocabulary: {_vocabulary.LISTED}")
    builder = next(one.builder for one in _flat(args, kwargs) if isinstance(one, Traced))
    named = {key: value for key, value in kwargs.items() if value is not None}
    return _located(label, meaning, Writer(builder, Traced), *args, **named)


def _located(label: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function gives; errors begin with the line that the user wrote."""
    try:
        return function(*args, **kwargs)
    except RocpyError as error:
        raise type(error)(f"{where_written()}{label}: {error}") from None
    except TypeError as error:
        raise UnsupportedError(
            f"{where_written()}{label}: called in a way that rocpy does not support: {error}"
        ) from None


def _flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [*args, *kwargs.values()]


def applied(expression: Expression, builder: Builder, x: Any, inputs: Mapping[str, Any]) -> Any:
    """Write down an expression's operations on values of a function that is traced, and return its results."""
    writer, values = Writer(builder, Traced), list[Any]()
    for node in expression.nodes:
        args = [values[arg] for arg in node.args]
        if node.op == "pick":
            values.append(writer.lifted(args[0])[..., node.value :: 2])
        elif node.op in ("x", "input"):
            values.append(x if node.op == "x" else inputs[node.value])
        elif node.op == "const":
            values.append(Traced(builder, builder.leaf(node)))
        else:
            values.append(_located(expression.name, writer.op, node.op, *args, value=node.value))
    results = tuple(writer.lifted(values[position]) for position in expression.outputs)
    return results[0] if expression.single else results


# ---- functions ----


@default_arithmetic  # of the constants that it reads
def trace(function: Callable[..., Any]) -> Expression:
    """Return the expression that a function of (x, named inputs) computes.

    Raises
    ------
    UnsupportedError, InvalidProblemError, InvalidOperandError
        What cannot be traced; the message begins with the file and the line of the user's function.
    """
    inputs, defaults = _parameters(function)
    builder = Builder(inputs)
    arguments = [Traced(builder, builder.x(), False), *(Traced(builder, builder.input(name)) for name in inputs)]
    try:
        result = function(*arguments)
    except TypeError as error:
        if Traced.__module__ not in str(error):
            raise
        # Of a package that asks for its own arrays, such as jax.
        line = _line_among(reversed(list(traceback.walk_tb(error.__traceback__))))
        reason = str(error).partition("\n")[0]
        raise UnsupportedError(
            f"{line}a function of another package was called on a traced value: use that of numpy or torch ({reason})"
        ) from error
    location = _location(function)
    values = result if isinstance(result, tuple) else (result,)
    if not values:
        raise InvalidProblemError(f"{location}the function returns an empty tuple; an epilogue has one result or more")
    for value in values:
        if not isinstance(value, Traced):
            raise InvalidProblemError(
                f"{location}the function returns a {type(value).__name__}; it must return a value computed from its "
                "first parameter, or a tuple of such values"
            )
    if len({value.is_half for value in values} - {None}) > 1:
        raise InvalidProblemError(f"{location}one result has half the product's columns and another all of them")
    name = getattr(function, "__name__", "epilogue")
    expression = builder.finish(
        [value.node for value in values], not isinstance(result, tuple), defaults, name if name != "<lambda>" else "f"
    )
    for output in expression.outputs:
        if not any(expression.nodes[one].op == "x" for one in expression.uses(output)):
            raise InvalidProblemError(
                f"{location}a result does not depend on {next(iter(inspect.signature(function).parameters))}, the "
                "product; compute it separately"
            )
    return expression


def _check_default(name: str, value: Any) -> None:
    number = plain_number(value)
    if number is None:
        raise InvalidProblemError(f"{name} is not a number: {value!r}")
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise InvalidProblemError(f"{name} is an integer below -2**63 or above 2**63 - 1; use a float")


def _code(function: Callable[..., Any]) -> Any:
    """Return the code of a function, or of what a callable object runs; ``None`` where it is no Python."""
    written = inspect.unwrap(function)
    while isinstance(written, functools.partial):
        written = inspect.unwrap(written.func)
    return getattr(written, "__code__", None) or getattr(type(written).__call__, "__code__", None)


def _location(function: Callable[..., Any]) -> str:
    code = _code(function)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}: "


def _refuse_signature(function: Callable[..., Any], name: str, why: str) -> NoReturn:
    called = getattr(function, "__name__", "f")  # an object has no name
    raise InvalidOperandError(f"{where_written()}{name}: {why}; wrap it: lambda x: {called}(x)")


def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
    if not callable(function):
        raise InvalidOperandError(
            f"rocpy.epilogue takes a function of (x, named inputs), not {type(function).__name__}"
        )
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, type):
        raise InvalidOperandError(f"{where_written()}{name}: a class; pass a function: lambda x: {name}()(x)")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        _refuse_signature(function, name, "its signature cannot be read")
    code = _code(function)
    is_foreign = code is None or _is_foreign(code.co_filename)
    # What functions of packages take beside the operand are settings (inplace=, out=), not inputs of an epilogue.
    if is_foreign and any(one.default is not one.empty or one.kind > one.POSITIONAL_OR_KEYWORD for one in parameters):
        _refuse_signature(function, name, "its parameters are not the product and named inputs")
    location = f"{_location(function)}{name}: "
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters = [one for one in parameters if one.name not in bound]  # what a partial sets is a constant
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise InvalidProblemError(f"{location}*{one.name}: an epilogue's inputs have names; write them out")
        if one.default is not one.empty:
            _check_default(f"{location}the default of {one.name}", one.default)
    if not parameters or parameters[0].default is not parameters[0].empty:
        raise InvalidProblemError(f"{location}its first parameter must be the product, without a default")
    if any(one.kind is one.KEYWORD_ONLY for one in parameters):
        behind = f", behind {', '.join(bound)}, which functools.partial sets by name" if bound else ""
        raise InvalidProblemError(f"{location}keyword-only parameters{behind}; write its inputs without the *")
    return tuple(one.name for one in parameters[1:]), tuple(
        (one.name, plain_number(one.default)) for one in parameters[1:] if one.default is not one.empty
    )
