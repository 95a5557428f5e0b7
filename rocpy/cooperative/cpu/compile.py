# SPDX-License-Identifier: MIT
"""Compiles kernels with Numba, and turns what went wrong in that or in a launch into what concerns the user."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import numba
from llvmlite import ir
from numba import _dynfunc
from numba.core import errors, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys

from rocpy.cooperative.cpu import entry, machine_code
from rocpy.cooperative.cpu.library import ENVIRONMENTS, CheckedLowering, SiteLowering
from rocpy.cooperative.kernel.mode import Mode, compiling_in, mode_of
from rocpy.cooperative.numba import functions, lowering, messages, primitives
from rocpy.cooperative.numba.half import type_of
from rocpy.errors import KernelTypeError, RocpyError

_ = primitives  # registers the primitives
machine_code.engine()  # tells LLVM of the runtime's functions


@functions.cached_by_contents
def _dispatcher(function: Any, mode: Mode, counts: bool) -> Any:
    """Return the Numba dispatcher of a Python function that kernels call.

    `counts`: whether it counts references to arrays, which costs more than most kernels do, and which only those need
    that make or return arrays or raise exceptions with arguments.
    """
    with functions.compiling(function):
        called = {each: _dispatcher(each, mode, counts) for each in functions.callees(function)}
    return numba.njit(
        error_model="numpy",
        nogil=True,
        boundscheck=mode.debug,
        pipeline_class=lowering.pipeline(mode, CheckedLowering if mode.debug else SiteLowering),
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        _nrt=counts,
    )(functions.with_callees(function, called))


functions.DISPATCHERS["cpu"] = _dispatcher


# What Numba says of functions that make arrays, raise exceptions with arguments, or return arrays.
_NEEDS_COUNTS = ("NRT required", "Only accept returning of array")


def compiled(kernel: Any, values: tuple[Any, ...], name: str) -> machine_code.Compiled:
    """Return the machine code of a kernel for the types of these arguments; the name of its entry begins with this."""
    try:
        arguments = tuple(map(type_of, values))
        with global_compiler_lock:
            return _compiled_for(kernel, arguments, name)
    except RocpyError:
        raise
    except Exception as error:  # whatever Numba fails with, the kernel is why
        raise refusal(kernel, values, error) from error


def _compiled_for(kernel: Any, arguments: tuple[types.Type, ...], name: str) -> machine_code.Compiled:
    mode = mode_of(kernel)
    for counts in (False, True):
        try:
            with compiling_in(mode):
                dispatcher = _dispatcher(kernel.function, mode, counts)
                dispatcher.compile(arguments)
            break
        except errors.NumbaError as error:
            if counts or not any(each in str(error) for each in _NEEDS_COUNTS):
                raise
    result = dispatcher.overloads[arguments]
    if kernel.debug:
        functions.warn_of_float64(kernel, arguments, result.metadata)
    functions.returns_nothing(result)
    return entry.machine_code(result, arguments, name, together=not kernel.debug)


def prepare_runtime() -> None:
    """Tell LLVM of Numba's own runtime, which code from disk may call; compiling does so, too."""
    rtsys.initialize(cpu_target.target_context)


# The environment of code from disk, which reads no object in it.
_EMPTY = _dynfunc.Environment({})


def connect(program: machine_code.Compiled) -> None:
    """Give loaded code what its functions know of Python, where they need it."""
    for name in program.environments:
        address = machine_code.engine().get_global_value_address(name)
        if not address:
            raise RuntimeError(f"the code of kernel {program.name} is loaded without {name}: report this as a bug")
        ctypes.c_void_p.from_address(address).value = id(ENVIRONMENTS.setdefault(name, _EMPTY))


def refusal(kernel: Any, values: tuple[Any, ...], error: Exception | None = None) -> KernelTypeError:
    """Return the error that says why a kernel cannot be compiled for arguments."""
    code = kernel.function.__code__
    names = code.co_varnames[: code.co_argcount]
    shown = ", ".join(f"{n}: {_type_name(a)}" for n, a in zip(names, values, strict=False))
    if error is None:
        error = TypeError("an argument has a type that kernels do not support")
        for value in values:
            try:
                type_of(value)
            except (ValueError, errors.NumbaError) as own:
                error = own
    reason, line = messages.explain(error, code)
    location = f"{code.co_filename}:{line or code.co_firstlineno}"
    return KernelTypeError(f"kernel {kernel.name} cannot be compiled for ({shown}): {reason} ({location})")


def _type_name(argument: Any) -> str:
    try:
        return str(type_of(argument))
    except (ValueError, errors.NumbaError):
        return type(argument).__name__


def user_exception(error: dict[str, Any]) -> tuple[BaseException | None, tuple[str, str, int] | None]:
    """Return the exception that a kernel raised, and (function, file, line) of its raise statement."""
    if error["pickled"] is None:
        return None, None
    kind, arguments, location = pickle.loads(error["pickled"])  # noqa: S301 - written by this process
    if kind is None:
        return None, location
    known = list(error["values"] or ())  # of arguments that only the launch knows, in their order
    arguments = [known.pop(0) if known and isinstance(each, ir.Value) else each for each in arguments or ()]
    return kind(*arguments), location
