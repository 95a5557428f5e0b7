# SPDX-License-Identifier: MIT
"""``coop.jit``: kernels as objects, their launch on numpy, torch and DLPack arguments, and their errors."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn, overload

import numpy as np

from rocpy import platform
from rocpy._locks import hold_over_forks
from rocpy._messages.pickling import refuse_pickling
from rocpy.cooperative.kernel import backends
from rocpy.cooperative.kernel.arguments import narrowed, raise_versions, value_of
from rocpy.cooperative.kernel.limits import MOST_BLOCKS, MOST_THREADS, SHARED_LIMIT_BYTES
from rocpy.cooperative.kernel.mode import NATIVE, mode_of
from rocpy.errors import InvalidProblemError, KernelTypeError, UnsupportedError
from rocpy.runtime.graph import is_captured
from rocpy.runtime.stream import synchronize_stream

_ON_CPU = frozenset({np.ndarray, bool, int, float, complex})
_EXACT = frozenset({int, type(None), *(np.dtype(each).type for each in "bBhHiIlLqQ")})  # integers, and no stream
_lock = threading.RLock()
hold_over_forks(_lock)


class Kernel:
    """A Python function that runs once for each thread of a grid; created by `jit`.

    ``kernel[grid, block](*arguments)`` launches it, ``kernel[grid, block, stream, shared_bytes](*arguments)`` on a
    stream and with dynamic shared memory. Grid and block are numbers or tuples of up to three. On the CPU the results
    are complete when the call returns; with arrays on an AMD GPU it runs there, in stream order.

    Attributes
    ----------
    function
        The Python function.
    name
        Its name.
    debug
        Whether its launches run in debug mode.
    warp_size
        Threads of its warps: 32, 64, or ``"native"``.
    float_type
        Type of its literals: ``"float32"``, or empty for Python's float64.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        debug: bool,
        seed: int,
        cache: bool,
        warp_size: int | str,
        float_type: str,
        threads: int,
        stack_bytes: int,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.debug = debug
        self.warp_size = warp_size
        self.float_type = float_type
        self.cache = cache and not debug
        code = function.__code__
        others = code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        self.positional = -1 if others else code.co_argcount  # how many parameters it has, if all are positional
        self._settings: dict[str, Any] = {
            "warp_size": mode_of(self).warp_size,
            "debug": debug,
            "shuffle": debug,
            "seed": seed,
            "threads": threads,
            "stack_bytes": stack_bytes,
            "shared_limit_bytes": SHARED_LIMIT_BYTES,
        }
        self._launcher: Any = None
        self._launches: dict[Any, Launch] = {}
        self._loaded: dict[Any, Any] = {}  # on devices, by types, device, its generation and threads

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __reduce__(self) -> NoReturn:
        """Refuse: what it stands for is compiled code of this process."""
        raise TypeError(
            f"kernel {self.name} belongs to this process and cannot be pickled; import its module in the other "
            "process, or apply coop.jit to its .function there"
        )

    def __copy__(self) -> Kernel:
        """Return itself, as of a function."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        """Return itself, as of a function."""
        return self

    def __call__(self, *_arguments: Any) -> NoReturn:
        """Refuse: a kernel needs a grid."""
        raise InvalidProblemError(f"kernel {self.name}: give it a grid and a block, as {self.name}[grid, block](...)")

    def __getitem__(self, configuration: Any) -> Launch:
        """Return the kernel for one grid and block."""
        exact = _is_exact(configuration)  # else it may equal another that is valid: 1.0 and True equal 1
        launch = self._launches.get(configuration) if exact else None
        if launch is None:
            launch = Launch(self, configuration)
            if exact:
                if len(self._launches) > 256:
                    self._launches.clear()
                self._launches[configuration] = launch
        return launch

    @property
    def launcher(self) -> Any:
        """The compiled forms."""
        if self._launcher is None:
            with _lock:
                if self._launcher is None:
                    self._launcher = backends.cpu().Launcher(self)
        return self._launcher


class Launch:
    """A kernel with its grid and block; called with the kernel's arguments.

    Attributes
    ----------
    grid, block
        Extents, three each.
    stream
        The stream that was passed, or None.
    shared_bytes
        Dynamic shared memory of a block.
    """

    def __init__(self, kernel: Kernel, configuration: Any) -> None:
        parts = configuration if isinstance(configuration, tuple) else (configuration,)
        if not 2 <= len(parts) <= 4:
            raise InvalidProblemError(
                f"kernel {kernel.name}: launched with {len(parts)} settings; expected [grid, block], "
                "[grid, block, stream] or [grid, block, stream, shared_bytes]"
            )
        self._kernel = kernel
        grid = _extents(kernel, "grid", parts[0])
        block = _extents(kernel, "block", parts[1])
        self.stream = parts[2] if len(parts) > 2 else None
        shared = parts[3] if len(parts) > 3 else 0
        threads = block[0] * block[1] * block[2]
        if threads > MOST_THREADS:
            raise InvalidProblemError(
                f"kernel {kernel.name}: a block of {threads} threads; at most {MOST_THREADS} are supported"
            )
        if grid[0] * grid[1] * grid[2] > MOST_BLOCKS:
            raise InvalidProblemError(
                f"kernel {kernel.name}: a grid of {grid} blocks; at most {MOST_BLOCKS} are supported"
            )
        if (
            isinstance(shared, bool)
            or not isinstance(shared, (int, np.integer))
            or not 0 <= shared <= SHARED_LIMIT_BYTES
        ):
            raise InvalidProblemError(
                f"kernel {kernel.name}: {shared!r} bytes of dynamic shared memory; "
                f"from 0 to {SHARED_LIMIT_BYTES} are supported"
            )
        self.grid, self.block, self.shared_bytes = grid, block, int(shared)
        self._empty = 0 in grid
        self._config = backends.cpu().Config(
            grid=grid, block=block, dynamic_shared_bytes=int(shared), **kernel._settings
        )

    def __repr__(self) -> str:
        return f"<kernel {self._kernel.name}[{self.grid}, {self.block}]>"

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self, "use kernel[grid, block] in the other process")

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Run the grid on the arguments, to its end."""
        kernel = self._kernel
        if named:
            try:
                bound = inspect.signature(kernel.function).bind(*arguments, **named)
            except TypeError as unfit:
                raise InvalidProblemError(f"kernel {kernel.name}: {unfit}") from None
            bound.apply_defaults()  # of those before a named one, too
            arguments = bound.args
        if len(arguments) != kernel.positional:
            arguments = _completed(kernel, arguments)
        if kernel.float_type:
            arguments = tuple(map(narrowed, arguments))
        plain = _ON_CPU.issuperset(map(type, arguments))
        if not plain and (index := backends.amdgpu().device_of(arguments)) is not None:
            if not self._empty:
                backends.amdgpu().launch(kernel, self, arguments, index)
            return
        launcher = kernel.launcher
        if self.stream is not None:
            _wait_for(self.stream, kernel.name)
        values = tuple(a if type(a) is np.ndarray else value_of(kernel, i, a) for i, a in enumerate(arguments))
        if self._empty:
            return
        if plain:
            launcher(self._config, values)
            return
        try:
            launcher(self._config, values)
        finally:  # a kernel that fails has written until then
            raise_versions(arguments, launcher.written(values))


