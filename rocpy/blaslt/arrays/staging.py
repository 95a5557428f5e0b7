# SPDX-License-Identifier: MIT
"""Arrays in CPU memory on a platform whose device has memory of its own: copied there and back, and the call blocks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from rocpy import dtypes, platform
from rocpy._messages.log import timed
from rocpy._operand import allocate_like, describe
from rocpy.blaslt.arrays.blocks import have_blocks, kinds
from rocpy.blaslt.arrays.copies import assign, contiguous
from rocpy.blaslt.model.epilogues import find_epilogue
from rocpy.blaslt.model.lowering import lower
from rocpy.blaslt.model.options import Options, resolve_options
from rocpy.blaslt.model.packed import Packed
from rocpy.blaslt.model.preparation import Preparation
from rocpy.blaslt.model.problem import RESULT_TYPES, OperandInfo, Problem
from rocpy.blaslt.model.product_call import ProductCall
from rocpy.blaslt.model.refusals import (
    cast_refused,
    conversion_refused,
    copy_refused,
    readable_form,
    refuse_turning,
)
from rocpy.blaslt.model.scale_arguments import ScaleArguments, is_scale_array
from rocpy.blaslt.model.settings import clamp_bounds
from rocpy.blaslt.model.shapes import dense_strides, matrix_layout
from rocpy.blaslt.model.weight_operand import is_weight
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.runtime.device import Device
from rocpy.runtime.handles.call_stream import await_operand
from rocpy.runtime.handles.stream_handle import stream_device
from rocpy.runtime.memory import Buffer

_CPU, _PINNED = 1, 11  # kDLCPU, kDLROCMHost


def _elements(view: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return a dense array's memory as numpy sees it; the array must outlive it."""
    dtype = np.dtype(np.uint8) if view["dtype"] == "uint8" else dtypes.lookup(view["dtype"]).numpy
    count = math.prod(view["shape"])
    if count == 0:
        return np.empty(view["shape"], dtype)
    block = (ctypes.c_char * (count * dtype.itemsize)).from_address(view["data"])
    return np.frombuffer(block, dtype).reshape(view["shape"])


def upload(array: Any, name: str, shape: tuple[int, ...] | None = None, *, blocks: bool = False) -> Any:
    """Return a copy of an array on the device, broadcast to ``shape`` if given; what is there comes back as it is.

    ``blocks``: the product has scales by blocks, and b is read along K. A Buffer cannot lie in columns, so that b is
    stored by them.
    """
    if array is None or is_weight(array):
        return array
    if isinstance(array, Packed):
        moved = _moved(array.memory, name, None)
        return array if moved is array.memory else Packed(moved, array.dtype, array.right)
    if hasattr(array, "resolve_conj"):  # torch's lazy conjugates are no memory of their own
        array = array.resolve_conj()
    view = describe(array, name)
    if view["device_type"] not in (_CPU, _PINNED):
        return array
    if view["dtype"] not in dtypes.DTYPES:
        raise InvalidProblemError(f"{name} is {view['dtype']}; products support {', '.join(RESULT_TYPES)}; cast it")
    if blocks and name == "b" and len(view["shape"]) > 1 and hasattr(array, "swapaxes"):
        return Packed(_moved(array.swapaxes(-1, -2), name, None), view["dtype"], True)
    return _moved(array, name, shape)


def _moved(array: Any, name: str, shape: tuple[int, ...] | None) -> Any:
    """Return a dense copy on the device, of bytes too."""
    view = describe(array, name)
    if view["device_type"] not in (_CPU, _PINNED):
        return array
    await_operand(array)
    wanted = tuple(view["shape"]) if shape is None else shape
    if tuple(view["shape"]) != wanted or tuple(view["strides"]) != dense_strides(wanted):
        array = contiguous(array, shape)
        view = describe(array, name)
    buffer = Buffer(tuple(view["shape"]), view["dtype"], device=Device.current())
    buffer.copy_from(_elements(view))
    return buffer


