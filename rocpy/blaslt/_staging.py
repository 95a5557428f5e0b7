# SPDX-License-Identifier: MIT
"""Arrays in CPU memory on a platform whose device has memory of its own: copied there and back, and the call blocks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rocpy import dtypes, platform
from rocpy._operand import allocate_like, describe
from rocpy.blaslt._blocks import kinds
from rocpy.blaslt._options import Options, resolve_options
from rocpy.blaslt._policy import SCALES, assign, clamp_bounds, contiguous, copy_refused, transposed_product
from rocpy.blaslt.epilogues import find_epilogue
from rocpy.blaslt.lowering import lower
from rocpy.blaslt.problem import RESULT_TYPES, OperandInfo, Problem, dense_strides
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.runtime.memory import Buffer

_CPU = 1  # kDLCPU


def _elements(view: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return a dense array's memory as numpy sees it; the array must outlive it."""
    dtype = dtypes.lookup(view["dtype"]).numpy
    count = math.prod(view["shape"])
    if count == 0:
        return np.empty(view["shape"], dtype)
    block = (ctypes.c_char * (count * dtype.itemsize)).from_address(view["data"])
    return np.frombuffer(block, dtype).reshape(view["shape"])


def upload(array: Any, name: str, shape: tuple[int, ...] | None = None) -> Any:
    """Return a copy of an array on the device, broadcast to ``shape`` if given; what is there comes back as it is."""
    if array is None or isinstance(array, Buffer) or type(array).__name__ == "Weight":
        return array
    if type(array).__name__ == "Packed":
        return type(array)(upload(array.memory, name), array.dtype, array.right)
    if hasattr(array, "resolve_conj"):  # torch's lazy conjugates are no memory of their own
        array = array.resolve_conj()
    view = describe(array, name)
    if view["device_type"] != _CPU:
        return array
    if view["dtype"] not in dtypes.DTYPES:
        raise InvalidProblemError(f"{name} is {view['dtype']}; products take {', '.join(RESULT_TYPES)}: cast it")
    wanted = tuple(view["shape"]) if shape is None else shape
    if tuple(view["shape"]) != wanted or tuple(view["strides"]) != dense_strides(wanted):
        array = contiguous(array, shape)
        view = describe(array, name)
    buffer = Buffer(tuple(view["shape"]), view["dtype"])
    buffer.copy_from(_elements(view))
    return buffer


def upload_scales(scales: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Return the scales of a product, and whether the largest magnitude is wanted, with arrays on the device."""
    if scales is None:
        return None
    moved = tuple(
        value if value is None or isinstance(value, bool | int | float | np.generic) else upload(value, name)
        for name, value in zip(SCALES, scales, strict=False)
    )
    return (*moved, *scales[5:])


def download(buffer: Any, like: Any, stream: Any = None) -> Any:
    """Return a device result as an array of another array's framework, in CPU memory."""
    made = allocate_like(like, tuple(buffer.shape), str(buffer.dtype))
    view = describe(made, "result")
    target = _elements(view)
    if target.size:
        target.setflags(write=True)
        buffer.copy_to(target, stream=stream)
    buffer.close()
    return made


def needed(array: Any) -> bool:
    """Whether an array is in CPU memory that the platform's device cannot use."""
    if platform.current().host_memory or isinstance(array, Buffer):
        return False
    if type(array).__name__ == "Packed":
        return needed(array.memory)
    return bool(describe(array, "a")["device_type"] == _CPU)


def _info(array: Any, name: str) -> OperandInfo | None:
    if array is None:
        return None
    if type(array).__name__ == "Weight":
        return OperandInfo.dense(tuple(array.shape), array.dtype)
    if type(array).__name__ == "Packed":
        return array.info
    view = describe(array, name, output=name == "out")
    return OperandInfo(tuple(view["shape"]), tuple(view["strides"]), view["dtype"])


def refuse_copies(problem: Problem) -> None:
    """Refuse a layout that the library could not take on the device either."""
    for name in lower(problem).copies:
        operand = getattr(problem, "bias" if name == "transpose" else name)
        raise copy_refused(name, operand.text)


def check_allowed(options: Options) -> None:
    """Refuse the copies where the options forbid them."""
    if options.host_operands == "error":
        raise UnsupportedError(
            "a: in CPU memory, which the device cannot use, and options(host_operands='error') forbids the "
            "copy; move the operands to the device"
        )


def product(run: Callable[..., Any], operands: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    """Run a product on copies of its operands and bring the result back; refuses when the options forbid the copies."""
    options = resolve_options(arguments["options"])
    check_allowed(options)
    names = ("a", "b", "c", "bias", "aux", "out")
    given = dict(zip(names, operands, strict=True))
    # All that can be refused is refused before anything is copied, and with the names and shapes that the user knows.
    info = {name: _info(value, name) for name, value in given.items()}
    left, right = info["a"], info["b"]
    if left is None or right is None:
        raise InvalidOperandError(f"{'a' if left is None else 'b'}: None; a product needs both operands")
    problem = Problem.make(
        left,
        right,
        info["c"],
        bias=info["bias"],
        aux=info["aux"],
        out=info["out"],
        epilogue=find_epilogue(arguments["epilogue"]).name,
        dtype=None if arguments["dtype"] is None else dtypes.lookup(arguments["dtype"]).name,
        compute=arguments["compute"],
        clamp=None if arguments["clamp"] is None else clamp_bounds(arguments["clamp"]),
        **kinds(arguments["given"], left.shape, right.shape),
    )
    if options.copies == "error" and 0 not in problem.result_shape:
        refuse_copies(problem)
    if problem.column_bias:
        # Turned around here, where the arrays still are their framework's and not bare memory of the device.
        return transposed_product(run, given, problem.result_shape, problem.dtype, arguments, lambda: None)
    out = given["out"]
    arguments = {**arguments, "given": upload_scales(arguments["given"])}
    if out is not None:
        arguments = {**arguments, "dtype": problem.dtype}
    moved = {name: upload(given[name], name, problem.result_shape if name == "c" else None) for name in names[:-1]}
    result = run(*moved.values(), None, **arguments)
    extra = None
    if isinstance(result, tuple):
        result, extra = result
    like = given["a"].memory if type(given["a"]).__name__ == "Packed" else given["a"]
    for name, value in moved.items():
        if value is not given[name]:
            (value.memory if type(value).__name__ == "Packed" else value).close()
    stream = arguments["stream"]
    fetched = download(result, like, stream)
    if out is not None:
        assign(out, fetched)
        fetched = out
    return fetched if extra is None else (fetched, {key: download(value, like, stream) for key, value in extra.items()})
