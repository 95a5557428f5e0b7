# SPDX-License-Identifier: MIT
"""Compiles kernels with Numba, keeps them on disk, launches them, and turns what went wrong into errors."""

from __future__ import annotations

import functools
import hashlib
import pickle
import re
import types as python_types
from typing import Any

import numba
import numpy as np
from llvmlite import ir as llvm_ir
from numba.core import cgutils, errors, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.extending import intrinsic, typeof_impl

from rocpy.cooperative import _kernel, numba_lowering, numba_primitives, numba_types
from rocpy.cooperative.numba_runtime import BYTES, call
from rocpy.errors import KernelTypeError

_WITH_KERNELS = "rocpy.cooperative._arrays"  # the one module of the package whose functions are users' kernels, too
VERSION = 1  # of what is kept on disk: raise it when the runtime's C interface changes

_ = numba_primitives  # registers the primitives


def device_function(function: Any, *, debug: bool, counts: bool = False) -> Any:
    """Return the Numba dispatcher of a Python function that kernels call.

    `counts`: whether it counts references to arrays, which costs more than most kernels do, and which only those need
    that make or return arrays or raise exceptions with arguments.
    """
    return _dispatcher(function, debug, counts)


@functools.cache
def _dispatcher(function: Any, debug: bool, counts: bool) -> Any:
    pipeline = numba_lowering.CHECKED if debug else numba_lowering.PLAIN
    return numba.njit(error_model="numpy", nogil=True, boundscheck=debug, pipeline_class=pipeline, _nrt=counts)(
        with_device_functions(function, functools.partial(device_function, debug=debug, counts=counts))
    )


def with_device_functions(function: Any, compiled: Any) -> Any:
    """Return a copy of a function in which the Python functions it names are what `compiled` makes of them."""
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


def names_of(code: Any) -> set[str]:
    """Return the global names that a function's code uses, those of functions inside it too."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            found |= names_of(constant)
    return found


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
    return types.Dispatcher(device_function(kernel.function, debug=kernel.debug))


class _CacheFiles(CompileResultCacheImpl):
    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return "rocpy-" + super().get_filename_base(fullname, abiflags)


class _KernelCache(FunctionCache):
    """Numba's own cache, keyed on the kernel and on every function and constant that it names."""

    _impl_class = _CacheFiles

    def __init__(self, function: Any, fingerprint: str) -> None:
        super().__init__(function)
        self._fingerprint = fingerprint

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        return (str(signature), codegen.magic_tuple(), self._fingerprint)


def fingerprint_of(function: Any) -> str:  # noqa: C901 - the same
    """Return a hash of a function's code and of the functions and constants it names, however deep."""
    digest = hashlib.sha256(f"{VERSION} {numba.__version__}".encode())
    seen: set[int] = set()

    def add(value: Any) -> None:
        if isinstance(value, _kernel.Kernel):
            value = value.function
        if isinstance(value, (int, float, complex, str, bytes, bool, type(None), np.generic, np.dtype)):
            digest.update(repr(value).encode())
        elif isinstance(value, (tuple, list)):
            for each in value:
                add(each)
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        elif isinstance(value, python_types.FunctionType):
            if id(value) in seen:
                return
            seen.add(id(value))
            digest.update(value.__qualname__.encode())
            add_code(value.__code__)
            if (value.__module__ or "").startswith(("numpy", "numba")):
                return
            add(value.__defaults__)
            for name in sorted(names_of(value.__code__)):
                if name in value.__globals__:
                    digest.update(name.encode())
                    add(value.__globals__[name])
            for cell in value.__closure__ or ():
                add(cell.cell_contents)

    def add_code(code: Any) -> None:
        digest.update(code.co_code)
        for constant in code.co_consts:
            if isinstance(constant, python_types.CodeType):
                add_code(constant)
            else:
                digest.update(repr(constant).encode())

    add(function)
    return digest.hexdigest()