def check_parameters(kernel: Kernel) -> None:
    """Refuse a kernel that has parameters of other kinds than positional ones."""
    advice = {
        inspect.Parameter.VAR_POSITIONAL: ("*", "pass a tuple as one parameter"),
        inspect.Parameter.VAR_KEYWORD: ("**", "name its parameters"),
        inspect.Parameter.KEYWORD_ONLY: ("", "put it before the * of the signature"),
    }
    for each in inspect.signature(kernel.function, follow_wrapped=False).parameters.values():
        if each.kind in advice:
            stars, told = advice[each.kind]
            raise KernelTypeError(
                f"kernel {kernel.name}: its parameter {stars}{each.name} is not positional, as all must be: {told}"
            )


def _completed(kernel: Kernel, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments with the defaults of those that are missing."""
    check_parameters(kernel)
    code, defaults = kernel.function.__code__, kernel.function.__defaults__ or ()
    missing = code.co_argcount - len(arguments)
    if not 0 <= missing <= len(defaults):
        names = ", ".join(code.co_varnames[: code.co_argcount])
        raise InvalidProblemError(f"kernel {kernel.name}({names}) was called with {len(arguments)} arguments")
    return arguments + defaults[len(defaults) - missing :]


def _is_exact(configuration: Any) -> bool:
    """Return whether settings of a launch, without a stream, consist of integers and tuples of them."""
    if type(configuration) is not tuple:
        return False
    for part in configuration:
        if type(part) not in _EXACT and not (type(part) is tuple and _EXACT.issuperset(map(type, part))):
            return False
    return True


def _extents(kernel: Kernel, what: str, value: Any) -> tuple[int, int, int]:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    least = 0 if what == "grid" else 1
    numbers = [int(p) for p in parts if isinstance(p, (int, np.integer)) and not isinstance(p, bool)]
    if len(numbers) != len(parts) or not 1 <= len(parts) <= 3:
        raise InvalidProblemError(
            f"kernel {kernel.name}: {what} is {value!r}; it must be an integer or a tuple of one to three integers"
        )
    if min(numbers) < least or max(numbers) > MOST_BLOCKS:
        raise InvalidProblemError(
            f"kernel {kernel.name}: {what} is {value!r}; extents must be {least} or more, below 2**31"
        )
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _wait_for(stream: Any, name: str) -> None:
    """What was queued before comes first; the kernel itself is done when the launch returns."""
    if is_captured(stream):
        raise UnsupportedError(
            f"kernel {name}: its stream is being captured into a graph, and on arrays in CPU memory it runs at once, "
            "which a graph cannot contain; launch it before or after the capture"
        )
    synchronize_stream(stream)


@overload
def jit(function: Callable[..., Any], /) -> Kernel: ...
@overload
def jit(
    *,
    debug: bool | None = None,
    seed: int = 0,
    cache: bool = False,
    warp_size: int | str = 64,
    float: str | None = None,
    threads: int = 0,
    stack_bytes: int = 65536,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    debug: bool | None = None,
    seed: int = 0,
    cache: bool = False,
    warp_size: int | str = 64,
    float: str | None = None,  # noqa: A002 - read as coop.jit(float="float32")
    threads: int = 0,
    stack_bytes: int = 65536,
) -> Any:
    """Return a kernel for a Python function, which Numba compiles at its first launch with arguments of new types.

    Parameters
    ----------
    function
        The function, which runs once for each thread and returns nothing; Python functions that it calls are compiled
        with it.
    debug
        Whether to check launches: threads run in a shuffled order, undefined results are poisoned, and a divergent
        barrier, a race on shared memory or on an array, a read of uninitialized memory, an index out of range or an
        integer division by zero raises with block, thread and line. Much slower; blocks run one after another. None: as
        set by ``ROCPY_SIMT_DEBUG``.
    seed
        Seed of the order in debug mode.
    cache
        Whether to cache the compiled code on disk, next to the source file or in ``NUMBA_CACHE_DIR``.
    warp_size
        Threads of a warp: 64 or 32, on the CPU and on every GPU, or ``"native"``: the GPU's default, and 64 on the CPU.
        A GPU whose waves can have that number of lanes runs the kernel in that mode (gfx10 to gfx12 support both, CDNA
        64, gfx1250 32); for other GPUs a kernel that depends on the warp size is refused.
    float
        ``"float32"``: float literals, and floats that integers become, are float32 unless they meet float64 data;
        Python floats that are passed as arguments are float32, ``np.float64`` numbers float64. None: all are float64,
        as in Python.
    threads
        OS threads over which the blocks are distributed; 0: ``ROCPY_NUM_THREADS``, otherwise the CPUs of this process.
    stack_bytes
        Stack size of each fiber, at least; local arrays that need more get it.

    Returns
    -------
    Kernel
        Launched as ``kernel[grid, block](*arguments)``.

    Raises
    ------
    KernelTypeError
        Raised by a launch: the kernel cannot be compiled for these arguments.
    KernelError
        Raised by a launch: the kernel failed; the subclass says how.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def row_sums(x, out):
    ...     block = coop.this_block()
    ...     acc = np.float32(0)
    ...     for j in range(coop.threadIdx.x, x.shape[1], coop.blockDim.x):
    ...         acc += x[coop.blockIdx.x, j]
    ...     total = coop.sum(block, acc)
    ...     if coop.threadIdx.x == 0:
    ...         out[coop.blockIdx.x] = total
    >>> x = np.ones((3, 1000), np.float32)
    >>> out = np.empty(3, np.float32)
    >>> row_sums[3, 256](x, out)
    >>> out.tolist()
    [1000.0, 1000.0, 1000.0]
    """
    if not isinstance(warp_size, (int, str)) or warp_size not in (32, 64, NATIVE):
        raise InvalidProblemError(f"warp_size is {warp_size!r}; it must be 32, 64 or 'native'")
    if float not in (None, "float32", "float64"):
        raise InvalidProblemError(f"float is {float!r}; it must be 'float32', 'float64' or None")
    if not isinstance(threads, int) or not 0 <= threads < 2**31:
        raise InvalidProblemError(f"threads is {threads!r}; it must be an integer from 0 to 2**31 - 1")
    if not isinstance(stack_bytes, int) or not 16384 <= stack_bytes <= 2**30:
        raise InvalidProblemError(f"stack_bytes is {stack_bytes!r}; it must be from 16384 to 2**30")
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise InvalidProblemError(f"seed is {seed!r}; it must be an integer from 0 to 2**64 - 1")
    if debug is None:
        debug = platform.environment("ROCPY_SIMT_DEBUG") == "1"
    if not threads:
        platform.environment("ROCPY_NUM_THREADS")  # which launches read, and an invalid value is refused

    def make(wrapped: Callable[..., Any]) -> Kernel:
        if isinstance(wrapped, Kernel):
            wrapped = wrapped.function
        if not isinstance(wrapped, FunctionType):
            compiled = "; pass its py_func" if hasattr(wrapped, "py_func") else ""
            raise KernelTypeError(f"coop.jit takes a Python function, not {type(wrapped).__name__}{compiled}")
        if wrapped.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise KernelTypeError(
                f"kernel {wrapped.__name__} is a coroutine function, which kernels cannot be: use def"
            )
        return Kernel(
            wrapped,
            debug=bool(debug),
            seed=seed,
            cache=cache,
            warp_size=warp_size,
            float_type="float32" if float == "float32" else "",
            threads=threads,
            stack_bytes=stack_bytes,
        )

    return make if function is None else make(function)
