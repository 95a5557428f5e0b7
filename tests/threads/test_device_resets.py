# SPDX-License-Identifier: MIT
"""What rocpy keeps on a device is made again or refused after hipDeviceReset, and never read or given back."""

from __future__ import annotations

import ctypes
import gc

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.errors import ClosedError

INDEX = 5  # a device that no other test keeps anything on
A, B = (np.random.default_rng(n).standard_normal((33, 33)).astype(np.float32) for n in (1, 2))
EXACT = A.astype(np.float64) @ B.astype(np.float64)


@pytest.fixture(autouse=True)
def device():
    with rocpy.Device(INDEX) as device:
        yield device


@pytest.fixture
def reset(platform_functions):
    """Reset the device behind rocpy's back, and write over memory that is free afterwards."""

    def run(index=INDEX):
        with rocpy.Device(index):
            function = ctypes.CFUNCTYPE(ctypes.c_int)(platform_functions.slot("hipDeviceReset").value)
            assert function() == 0
        return [np.full(1 << exponent, np.nan, np.float32) for exponent in range(1, 18) for _ in range(4)]

    return run


def close(found, wanted=EXACT):
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1e-4, atol=1e-4)


def scaled():
    values, scale = rocpy.quantize(A, "float8_e4m3fn")
    return np.asarray(
        rocpy.matmul(values, np.eye(33).astype(values.dtype), scale_a=float(scale), scale_b=1.0, dtype="float32")
    )


def on_a_stream():
    with rocpy.Stream(INDEX) as stream:
        result = rocpy.matmul(A, B, stream=stream)
        stream.synchronize()
        return result


def in_a_graph():
    with rocpy.Stream(INDEX) as stream:
        with stream.capture() as graph:
            result = rocpy.matmul(A, B, stream=stream)
        graph.launch()
        stream.synchronize()
        return result


EPILOGUE = rocpy.epilogue(lambda x: x * 1.0)
PRODUCTS = {
    "function": lambda: rocpy.matmul(A, B),
    "batches": lambda: rocpy.matmul(A[None], B[None])[0],
    "function with scales": scaled,
    "stream": on_a_stream,
    "graph": in_a_graph,
    "list of products": lambda: rocpy.grouped_matmul([A], [B])[0],
    "packed groups": lambda: rocpy.grouped_matmul(A, B[None], offsets=[0, 33]),
    "epilogue of the user": lambda: rocpy.matmul(A, B, epilogue=EPILOGUE),
    "new plan": lambda: rocpy.Matmul(A, B).execute(),
    "new Buffers": lambda: rocpy.matmul(buffer(A), buffer(B)).to_numpy(),
}


def buffer(array):
    made = rocpy.Buffer(array.shape, str(array.dtype), device=INDEX)
    made.copy_from(array)
    return made


@pytest.mark.parametrize("product", PRODUCTS)
def test_products_are_right_after_a_reset(product, reset):
    if product == "graph" and not rocpy.platform.current().host_memory:
        pytest.skip("a graph holds no copies of arrays in CPU memory")
    before = PRODUCTS[product]()
    for _ in range(2):
        kept = reset()
        close(PRODUCTS[product](), np.asarray(before, np.float64))
        if product != "function with scales":
            close(before)
        del kept


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8], ids=["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_a_weight_is_packed_again(dtype, layout, reset):
    left, right = ((array * 3).astype(dtype) for array in (A, B))
    weight = rocpy.Weight(right.T if layout == "nk" else right, layout=layout)
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    for _ in range(3):
        kept = reset()
        found = np.asarray(rocpy.matmul(left, weight), np.float64)
        np.testing.assert_allclose(found, wanted, rtol=1e-2 if dtype == ml_dtypes.bfloat16 else 1e-4, atol=1e-3)
        del kept


def test_what_has_no_source_is_refused(reset):
    memory, stream, event = buffer(A), rocpy.Stream(INDEX), rocpy.Event(device=INDEX)
    weight, plan = rocpy.Weight(buffer(B)), rocpy.Matmul(memory, buffer(B))
    plan.execute()
    rocpy.matmul(memory, weight)
    with rocpy.Stream(INDEX, nonblocking=True) as captured, captured.capture() as graph:
        memory.fill(0, stream=captured)
    assert graph.is_captured
    kept = reset()
    assert not graph.is_captured
    uses = {
        "Buffer": [
            memory.to_numpy, lambda: memory.handle, lambda: memory.fill(0), lambda: memory.copy_from(A),
            lambda: rocpy.matmul(memory, B), lambda: np.from_dlpack(memory), lambda: rocpy.matmul(buffer(A), weight),
        ],
        "Stream": [stream.synchronize, lambda: stream.handle, lambda: rocpy.matmul(A, B, stream=stream)],
        "Event": [event.synchronize, lambda: event.handle],
        "Matmul": [plan.execute, plan.plan, plan.__enter__, lambda: plan.reset_operands(b=buffer(B))],
        "Graph": [graph.launch, lambda: graph.handle, graph.__enter__],
    }  # fmt: skip
    for noun, calls in uses.items():
        for call in calls:
            with pytest.raises(ClosedError, match=rf"^this {noun} was created before its device was reset"):
                call()
    for each in (memory, stream, event, weight, plan, graph):
        each.close()
    del kept


def test_nothing_of_before_is_given_back(reset, platform_functions):
    gc.collect()  # what other tests have left
    rocpy.plan_cache.clear()
    objects = [buffer(A), rocpy.Stream(INDEX), rocpy.Weight(B), rocpy.Matmul(buffer(A), buffer(B))]
    rocpy.matmul(A, B, stream=objects[1])
    objects[1].synchronize()
    rocpy.matmul(A, objects[2])
    objects[3].execute()
    kept = reset()
    kind, given_back = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p), []
    names = ("hipFree", "hipHostFree", "hipStreamDestroy", "hipEventDestroy", "hipblasLtDestroy")

    def noting(name):
        original = kind(platform_functions.slot(name).value)

        def function(handle):
            given_back.append((name, handle))
            return original(handle)

        return kind(function)

    with platform_functions.replaced({name: noting(name) for name in names}):
        for each in objects:
            each.close()
        del objects, each
        rocpy.plan_cache.clear()
        gc.collect()
    assert given_back == []
    close(rocpy.matmul(A, B))
    del kept


def test_other_devices_keep_what_they_have(reset):
    with rocpy.Device(INDEX - 1):
        weight, memory = rocpy.Weight(B), rocpy.Buffer(A.shape, "float32", device=INDEX - 1)
        memory.copy_from(A)
        right = rocpy.Buffer(B.shape, "float32", device=INDEX - 1)
        right.copy_from(B)
        plan, stream = rocpy.Matmul(memory, right), rocpy.Stream(INDEX - 1)
    kept = reset()
    with rocpy.Device(INDEX - 1):
        close(rocpy.matmul(memory, weight).to_numpy())
        close(plan.execute().to_numpy())
        close(rocpy.matmul(A, B, stream=stream))
        stream.synchronize()
    del kept