def _launcher_of(kernel: Any, dispatcher: Any) -> Any:
    @intrinsic
    def spawn(typing: Any, config: Any, arguments: Any) -> Any:
        members = tuple(arguments.types)
        signature = types.Dispatcher(dispatcher).get_call_type(typing, members, {})
        if signature.return_type is not types.none:
            raise numba_types.refuse(
                f"a kernel returns nothing, but this returns {signature.return_type}: write results into an array"
            )

        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            record = llvm_ir.LiteralStructType([context.get_value_type(each) for each in members])
            place = cgutils.alloca_once(builder, record)
            for i, _each in enumerate(members):
                value = builder.extract_value(values[1], i)
                builder.store(value, cgutils.gep_inbounds(builder, place, 0, i))
            entry = numba_lowering.entry_of(context, builder, dispatcher, signature.args, record, signature.return_type)
            error = call(builder, "rocpy_simt_launch", entry, place, builder.inttoptr(values[0], BYTES))
            return builder.ptrtoint(error, context.get_value_type(types.intp))

        return types.intp(types.intp, arguments), codegen

    def launch(config: int, *arguments: Any) -> int:
        return spawn(config, arguments)

    launch.__name__ = kernel.function.__name__
    launcher = numba.njit(nogil=True)(launch)
    if kernel.cache:
        try:
            launcher._cache = _KernelCache(kernel.function, fingerprint_of(kernel.function))
        except RuntimeError as error:  # no file to keep it beside, as in an interactive session
            raise KernelTypeError(
                f"kernel {kernel.name}: cache=True needs a function that comes from a file: {error}"
            ) from None
    return launcher


# What Numba says of functions that make arrays, raise exceptions with arguments, or return arrays.
_NEEDS_COUNTS = ("NRT required", "Only accept returning of array")


class Launcher:
    """A kernel's compiled forms, by the types of their arguments."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._prepare(counts=False)

    def _prepare(self, *, counts: bool) -> None:
        self._counts = counts
        self._dispatcher = device_function(self._kernel.function, debug=self._kernel.debug, counts=counts)
        self._launch = _launcher_of(self._kernel, self._dispatcher)

    def __call__(self, address: int, *arguments: Any) -> int:
        """Run a grid; return 0 or the address of its error."""
        try:
            return self._launch(address, *arguments)
        except errors.NumbaError as error:
            if not self._counts and any(each in str(error) for each in _NEEDS_COUNTS):
                self._prepare(counts=True)
                return self(address, *arguments)
            raise self._explained(error, arguments) from error
        except TypeError as error:
            if "pyobject" in str(error) or "cannot determine Numba type" in str(error):
                raise self._explained(error, arguments) from None
            raise

    @property
    def cache_hits(self) -> int:
        """How often compiled code came from disk."""
        return sum(self._launch.stats.cache_hits.values())

    def _explained(self, error: Exception, arguments: tuple[Any, ...]) -> KernelTypeError:
        kernel = self._kernel
        code = kernel.function.__code__
        names = code.co_varnames[: code.co_argcount]
        shown = ", ".join(f"{n}: {_type_name(a)}" for n, a in zip(names, arguments, strict=False))
        try:  # by itself, without the launch around it, the kernel fails in clearer words
            self._dispatcher.compile(tuple(numba.typeof(argument) for argument in arguments))
        except errors.NumbaError as own:
            error = own
        except (TypeError, ValueError):
            pass
        reason, line = explain(str(error), code.co_filename)
        place = f"{code.co_filename}:{line or code.co_firstlineno}"
        return KernelTypeError(f"kernel {kernel.name} cannot be compiled for ({shown}): {reason} ({place})")


def _type_name(argument: Any) -> str:
    try:
        return str(numba.typeof(argument))
    except ValueError:
        return type(argument).__name__


def explain(text: str, filename: str) -> tuple[str, int | None]:
    """Return what of Numba's message concerns the user, and the source line that it names."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = re.findall(rf'File "[^"]*{re.escape(filename.rsplit("/", 1)[-1])}", line (\d+)', text)
    line = int(lines[-1]) if lines else None
    own = re.findall(f"{numba_types.MARK}(.*?){numba_types.MARK}", text, re.DOTALL)
    if own:
        return own[0], line
    if found := re.search(r"No implementation of function Function\((.*?)\) found for signature:\s*>>> (.*?)\n", text):
        return f"there is no {found[2].strip()}", line
    if found := re.search(r"NameError: (.*)|name '(\w+)' is not defined", text):
        return found[0], line
    kept: list[str] = []
    for each in map(str.strip, text.splitlines()):
        if each.startswith(("File ", "This error", "During:", "[1]", "Failed in")) or not each:
            if kept:
                break
            continue
        kept.append(each)
    return " ".join(kept) or "its types cannot be found", line


def user_exception(error: dict[str, Any]) -> tuple[BaseException | None, tuple[str, str, int] | None]:
    """Return the exception that a kernel raised, and (function, file, line) of its raise statement."""
    if error["pickled"] is None:
        return None, None
    kind, arguments, place = pickle.loads(error["pickled"])  # noqa: S301 - written by this process
    return (None if kind is None else kind(*(arguments or ()))), place
