# SPDX-License-Identifier: MIT
"""Memory that queued work or a graph uses stays until that work has run, whoever closes its Buffer meanwhile."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib.util
import weakref
from pathlib import Path

import blocked_streams
import numpy as np
import pytest
from blocked_streams import blocked, delay
from failing_memory import each_failure

import rocpy
from rocpy.runtime.kernels.arguments import pack
from rocpy.runtime.stream import hold_objects

BYTES = 1 << 16
SUPPORT = str(Path(blocked_streams.__file__).parent)

# A kernel, Buffers, and what reuses memory that was given back too early.
QUEUED = """
    import gc
    import numpy as np, rocpy
    from blocked_streams import blocked
    from rocpy import cooperative as coop

    @coop.jit
    def add(x, n, out):
        i = coop.threadIdx.x
        if i < n:
            out[i] = x[i] + 1

    code = coop.compile(add, "void(float32[::1],int64,float32[::1])", arch="gfx942", threads=64)
    kernel = rocpy.Module.from_code(code.code).kernel("add")
    source = np.arange(64, dtype=np.float32)

    def own():
        buffer = rocpy.Buffer(64, "float32")
        buffer.copy_from(source)
        return buffer

    BUFFERS = [own, lambda: rocpy.Buffer.from_dlpack(source.copy())]

    def reuse_memory():
        gc.collect()
        buffers = [rocpy.Buffer(64, "float32") for _ in range(20)]
        for buffer in buffers:
            buffer.copy_from(np.full(64, -7, np.float32))
        return buffers, [np.full(64, -9, np.float32) for _ in range(50)]

    def queue(stream, x, out):
        kernel.launch(1, 64, x, 64, 4, 64, out, 64, 4, stream=stream)
"""


class Owned(np.ndarray):
    """An array that tells when it is gone."""


def shared(gone):
    """Return a Buffer over an array's memory; `gone` gets an item when nobody keeps the array any more."""
    array = np.zeros(BYTES, np.uint8).view(Owned)
    weakref.finalize(array, gone.append, True)
    return rocpy.Buffer.from_dlpack(array)


DROPS = {
    "close": lambda buffer: buffer.close(),
    "close and drop": lambda buffer: (buffer.close(), gc.collect()),
    "drop": lambda buffer: gc.collect(),
}


@pytest.mark.parametrize("drop", DROPS)
def test_a_queued_fill_keeps_the_memory(drop):
    if not rocpy.platform.current().host_memory:
        pytest.skip("the device cannot access numpy's memory")
    gone = []
    with rocpy.Stream(nonblocking=True) as stream:
        with blocked(stream):
            buffer = shared(gone)
            buffer.fill(7, stream=stream)
            DROPS[drop](buffer)
            del buffer
            gc.collect()
            assert not gone
        gc.collect()
        assert gone


def test_a_fill_of_the_null_stream_keeps_the_memory():
    for _ in range(20):
        buffer = rocpy.Buffer(64 << 20)
        buffer.fill(1)
        buffer.close()
    rocpy.Device(0).synchronize()


@pytest.mark.parametrize("location", ["device", "host", "managed"])
def test_a_graph_keeps_the_memory_that_a_captured_fill_writes(location):
    with rocpy.Stream(nonblocking=True) as stream:
        buffer = rocpy.Buffer(1 << 22, location=location)
        with stream.capture() as graph:
            buffer.fill(7, stream=stream)
        seen = np.from_dlpack(buffer) if rocpy.platform.current().host_memory else None
        buffer.close()
        gc.collect()
        graph.launch()
        stream.synchronize()
        assert seen is None or (seen == 7).all()
        del seen
        gc.collect()
        graph.launch()  # the graph alone keeps it now
        stream.synchronize()
        graph.close()


def test_arguments_of_a_kernel_keep_the_memory_of_buffers_and_of_ctypes_objects():
    if not rocpy.platform.current().host_memory:
        pytest.skip("the device cannot access numpy's memory")

    class Pair(ctypes.Structure):
        _fields_ = (("text", ctypes.c_char_p), ("number", ctypes.c_int))

    gone = []
    buffer, pair = shared(gone), Pair(b"text", 3)
    _, owners = pack([buffer, pair])
    assert any(one is pair for one in owners)
    buffer.close()
    del buffer
    gc.collect()
    assert not gone
    del owners
    gc.collect()
    assert gone


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="needs Numba")
@pytest.mark.parametrize("drop", ["x.close()", "x.close(); del x", "del x"])
def test_a_queued_kernel_keeps_the_memory_of_its_arguments(run_python, drop):
    code = f"""
    kept = []   # to free memory waits for the device
    for buffer in BUFFERS:
        x = buffer()
        with rocpy.Stream(nonblocking=True) as stream:
            out = rocpy.Buffer(64, "float32")
            with blocked(stream):
                queue(stream, x, out)
                {drop}
                kept.append(reuse_memory())
            assert (out.to_numpy() == source + 1).all(), out.to_numpy()
    """
    run_python(QUEUED + code, PYTHONPATH=SUPPORT, ROCPY_HOST_ARCH="gfx942", ROCPY_HOST_STAGING=None)


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="needs Numba")
def test_a_graph_keeps_the_memory_of_a_kernels_arguments(run_python):
    code = """
    kept = []   # to free memory waits for the device
    for buffer in BUFFERS:
        x = buffer()
        with rocpy.Stream(nonblocking=True) as stream:
            out = rocpy.Buffer(64, "float32")
            with stream.capture() as graph:
                queue(stream, x, out)
            x.close()
            del x
            kept.append(reuse_memory())
            graph.launch()
            stream.synchronize()
            assert (out.to_numpy() == source + 1).all(), out.to_numpy()
    """
    run_python(QUEUED + code, PYTHONPATH=SUPPORT, ROCPY_HOST_ARCH="gfx942", ROCPY_HOST_STAGING=None)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_graph_runs_on_the_null_stream_of_its_device(number):
    """Whichever device is current: 0 and 1 are HIP's numbers for that stream, and 2 is that of the thread's own."""
    with rocpy.Buffer(4, "uint8", device=1) as buffer, rocpy.Stream(device=1) as stream:
        with stream.capture() as graph:
            buffer.fill(7, stream=stream)
        with rocpy.Device(0):
            graph.launch(stream=number)
        assert (buffer.to_numpy() == 7).all()
        graph.close()


def test_memory_that_runs_out_as_a_stream_is_to_hold_objects_waits_for_it():
    raised = []
    with rocpy.Stream() as stream:
        functions = []

        def holding():
            functions.append(delay(stream, 0.01))
            return functools.partial(hold_objects, stream)

        for error in each_failure(holding):
            if error is None:
                stream.synchronize()
            else:
                raised.append(error)
                assert stream.done
    assert raised
