# SPDX-License-Identifier: MIT
"""Compiles kernels with Numba, and turns what went wrong in that or in a launch into what concerns the user."""

from __future__ import annotations

import ctypes
import functools
import pickle
import types as python_types
from typing import Any

import numba
from llvmlite import ir
from numba.core import errors, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import typeof_impl

from rocpy.cooperative import (
    _compiled,
    _faults,
    _kernel,
    _mode,
    numba_entry,
    numba_float,
    numba_lowering,
    numba_messages,
    numba_primitives,
    numba_types,
)
from rocpy.cooperative._fingerprint import fingerprint_of, names_of
from rocpy.cooperative._mode import Mode
from rocpy.cooperative.numba_half import type_of
from rocpy.errors import KernelTypeError, RocpyError

_WITH_KERNELS = "rocpy.cooperative._arrays"  # the one module of the package whose functions are users' kernels, too

_under_way: list[Any] = []  # functions whose callees are being looked for; under Numba's lock
_ = (numba_primitives, fingerprint_of)  # the first registers the primitives, the other is for those who keep code


def device_function(function: Any, *, mode: Mode, counts: bool = False) -> Any:
    """Return the Numba dispatcher of a Python function that kernels call.

    `counts`: whether it counts references to arrays, which costs more than most kernels do, and which only those need
    that make or return arrays or raise exceptions with arguments.
    """
    return _dispatcher(function, mode, counts)


@functools.cache
def _dispatcher(function: Any, mode: Mode, counts: bool) -> Any:
    pipeline = numba_lowering.pipeline(mode)
    return numba.njit(
        error_model="numpy",
        nogil=True,
        boundscheck=mode.debug,
        pipeline_class=pipeline,
        no_cpython_wrapper=True,
        _nrt=counts,
    )(with_device_functions(function, functools.partial(device_function, mode=mode, counts=counts)))


def with_device_functions(function: Any, compiled: Any) -> Any:
    """Return a copy of a function in which the Python functions it names are what `compiled` makes of them."""
    if function in _under_way:
        raise numba_types.refuse(f"{function.__qualname__} calls itself, which functions of kernels cannot: use a loop")
    _under_way.append(function)
    try:
        return _with_device_functions(function, compiled)
    finally:
        _under_way.pop()


def _with_device_functions(function: Any, compiled: Any) -> Any:
    names = names_of(function.__code__)
    world = dict(function.__globals__)
    for name in names:
        value = world.get(name)
        if _is_plain(value):
            world[name] = compiled(_plain(value))
    closure = function.__closure__
    if closure:
        closure = tuple(_cell(cell, compiled) for cell in closure)
    copy = python_types.FunctionType(function.__code__, world, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    copy.__doc__ = function.__doc__
    return copy


def _is_plain(value: Any) -> bool:
    if isinstance(value, _kernel.Kernel):
        return True
    module = getattr(value, "__module__", None) or ""
    return isinstance(value, python_types.FunctionType) and (
        module == _WITH_KERNELS or not module.startswith(("rocpy.", "numba.", "numpy."))
    )


def _plain(value: Any) -> Any:
    return value.function if isinstance(value, _kernel.Kernel) else value


def _cell(cell: Any, compiled: Any) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:  # not bound yet
        return cell
    return python_types.CellType(compiled(_plain(value))) if _is_plain(value) else cell


@typeof_impl.register(_kernel.Kernel)
def _typeof_kernel(kernel: Any, _context: Any) -> types.Type:
    return types.Dispatcher(device_function(kernel.function, mode=_mode.current() or kernel.mode()))


# What Numba says of functions that make arrays, raise exceptions with arguments, or return arrays.
_NEEDS_COUNTS = ("NRT required", "Only accept returning of array")


def compiled(kernel: Any, values: tuple[Any, ...], name: str) -> _compiled.Compiled:
    """Return the machine code of a kernel for the types of these arguments; its entry has the given name."""
    try:
        arguments = tuple(map(type_of, values))
        with global_compiler_lock:
            return _compiled_for(kernel, arguments, name)
    except RocpyError:
        raise
    except Exception as error:  # whatever Numba fails with, the kernel is why
        raise refusal(kernel, values, error) from error


def _compiled_for(kernel: Any, arguments: tuple[types.Type, ...], name: str) -> _compiled.Compiled:
    mode = kernel.mode()
    for counts in (False, True):
        try:
            with _mode.compiling(mode):
                dispatcher = device_function(kernel.function, mode=mode, counts=counts)
                dispatcher.compile(arguments)
            break
        except errors.NumbaError as error:
            if counts or not any(each in str(error) for each in _NEEDS_COUNTS):
                raise
    result = dispatcher.overloads[arguments]
    if kernel.debug:
        warn_of_float64(kernel, arguments, result.metadata)
    returns_nothing(result)
    return numba_entry.machine_code(result, arguments, name, turns=not kernel.debug)


def returns_nothing(result: Any) -> None:
    """Refuse a compiled kernel that returns something."""
    returned = result.signature.return_type
    if isinstance(returned, types.Generator):
        raise numba_types.refuse("a kernel runs to its end, and this has a yield: write results into an array")
    if returned is not types.none:
        raise numba_types.refuse(f"a kernel returns nothing, but this returns {returned}: write results into an array")


def warn_of_float64(kernel: Any, arguments: tuple[types.Type, ...], metadata: dict[str, Any]) -> None:
    """Warn of a kernel for float32 that computes in float64, with the first line that does."""
    if numba_float.surprises(arguments):
        _faults.warn_of_float64(kernel, metadata.get(numba_float.NOTES, []))


def connect(made: _compiled.Compiled) -> None:
    """Give loaded code what its functions know of Python, where they need it."""
    if not made.environments:
        return
    engines = _compiled.engine(), cpu_target.target_context.codegen()._engine
    for name in made.environments:
        own, numbas = (ctypes.c_void_p.from_address(each.get_global_value_address(name)) for each in engines)
        own.value = numbas.value


def refusal(kernel: Any, values: tuple[Any, ...], error: Exception | None = None) -> KernelTypeError:
    """Return the error that says why a kernel cannot be compiled for arguments."""
    code = kernel.function.__code__
    names = code.co_varnames[: code.co_argcount]
    shown = ", ".join(f"{n}: {_type_name(a)}" for n, a in zip(names, values, strict=False))
    if error is None:
        error = TypeError("an argument is of no type that kernels take")
        for value in values:
            try:
                type_of(value)
            except (ValueError, errors.NumbaError) as own:
                error = own
    reason, line = numba_messages.explain(error, code)
    place = f"{code.co_filename}:{line or code.co_firstlineno}"
    return KernelTypeError(f"kernel {kernel.name} cannot be compiled for ({shown}): {reason} ({place})")


def _type_name(argument: Any) -> str:
    try:
        return str(type_of(argument))
    except (ValueError, errors.NumbaError):
        return type(argument).__name__


def user_exception(error: dict[str, Any]) -> tuple[BaseException | None, tuple[str, str, int] | None]:
    """Return the exception that a kernel raised, and (function, file, line) of its raise statement."""
    if error["pickled"] is None:
        return None, None
    kind, arguments, place = pickle.loads(error["pickled"])  # noqa: S301 - written by this process
    if kind is None:
        return None, place
    known = list(error["values"] or ())  # of arguments that only the launch knows, in their order
    arguments = [known.pop(0) if known and isinstance(each, ir.Value) else each for each in arguments or ()]
    return kind(*arguments), place
