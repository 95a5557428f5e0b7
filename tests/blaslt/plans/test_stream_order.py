# SPDX-License-Identifier: MIT
"""What is read of operands ahead of a launch, to copy or to pack them, is read after the stream's earlier work."""

from __future__ import annotations

import numpy as np
import pytest
from blocked_streams import delay

import rocpy
from rocpy import rccl

pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="the device writes into operands in CPU memory"
)

N = 8
ONES = np.ones((N, N), np.float32)
BYTES = ONES.astype(rocpy.dtypes.lookup("float8_e4m3fn").numpy)
BYTE = 0x41  # of each element, so that it is one number in both byte orders
SCALED = {"dtype": "float32"}


@rocpy.epilogue
def weighted(x, r, s):
    return x * s + r


def planned(x, stream, **more):
    with rocpy.Matmul(ONES, ONES, stream=stream, **more) as mm:
        mm.reset_operands(a=x)
        return mm.execute()


def copied(x, stream):
    with rocpy.Buffer(x.shape, x.dtype) as buffer:
        buffer.copy_from(x, stream=stream)
        return buffer.to_numpy(stream=stream)


SWAPPED = {
    "a": lambda x, stream: rocpy.matmul(x, ONES, stream=stream),
    "b": lambda x, stream: rocpy.matmul(ONES, x, stream=stream),
    "c": lambda x, stream: rocpy.matmul(ONES, ONES, x, stream=stream),
    "bias": lambda x, stream: rocpy.matmul(ONES, ONES, epilogue="bias", bias=x[0], stream=stream),
    "aux": lambda x, stream: rocpy.matmul(ONES, ONES, epilogue="drelu", aux=x, stream=stream),
    "scale": lambda x, stream: rocpy.matmul(BYTES, BYTES, scale_a=x[0], scale_b=1.0, **SCALED, stream=stream),
    "inputs": lambda x, stream: rocpy.matmul(
        ONES, ONES, epilogue=weighted, epilogue_inputs={"r": x, "s": x[0]}, stream=stream
    ),
    "listed": lambda x, stream: rocpy.grouped_matmul([x], [ONES], stream=stream)[0],
    "packed": lambda x, stream: rocpy.grouped_matmul(x, np.stack([ONES, ONES]), offsets=[0, 3, N], stream=stream),
    "planned": planned,
}
SCALES = {
    "a column": lambda x, stream: rocpy.matmul(BYTES, BYTES, scale_a=x[:, 0], scale_b=1.0, **SCALED, stream=stream),
    "broadcast": lambda x, stream: rocpy.matmul(
        BYTES, BYTES, scale_a=np.broadcast_to(x[0, :1], (N,)), scale_b=1.0, **SCALED, stream=stream
    ),
    "one beside rows": lambda x, stream: rocpy.matmul(
        BYTES, BYTES, scale_a=x[0, :1].reshape(()), scale_b=ONES[0], **SCALED, stream=stream
    ),
    "listed": lambda x, stream: rocpy.grouped_matmul(
        [BYTES], [BYTES], scale_a=[x[:, 0]], scale_b=[1.0], **SCALED, stream=stream
    )[0],
    "packed": lambda x, stream: rocpy.grouped_matmul(
        BYTES, np.stack([BYTES, BYTES]), offsets=[0, 3, N], scale_a=x[:, 0], scale_b=1.0, **SCALED, stream=stream
    ),
}
COPIED = {
    "factor": lambda x, stream: rocpy.matmul(ONES, ONES, alpha=x[0, :1].reshape(()), stream=stream),
    "factor of c": lambda x, stream: rocpy.matmul(ONES, ONES, ONES, beta=x[0, :1].reshape(()), stream=stream),
    "strided": lambda x, stream: rocpy.matmul(x[::2, ::2], ONES[: N // 2], stream=stream),
    "buffer": lambda x, stream: copied(x.T, stream),
    "sum of nothing": lambda x, stream: rocpy.matmul(ONES[:0], x, epilogue="bgradb", stream=stream)[1]["bgradb"],
}
CALLS = [
    *[pytest.param(lambda x: x.view(">f4"), call, id=f"byte order {name}") for name, call in SWAPPED.items()],
    *[pytest.param(lambda x: x, call, id=f"scale {name}") for name, call in SCALES.items()],
    *[pytest.param(lambda x: x, call, id=name) for name, call in COPIED.items()],
]


def check(call, dtype="float32", before=0, shape=(N, N), blocking=False, stream_of_call=True):
    """Compare a call on what a stream is about to write with the same call later."""
    with rocpy.Buffer(shape, dtype, location="host") as memory, rocpy.Stream(nonblocking=not blocking) as stream:
        array = np.asarray(memory)
        array[:] = before
        function = delay(stream)
        memory.fill(BYTE if dtype == "float32" else 0, stream=stream)
        own = stream if stream_of_call else None
        early = call(array, own)
        stream.synchronize()
        late = call(array, own)
        stream.synchronize()
        np.testing.assert_array_equal(np.asarray(early), np.asarray(late))
        del function, early, late, array


@pytest.mark.parametrize(("view", "call"), CALLS)
def test_copies_follow_the_stream(view, call):
    check(lambda x, stream: call(view(x), stream))


@pytest.mark.parametrize(("view", "call"), [CALLS[0], CALLS[-3]])
def test_copies_follow_the_null_stream(view, call):
    """A blocking stream's work comes before that of the null stream, which orders arrays in CPU memory."""
    check(lambda x, stream: call(view(x), stream), blocking=True, stream_of_call=False)


def test_offsets_follow_the_stream():
    def call(offsets, stream):
        return rocpy.grouped_matmul(ONES, np.stack([ONES, 2 * ONES]), offsets=offsets, stream=stream)

    check(call, "int32", [0, 3, N], (3,))


@pytest.mark.torch
def test_signs_of_torch_follow_the_stream(torch):
    ones = torch.ones(N, N)
    with rccl.Communicator.init_all(1)[0] as comm:
        for call in (
            lambda x, stream: rocpy.matmul(x, ones, stream=stream),
            lambda x, stream: rocpy.matmul(ones, ones, epilogue="bias", bias=x[0], stream=stream),
            lambda x, stream: rocpy.matmul(
                ones, ones, epilogue=weighted, epilogue_inputs={"r": x, "s": x[0]}, stream=stream
            ),
            lambda x, stream: rocpy.grouped_matmul([x], [ones], stream=stream)[0],
            lambda x, stream: comm.all_reduce(x, stream=stream),
        ):
            check(lambda x, stream, call=call: call(torch._neg_view(torch.from_numpy(x)), stream))


@pytest.mark.torch
@pytest.mark.parametrize("blocking", [False, True])
def test_a_weight_is_packed_behind_the_work_that_writes_it(torch, blocking):
    ones = torch.ones(N, N)

    def by_plan(weight, stream):
        with rocpy.Matmul(ones, weight, stream=stream) as mm:
            return mm.execute()

    for call in (
        lambda weight, stream: rocpy.matmul(ones, weight, stream=stream),
        lambda weight, stream: rocpy.grouped_matmul([ones], weight, stream=stream)[0],
        by_plan,
    ):
        w = torch.zeros(N, N)
        weight = rocpy.Weight(w)
        with rocpy.Stream(nonblocking=not blocking) as stream:
            function = delay(stream)
            rocpy.matmul(ones, ones, out=w, stream=stream)
            early = call(weight, stream)
            stream.synchronize()
            assert (early == N * N).all()
            assert (rocpy.matmul(ones, weight) == N * N).all()
            del function


@pytest.mark.torch
def test_a_weight_is_packed_behind_the_work_before_a_capture(torch):
    ones, w = torch.ones(N, N), torch.zeros(N, N)
    weight = rocpy.Weight(w)
    with rocpy.Stream(nonblocking=True) as stream:
        function = delay(stream)
        rocpy.matmul(ones, ones, out=w, stream=stream)
        with stream.capture() as graph:
            d = rocpy.matmul(ones, weight, stream=stream)
        graph.launch()
        stream.synchronize()
        assert (d == N * N).all()
        graph.close()
        del function


def test_a_weight_is_created_behind_blocking_streams():
    check(lambda x, _: rocpy.matmul(ONES, rocpy.Weight(x)), blocking=True)