def upload_scale(scale: Any, name: str) -> Any:
    """Return a scale, on the device if it is an array."""
    return _moved(scale, name, None) if is_scale_array(scale) else scale


def upload_scales(scales: ScaleArguments | None) -> ScaleArguments | None:
    """Return the scales of a product with arrays on the device."""
    if scales is None:
        return None
    return scales.replaced(
        a=upload_scale(scales.a, "scale_a"),
        b=upload_scale(scales.b, "scale_b"),
        c=upload_scale(scales.c, "scale_c"),
        d=upload_scale(scales.d, "scale_d"),
    )


def take(array: Any, name: str, options: Options, scales: ScaleArguments | None = None) -> Any:
    """Return a copy on the device, unless the options forbid copies and the library could not take the layout there.

    ``scales`` are those of the product.
    """
    placed = is_weight(array) or isinstance(array, Packed)
    if options.copies == "error" and array is not None and not placed:
        view = describe(array, name)
        shape, strides = tuple(view["shape"]), tuple(view["strides"])
        if view["copied"] and not (name in ("a", "b") and _is_conjugate(array)):
            raise conversion_refused(name, OperandInfo(shape, strides, view["dtype"]).text)
        if name in ("a", "b") and len(shape) > 1 and matrix_layout(shape[-2:], strides[-2:]) is None:
            raise copy_refused(name, OperandInfo(shape, strides, view["dtype"]).text)
    return upload(array, name, blocks=have_blocks(scales))


def _is_conjugate(array: Any) -> bool:
    return hasattr(array, "resolve_conj") and bool(array.is_conj())


def download(buffer: Any, like: Any, stream: Any = None) -> Any:
    """Return a device result as an array of another array's framework, in CPU memory."""
    result = allocate_like(like, tuple(buffer.shape), str(buffer.dtype))
    view = describe(result, "result")
    target = _elements(view)
    if target.size:
        target.setflags(write=True)
        buffer.copy_to(target, stream=stream)
    buffer.close()
    return result


def has_own_memory() -> bool:
    """Whether the platform's devices cannot use CPU memory."""
    return not platform.current().host_memory


def copied_names(info: dict[str, OperandInfo | None], b: Any) -> tuple[str, ...]:
    """Return the names of operands that are copied to the device; a Weight is there already."""
    return tuple(name for name, seen in info.items() if seen is not None and not (name == "b" and is_weight(b)))


def needed(array: Any) -> bool:
    """Whether an array is in CPU memory that the platform's device cannot use."""
    if isinstance(array, Packed):
        return needed(array.memory)
    return not platform.current().host_memory and bool(describe(array, "a")["device_type"] == _CPU)


def prototype(array: Any) -> Any:
    """Return an empty array of another's framework, to make results by without keeping the other alive."""
    array = array.memory if isinstance(array, Packed) else array
    return allocate_like(array, (0,), describe(array, "a")["dtype"])


def check_layouts(
    info: dict[str, OperandInfo | None],
    factors: tuple[Any, Any],
    options: Options,
    scales: ScaleArguments | None,
    arguments: dict[str, Any],
) -> None:
    """Refuse what the library could not take on the device either, a conjugate among it, where copies are forbidden.

    ``info`` describes the operands by name, ``given`` are the user's a and b, ``arguments`` those of ``Problem.make``.
    """
    left, right = info["a"], info["b"]
    if options.copies != "error" or left is None or right is None:
        return
    conjugates = _is_conjugate(factors[0]), _is_conjugate(factors[1])
    if not any(conjugates):
        return  # the others are checked as they are copied
    dtype = arguments["dtype"]
    more = {name: value for name, value in arguments.items() if name != "dtype"}
    problem = Problem.make(
        left,
        right,
        info["c"],
        bias=info["bias"],
        aux=info["aux"],
        dtype=None if dtype is None else dtypes.lookup(dtype).name,
        conj_a=conjugates[0],
        conj_b=conjugates[1],
        **more,
        **kinds(scales, left.shape, right.shape),
    )
    if 0 not in problem.result_shape:
        refuse_copies(problem)


