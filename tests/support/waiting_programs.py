# SPDX-License-Identifier: MIT
"""Programs over rocpy, each with its waits and without one; as a script it prints which are wrong.

Written from HIP's rules of order and from rocpy's documentation, not from what the stress mode does.
"""

from __future__ import annotations

import json

import numpy as np

import rocpy
from rocpy import Buffer, Event, Stream, rccl

N = 48
ONES = np.ones((N, N), np.float32)


def matrix(value=0.0):
    return np.full((N, N), value, np.float32)


def holds(array, value):
    return bool((array == value).all())


def products_in_order(waits, first, second, launch_first, launch_second, result):
    """Launch two products, of which the second reads what the first one gives, and say whether the result is right."""
    launch_first()
    if waits:
        second.wait(first.record())
    launch_second()
    second.synchronize()
    right = holds(result, N * N)
    first.synchronize()
    return right


def products_of_two_streams(waits):
    """The second product reads what the first one gives."""
    hidden, result = matrix(), matrix()
    with Stream() as first, Stream() as second:
        return products_in_order(
            waits,
            first,
            second,
            lambda: rocpy.matmul(ONES, ONES, out=hidden, stream=first),
            lambda: rocpy.matmul(hidden, ONES, out=result, stream=second),
            result,
        )


def event_recorded_too_early(waits):
    """The event is there, and waited for, and stands for what came before the product."""
    hidden, result = matrix(), matrix()
    with Stream() as first, Stream() as second, Event() as event:
        if not waits:
            first.record(event)
        rocpy.matmul(ONES, ONES, out=hidden, stream=first)
        if waits:
            first.record(event)
        second.wait(event)
        rocpy.matmul(hidden, ONES, out=result, stream=second)
        second.synchronize()
        right = holds(result, N * N)
        first.synchronize()
    return right


def host_reads_a_result(waits):
    result = matrix()
    with Stream() as stream:
        rocpy.matmul(ONES, ONES, out=result, stream=stream)
        if waits:
            stream.synchronize()
        right = holds(result, N)
        stream.synchronize()
    return right


def host_changes_an_operand(waits):
    """The next batch is written where the product still reads this one."""
    batch, result = matrix(1), matrix()
    with Stream() as stream:
        rocpy.matmul(batch, ONES, out=result, stream=stream)
        if waits:
            stream.synchronize()
        batch[:] = 7
        stream.synchronize()
    return holds(result, N)


def one_output_of_two_streams(waits):
    """Both products write to one array, and the later one's values are wanted."""
    result = matrix()
    with Stream() as first, Stream() as second:
        rocpy.matmul(ONES, ONES, out=result, stream=first)
        if waits:
            second.wait(first.record())
        rocpy.matmul(ONES, matrix(2), out=result, stream=second)
        second.synchronize()
        first.synchronize()
    return holds(result, 2 * N)


def buffer_reused_too_early(waits):
    """A second stream clears the operand that a product of the first still reads."""
    result = matrix()
    with Stream() as first, Stream() as second, Buffer((N, N), "float32") as operand:
        operand.copy_from(ONES)
        rocpy.matmul(operand, ONES, out=result, stream=first)
        if waits:
            second.wait(first.record())
        operand.fill(0, stream=second)
        second.synchronize()
        first.synchronize()
    return holds(result, N)


def null_stream_and_nonblocking_stream(waits):
    """A nonblocking stream does not follow the null stream."""
    result = matrix()
    with Stream(nonblocking=True) as stream, Buffer((N, N), "float32") as operand:
        operand.copy_from(ONES)
        operand.fill(0)
        if waits:
            rocpy.Device(0).synchronize()
        rocpy.matmul(operand, ONES, out=result, stream=stream)
        stream.synchronize()
        right = holds(result, 0)
        rocpy.Device(0).synchronize()
    return right


def streams_of_two_devices(waits):
    """A device's stream copies what another device's products give."""
    with Stream(0) as first, Stream(1) as second, Buffer((N, N), "float32", device=1) as copy:
        operand, hidden, copied = (Buffer((N, N), "float32") for _ in range(3))
        for buffer, value in ((operand, 1), (hidden, 0), (copied, 0)):
            buffer.copy_from(matrix(value))
        rocpy.matmul(operand, operand, out=hidden, stream=first)
        rocpy.matmul(hidden, operand, out=copied, stream=first)
        if waits:
            second.wait(first.record())
        copy.copy_from(copied, stream=second)
        right = holds(copy.to_numpy(), N * N)
        first.synchronize()
    return right


def graph_and_eager_product(waits):
    """A product outside of a graph reads, in another stream, what the graph's product gives."""
    hidden, result = matrix(), matrix()
    with Stream(nonblocking=True) as first, Stream(nonblocking=True) as second:
        with first.capture() as graph:
            rocpy.matmul(ONES, ONES, out=hidden, stream=first)
        hidden[:] = 0
        right = products_in_order(
            waits,
            first,
            second,
            graph.launch,
            lambda: rocpy.matmul(hidden, ONES, out=result, stream=second),
            result,
        )
        graph.close()
    return right


def eager_product_and_graph(waits):
    """A graph reads what a product outside of it gives, launched into another stream."""
    hidden, result = matrix(), matrix()
    with Stream(nonblocking=True) as first, Stream(nonblocking=True) as second:
        with second.capture() as graph:
            rocpy.matmul(hidden, ONES, out=result, stream=second)
        right = products_in_order(
            waits,
            first,
            second,
            lambda: rocpy.matmul(ONES, ONES, out=hidden, stream=first),
            graph.launch,
            result,
        )
        graph.close()
    return right


def fork_inside_a_capture(waits):
    """A capture whose second branch forks from before the first product, not from after it."""
    hidden, result = matrix(), matrix()
    with Stream(nonblocking=True) as first, Stream(nonblocking=True) as second:
        with first.capture() as graph:
            if not waits:
                second.wait(first.record())
            rocpy.matmul(ONES, ONES, out=hidden, stream=first)
            if waits:
                second.wait(first.record())
            rocpy.matmul(hidden, ONES, out=result, stream=second)
            first.wait(second.record())
        hidden[:] = result[:] = 0
        graph.launch()
        first.synchronize()
        right = holds(result, N * N)
        graph.close()
    return right


def collective_after_a_product(waits):
    """A collective in one stream takes what a product of another gives."""
    hidden, result = matrix(), matrix()
    (communicator,) = rccl.Communicator.init_all([0])
    with communicator, Stream() as first, Stream() as second:
        rocpy.matmul(ONES, ONES, out=hidden, stream=first)
        if waits:
            second.wait(first.record())
        communicator.all_reduce(hidden, out=result, stream=second)
        second.synchronize()
        right = holds(result, N)
        first.synchronize()
    return right


PROGRAMS = (
    products_of_two_streams,
    event_recorded_too_early,
    host_reads_a_result,
    host_changes_an_operand,
    one_output_of_two_streams,
    buffer_reused_too_early,
    null_stream_and_nonblocking_stream,
    streams_of_two_devices,
    graph_and_eager_product,
    eager_product_and_graph,
    fork_inside_a_capture,
    collective_after_a_product,
)

if __name__ == "__main__":
    wrong = {mode: [run.__name__ for run in PROGRAMS if not run(mode == "waits")] for mode in ("waits", "forgets")}
    print(json.dumps(wrong))
