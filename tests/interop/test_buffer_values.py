# SPDX-License-Identifier: MIT
"""What a Buffer is to numpy, and arrays whose memory does not hold their values."""

import functools
import gc
import re

import numpy as np
import pytest

import rocpy
import rocpy.rccl
from rocpy.compat.nvmath._algorithm import Algorithm
from rocpy.errors import ClosedError, InvalidOperandError

KINDS = ["bfloat16", "float8_e4m3fn", "float8_e8m0fnu", "float6_e2m3fn", "float4_e2m1fn", "float32", "uint8"]


def filled(kind):
    buffer = rocpy.Buffer((2, 3), kind)
    buffer.copy_from(np.arange(6, dtype=np.uint8).reshape(2, 3).astype(buffer.dtype))
    return buffer


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_sees_its_elements(kind):
    """A view of the memory, which outlives the buffer; copies and other types where they are asked for."""
    buffer = filled(kind)
    if not rocpy.platform.current().host_memory:
        refuses(functools.partial(np.asarray, buffer), "on the device; copy it with to_numpy()")
        return
    view, copy, wide = np.asarray(buffer), np.array(buffer), np.asarray(buffer, np.float64)
    assert (view.dtype, view.shape, copy.dtype, wide.dtype) == (buffer.dtype, (2, 3), buffer.dtype, np.float64)
    address = buffer.handle
    assert view.ctypes.data == address != copy.ctypes.data
    np.testing.assert_array_equal(wide, buffer.to_numpy().astype(np.float64))
    buffer.close()
    del buffer
    gc.collect()
    np.testing.assert_array_equal(view.view(np.uint8), copy.view(np.uint8))


@pytest.mark.skipif(int(np.__version__.partition(".")[0]) < 2, reason="numpy 1 does not ask for no copy")
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_is_not_wanted_is_refused(kind):
    if not rocpy.platform.current().host_memory:
        pytest.skip("device memory is no numpy array")
    buffer = filled(kind)
    assert np.asarray(buffer, buffer.dtype, copy=False).ctypes.data == buffer.handle
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(buffer, np.float64, copy=False)


def test_a_closed_buffer_is_no_array():
    for kind in KINDS[:2]:
        buffer = filled(kind)
        buffer.close()
        with pytest.raises(ClosedError):
            np.asarray(buffer)


def test_a_read_only_buffer_is_a_read_only_array():
    source = np.ones(3, filled("bfloat16").dtype).view(np.uint16)
    source.flags.writeable = False
    assert not np.asarray(rocpy.Buffer.from_dlpack(source)).flags.writeable


def refuses(call, text):
    with pytest.raises(InvalidOperandError, match=f"^array: .*{re.escape(text)}"):
        call()


def test_masks_are_not_lost():
    buffer = filled("float32")
    masked = np.ma.masked_array(np.ones((2, 3), np.float32), mask=np.eye(2, 3))
    for call in (buffer.copy_from, buffer.copy_to, rocpy.Buffer.from_dlpack):
        refuses(lambda call=call: call(masked), "would lose its mask; pass array.filled(value)")


class Short:
    """An array of whose __array_interface__ only the first element lies in its data, or which has a mask."""

    def __init__(self, shape, dtype, **more):
        self.shape, self.dtype = shape, np.dtype(dtype)
        described = {"version": 3, "shape": shape, "typestr": self.dtype.str, "data": bytes(self.dtype.itemsize)}
        self.__array_interface__ = {**described, **more}


def test_nothing_is_read_beyond_an_array_interface():
    """Not by what reads arrays as numpy does either."""
    x, w = np.ones((2, 3), np.float32), np.ones((1, 3, 3), np.float32)
    add = rocpy.epilogue(lambda x, b: x + b)
    with rocpy.rccl.Communicator.init(1, 0, rocpy.rccl.UniqueId.make()) as comm:
        for name, call in {
            "array": lambda: filled("float32").copy_from(Short((2, 3), "<f4")),
            "array: .*Short": lambda: filled("float32").copy_from(Short((), "<f4", mask=np.ones((2, 3), bool))),
            "b|array": lambda: add.evaluate(x, b=Short((3,), "<f4")),
            "offsets": lambda: rocpy.grouped_matmul(x, w, offsets=Short((2,), "<i8")),
            "array: .*Short: the data": lambda: Algorithm.from_numpy(Short((1,), "S8", offset=400)),
            "scalar": lambda: comm.premul_sum(Short((1,), "<f4", offset=400)),
        }.items():
            with pytest.raises(
                InvalidOperandError, match=rf"^({name}).*(has \d+ bytes, and shape|mask .* would be lost)"
            ):
                call()


@pytest.mark.torch
def test_tensors_whose_memory_is_not_their_value():
    torch = pytest.importorskip("torch")
    buffer, ones = filled("float32"), torch.ones(2, 3)
    refuses(lambda: buffer.copy_from(ones.clone().requires_grad_()), "tensor.detach()")
    refuses(lambda: buffer.copy_from(ones.bfloat16()), "cannot read")
    for call in (buffer.copy_from, rocpy.Buffer.from_dlpack):
        refuses(lambda call=call: call(torch._neg_view(ones)), "resolve_neg()")


@pytest.mark.jax
def test_arrays_that_jax_deleted():
    jax = pytest.importorskip("jax")
    array = jax.device_put(np.ones((2, 3), np.float32))
    array.delete()
    for call in (filled("float32").copy_from, rocpy.Buffer.from_dlpack):
        refuses(lambda call=call: call(array), "deleted")