def refuse_copies(problem: Problem) -> None:
    """Refuse a layout that the library could not take on the device either."""
    lowered = lower(problem)
    for name in lowered.copies:
        if name == "out" and problem.out is not None and problem.out.dtype != problem.dtype:
            raise cast_refused(problem.out.dtype, problem.dtype)
        conjugated = {"a": problem.conj_a, "b": problem.conj_b}.get(name, False)
        form = readable_form(name, columns=lowered.columns, blocks=problem.scale_a == "block32", conjugated=conjugated)
        raise copy_refused(name, getattr(problem, name).text, form)
    if lowered.transposed and problem.bias is not None:
        refuse_turning(Options(copies="error"), problem.bias.text, problem.epilogue)


def check_allowed(options: Options) -> None:
    """Refuse the copies where the options forbid them."""
    if options.host_operands == "error":
        raise UnsupportedError(
            "a: in CPU memory, which the device cannot use, and options(host_operands='error') forbids the "
            "copy; move the operands to the device"
        )


@contextmanager
def on_device_of(stream: Any) -> Iterator[None]:
    """Make a stream's device the current one, where operands are copied to; without a stream it is the caller's."""
    if stream is None:
        yield
    else:
        with Device(stream_device(stream)):
            yield


def staged(call: ProductCall, info: dict[str, OperandInfo | None]) -> Preparation[ProductCall]:
    """Return how a product of operands in CPU memory is computed; refuses where the options forbid the copies.

    ``info`` describes the operands by name. All that can be refused is refused before anything is copied, and with the
    names and shapes that the user knows.
    """
    options = resolve_options(call.options)
    check_allowed(options)
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
        epilogue=find_epilogue(call.epilogue).name,
        dtype=None if call.dtype is None else dtypes.lookup(call.dtype).name,
        compute=call.compute,
        clamp=None if call.clamp is None else clamp_bounds(call.clamp),
        conj_a=_is_conjugate(call.a),
        conj_b=_is_conjugate(call.b),
        **kinds(call.scales, left.shape, right.shape),
    )
    if options.copies == "error" and 0 not in problem.result_shape:
        refuse_copies(problem)
        # What is left is between copies of ours, and no layout of the user's.
        call = call.replaced(options=replace(options, copies="allow"))
    return _Staged(call, problem)


class _Staged(Preparation[ProductCall]):
    """A product on copies of its operands on the stream's device, whose results are brought back."""

    def __init__(self, call: ProductCall, problem: Problem) -> None:
        self._call, self._problem = call, problem
        # The copies, and the device that is the current one until they are given back.
        self._held = ExitStack()

    def prepare(self) -> ProductCall:
        """Return the call on the copies."""
        call, problem = self._call, self._problem
        self._held.enter_context(on_device_of(call.stream))
        scales = upload_scales(call.scales)
        blocks = have_blocks(scales)
        moved = {}
        with timed("copied the operands of %s to the device", problem):
            for name in ("a", "b", "c", "bias", "aux"):
                value = getattr(call, name)
                shape = problem.result_shape if name == "c" else None
                copy = moved[name] = upload(value, name, shape, blocks=blocks)
                if copy is not value:
                    self._held.callback((copy.memory if isinstance(copy, Packed) else copy).close)
        dtype = call.dtype if call.out is None else problem.dtype
        return call.replaced(**moved, out=None, dtype=dtype, scales=scales)

    def finish(self, outputs: Any) -> Any:
        """Return the outputs in arrays like the operands, or in ``out``."""
        call = self._call
        result, extra = outputs if isinstance(outputs, tuple) else (outputs, None)
        like = getattr(call.a, "memory", call.a)
        fetched = download(result, like, call.stream)
        if call.out is not None:
            assign(call.out, fetched)
            fetched = call.out
        if extra is None:
            return fetched
        return fetched, {key: download(value, like, call.stream) for key, value in extra.items()}

    def close(self) -> None:
        """Free the copies and make the caller's device the current one again."""
        self._held.close()
