# SPDX-License-Identifier: MIT
"""Memory that is let go while a collective waits for other ranks: no call waits for that, and it is freed later."""

import ctypes
import gc
import threading
import time
import weakref
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from one_thread import require_calls
from rccl_ranks import DEADLINE_S, await_first, good, on_threads

import rocpy
from rocpy import distributed, rccl
from rocpy.blaslt.engine.lending import Lending
from rocpy.compat import nccl
from rocpy.runtime.handles.keep_alive import held_count

SECONDS = 0.2


def in_time(comms, body):
    """What a body returns or raises on a thread of its own, which must not hang."""
    outcome = []

    def run():
        try:
            outcome.append(body())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE_S / 4)
    hangs = thread.is_alive()
    for comm in comms:
        comm.abort()
    thread.join(DEADLINE_S)
    assert not hangs
    return outcome[0]


def await_released():
    """Until the streams are done with aborted collectives, which is not before ``abort`` returns."""
    limit = time.monotonic() + DEADLINE_S
    while held_count() != 0:
        assert time.monotonic() < limit
        gc.collect()


def buffers():
    return [rocpy.Buffer(4, "float32", device=index) for index in range(2)]


def alone():
    return rccl.Communicator.init(1, 0, rccl.UniqueId.make(), device=0, timeout_s=SECONDS)


def suspended():
    require_calls("ncclCommSuspend")
    comm = alone()
    comm.suspend()
    return comm


def revoked():
    require_calls("ncclCommRevoke")
    comm = alone()
    comm.revoke()
    return comm


def raise_in_group(comm, x):
    with rccl.group():
        comm.all_reduce(x)
        raise KeyError


def refused(comm, make, call):
    """A call of another communicator of the device."""
    other = make()
    try:
        return call(other)
    finally:
        other.abort()


REFUSED = {
    "operator": (lambda comm, x: comm.all_reduce(x, op="foo"), rccl.InvalidArgumentError),
    "shape": (lambda comm, x: comm.reduce_scatter(rocpy.Buffer(3, "float32")), rocpy.InvalidProblemError),
    "bias": (lambda comm, x: comm.all_reduce(x, bias=np.ones(5)), rocpy.InvalidOperandError),
    "group": (raise_in_group, KeyError),
    "suspended": (lambda comm, x: refused(comm, suspended, lambda one: one.all_reduce(x)), rccl.InvalidUsageError),
    "revoked": (lambda comm, x: refused(comm, revoked, lambda one: one.all_reduce(x)), rccl.InvalidUsageError),
    "rows": (lambda comm, x: comm.all_to_all_v(x, [1, 1], [1, 1]), rocpy.InvalidProblemError),
    "late": (lambda comm, x: comm.all_reduce(x), rccl.CollectiveTimeoutError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_call_returns_while_another_is_pending(comms, name):
    call, error = REFUSED[name]
    x = buffers()[0]
    work = comms[0].all_reduce(x, block=False)
    assert isinstance(in_time(comms, lambda: call(comms[0], x)), error)
    del work


def test_a_call_after_one_that_was_late(comms):
    x = buffers()[0]
    work = comms[0].all_reduce(x, block=False)

    def body():
        for wait in (work.wait, lambda: comms[0].all_reduce(x), lambda: comms[0].all_reduce(x)):
            with pytest.raises(rccl.CollectiveTimeoutError):
                wait()

    assert in_time(comms, body) is None


def reduce_both(comms, arrays):
    return [comm.all_reduce(x, block=False) for comm, x in zip(comms, arrays, strict=True)]


def reduce_in_group(comms, arrays):
    with rccl.group():
        return reduce_both(comms, arrays)


def transfer(comms, arrays):
    return [comms[0].send(arrays[0], 1, block=False), comms[1].recv(arrays[1], 0, block=False)]


def transfer_new(comms, _):
    return transfer(comms, buffers())


@pytest.mark.parametrize("launch", [reduce_both, reduce_in_group, transfer, transfer_new])
@pytest.mark.parametrize("of_rccl", [False, True])
def test_results_that_are_let_go_do_not_delay_the_next_call(comms, launch, of_rccl):
    arrays = [comm.empty(4, "float32") for comm in comms] if of_rccl else buffers()

    def body():
        for _ in range(4):
            works = launch(comms, arrays)
            results = [work.wait() for work in works]
            del works, results
        comms[0].all_reduce(arrays[0], block=False)
        return "done"

    assert in_time(comms, body) == "done"


def test_threads_whose_other_rank_makes_no_further_call():
    def body(comm):
        x = rocpy.Buffer(4, "float32", device=comm.rank)
        for _ in range(3):
            comm.all_reduce(x, block=False).wait().to_numpy()
        if comm.rank == 0:
            with pytest.raises(rccl.CollectiveTimeoutError) as late:
                comm.all_reduce(x, block=False).wait(SECONDS)
            comm.abort()
            return late.value.waiting_for
        comm.abort()
        return None

    # Rank 1 may abort first: then rank 0 is told of that.
    results = on_threads(2, body)
    assert results[1] is None or isinstance(results[1], rccl.RemoteError)


def test_a_result_is_on_the_device_of_its_operand():
    def body(comm):
        return comm.all_reduce(rocpy.Buffer(4, "float32", device=comm.rank)).device_index

    assert good(on_threads(2, body)) == [0, 1]


class _Taking:
    """An array whose framework takes over memory for results: notes the device that was the current one."""

    def __init__(self):
        self.array, self.devices = np.ones(2), []

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return SimpleNamespace(from_dlpack=self.take)

    def take(self, memory):
        self.devices.append(rocpy.Device.current().index)
        return np.from_dlpack(memory)


@pytest.mark.parametrize("name", ["all_reduce", "broadcast", "all_gather", "all_to_all", "all_to_all_v"])
def test_a_framework_takes_over_memory_of_the_communicators_device(name):
    # On the thread's device a collective may wait for this rank, and reading the result would wait for that.
    def body(comm):
        x = _Taking()
        getattr(comm, name)(x, *([[1, 1], [1, 1]] if name == "all_to_all_v" else []))
        return x.devices

    assert good(on_threads(2, body)) == [[0], [1]]


def test_products_of_a_rank_do_not_wait_for_another_rank():
    def body(comm):
        if comm.rank == 1:
            await_first(comm)
            rocpy.matmul(np.ones((2, 2)), np.ones((2, 2)), out=rocpy.Buffer((2, 2), "float64"))
        comm.all_reduce(np.ones(2))
        return rocpy.Device.current().index

    assert distributed.run_threads(body, 2, timeout_s=DEADLINE_S / 6) == [0, 1]


ONES = np.ones((8, 8), np.float32)
STRIDED, INTEGERS = np.ones((16, 16), np.float32)[::2, ::2], np.ones((8, 8), np.int8)
DOUBLED = rocpy.epilogue(lambda x: x * 2)


def plan(*arguments, stream, out=None):
    with rocpy.Matmul(*arguments) as planned:
        return planned.execute(out=out, stream=stream)


# Products that take more than a launch, whose frameworks copy or compute outside the stream's order.
PRODUCTS = {
    "copied": lambda stream: rocpy.matmul(STRIDED, ONES, stream=stream),
    "cast": lambda stream: rocpy.matmul(ONES, ONES, out=np.zeros((8, 8)), stream=stream),
    "composed": lambda stream: rocpy.matmul(INTEGERS, INTEGERS, epilogue="relu_aux", stream=stream)[0],
    "transposed": lambda stream: rocpy.matmul(ONES, ONES, bias=0 * ONES[:, :1], epilogue="bias", stream=stream),
    "of its own epilogue": lambda stream: (
        rocpy.matmul(STRIDED, ONES, epilogue=DOUBLED, out=np.zeros((8, 8)), stream=stream) / 2
    ),
    "groups": lambda stream: rocpy.grouped_matmul([STRIDED], [ONES], out=[np.zeros((8, 8))], stream=stream)[0],
    "planned": lambda stream: plan(STRIDED, ONES, stream=stream, out=np.zeros((8, 8))),
    "planned and composed": lambda stream: rocpy.Matmul(INTEGERS, INTEGERS, epilogue="relu_aux").execute(stream=stream)[
        0
    ],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_on_another_stream_waits_for_no_other_rank(comms, name):
    stream = rocpy.Stream(0, nonblocking=True)
    PRODUCTS[name](stream)  # what is planned or compiled once
    gc.collect()
    work = comms[0].all_reduce(np.ones(4), stream=rocpy.Stream(0, nonblocking=True), block=False)
    result = in_time(comms, lambda: PRODUCTS[name](stream))
    stream.synchronize()
    assert (np.asarray(result) == 8).all()
    del work


@pytest.mark.parametrize("in_group", [False, True])
def test_memory_is_freed_later_while_a_collective_is_pending(comms, in_group):
    x, other = buffers()[0], rocpy.Buffer(4, "float32", device=0)
    with rccl.group() if in_group else nullcontext():
        work = comms[0].all_reduce(x, block=False)
    assert in_time(comms, other.close) is None
    del work


def multiplied(stream):
    rocpy.matmul(ONES, ONES, stream=stream)
    stream.synchronize()
    return stream


def captured(stream):
    with stream.capture() as graph:
        rocpy.matmul(ONES, ONES, stream=stream)
    return graph


def give_up_capture(stream):
    with pytest.raises(KeyError), stream.capture():
        raise KeyError


def weight():
    made = rocpy.Weight(ONES.copy())
    rocpy.matmul(ONES, made)
    return made


def refresh_of(made):
    made.source[:] = 2
    return made.refresh


def lent_with_its_own_workspace():
    wide, lending = np.ones((32, 1 << 16), np.float32), Lending(0, 0)
    with lending:
        rocpy.matmul(wide, wide.T)
    return lending


# By what is released: makes it, and returns what releases it.
RELEASES = {
    "graph": lambda stream: captured(stream).close,
    "graph that is dropped": lambda stream: [captured(stream)].clear,
    "capture that is given up": lambda stream: lambda: give_up_capture(stream),
    "stream": lambda stream: multiplied(stream).close,
    "stream that is dropped": lambda stream: [multiplied(rocpy.Stream(0, nonblocking=True))].clear,
    "weight": lambda stream: weight().close,
    "weight that is dropped": lambda stream: [weight()].clear,
    "weight that is packed again": lambda stream: refresh_of(weight()),
    "lent handle": lambda stream: lent_with_its_own_workspace().close,
    "lent handle that is dropped": lambda stream: [lent_with_its_own_workspace()].clear,
    "idle handles": lambda stream: (multiplied(stream), rocpy.plan_cache.clear)[1],
}


@pytest.mark.parametrize("name", RELEASES)
def test_what_is_released_waits_for_no_other_rank(comms, name):
    gc.collect()
    release = RELEASES[name](rocpy.Stream(0, nonblocking=True))
    work = comms[0].all_reduce(np.ones(4), stream=rocpy.Stream(0, nonblocking=True), block=False)
    assert in_time(comms, release) is None
    del work


# Of device 1, by what is released.
OF_ANOTHER_DEVICE = {
    "buffer": lambda stream: rocpy.Buffer(64, device=1).close,
    "buffer that is dropped": lambda stream: [rocpy.Buffer(64, device=1)].clear,
    "idle handles": lambda stream: (multiplied(stream), rocpy.plan_cache.clear)[1],
}


@pytest.mark.parametrize("name", OF_ANOTHER_DEVICE)
def test_what_another_device_releases_while_it_waits_for_this_one(comms, name):
    gc.collect()
    release = OF_ANOTHER_DEVICE[name](rocpy.Stream(1, nonblocking=True))
    first, second = (rocpy.Stream(device, nonblocking=True) for device in (0, 1))
    work = comms[0].all_reduce(np.ones(4), stream=first, block=False)
    second.wait(first.record())
    assert in_time(comms, release) is None
    del work


def test_handles_over_the_limit_stay_while_a_collective_is_pending(comms, platform_functions):
    size, total = ctypes.POINTER(ctypes.c_size_t), 1 << 36

    @ctypes.CFUNCTYPE(ctypes.c_int, size, size)
    def report_short_memory(free, all_of_it):  # by which the limit is 64
        free[0], all_of_it[0] = total // 4, total
        return 0

    gc.collect()
    rocpy.plan_cache.clear()  # no handle of another test may be lent
    streams = [rocpy.Stream(0, nonblocking=True) for _ in range(70)]
    work = comms[0].all_reduce(np.ones(4), stream=streams.pop(), block=False)

    def multiply_on_all():
        for _ in range(2):
            for stream in streams:
                multiplied(stream)
        return rocpy.plan_cache.handles()

    with platform_functions.replaced({"hipMemGetInfo": report_short_memory}):
        assert in_time(comms, multiply_on_all) >= len(streams)
        del work
        await_released()
        multiplied(rocpy.Stream(0))
    assert rocpy.plan_cache.handles() <= 64


def test_a_first_look_at_the_libraries_while_a_collective_is_pending(run_python):
    program = """
        import rocpy
        comm, other = rocpy.rccl.Communicator.init_all(2, timeout_s=1)
        work = comm.all_reduce(rocpy.Buffer(4, "float32", device=0), block=False)
        print(sorted(rocpy.platform.current().libraries)[:2])
        comm.abort()
        other.abort()
    """
    assert run_python(program, timeout_s=20).stdout.strip() == "['hip', 'hipblaslt']"


@pytest.mark.parametrize(
    "make", [lambda comm: rocpy.Buffer(4), lambda comm: comm.empty(4), lambda comm: rocpy.Weight(ONES)]
)
@pytest.mark.parametrize("closes", [False, True])
def test_memory_is_freed_when_no_collective_is_pending(comms, make, closes):
    gc.collect()
    memory = make(comms[0])
    work = comms[0].all_reduce(np.ones(4), block=False)
    if closes:
        memory.close()
    del memory
    assert held_count() > 1
    for comm in comms:
        comm.abort()
    del work
    await_released()


def lent_tensor():
    """A tensor, and a function that tells whether its memory is still there, whatever memory the tensor has."""
    torch = pytest.importorskip("torch")
    memory = np.ones(1 << 16, np.float32)
    return torch.from_numpy(memory), weakref.ref(memory)


ROWS = [1 << 15, 1 << 15]
BLOCKING = {
    "x": lambda comm, t: comm.all_reduce(t),
    "out": lambda comm, t: comm.all_reduce(np.ones(1 << 16, np.float32), out=t),
    "bias": lambda comm, t: comm.all_reduce(np.ones(1 << 16, np.float32), bias=t),
    "broadcast": lambda comm, t: comm.broadcast(t, root=1, out=t),
    "recv": lambda comm, t: comm.recv(t, 1),
    "send": lambda comm, t: comm.send(t, 1),
    "rows": lambda comm, t: comm.all_to_all_v(t, ROWS, ROWS),
    "compat": lambda comm, t: nccl.Communicator(comm).allreduce(t, t, nccl.SUM),
}


@pytest.mark.parametrize("name", BLOCKING)
def test_a_blocking_call_keeps_memory_that_another_thread_takes_from_its_tensor(comms, name):
    tensor, is_there = lent_tensor()
    errors = []

    def wait():
        try:
            BLOCKING[name](comms[0], tensor)
        except rccl.RcclError as error:
            errors.append(error)

    comms[0].timeout_s = DEADLINE_S
    thread = threading.Thread(target=wait)
    thread.start()
    await_first(comms[0])
    tensor.data = tensor.new_zeros(1)
    assert is_there() is not None
    comms[1].abort()
    thread.join()
    assert isinstance(errors.pop(), rccl.RcclError)
    comms[0].abort()
    limit = time.monotonic() + DEADLINE_S
    while is_there() is not None:  # its stream may still use it
        assert time.monotonic() < limit
        gc.collect()


def test_a_blocking_call_that_was_late_keeps_memory_until_its_stream_is_done(comms):
    tensor, is_there = lent_tensor()
    stream = rocpy.Stream(device=0)
    work = comms[0].all_reduce(np.ones(4), stream=stream, block=False)
    with rccl.Communicator.init(1, 0, rccl.UniqueId.make(), device=0) as behind:
        with pytest.raises(rccl.CollectiveTimeoutError):
            behind.all_reduce(tensor, out=tensor, stream=stream, timeout_s=0.02)
        tensor.data = tensor.new_zeros(1)
        assert is_there() is not None
        comms[1].all_reduce(np.ones(4))
        work.wait()
        stream.synchronize()
        behind.abort()
    assert is_there() is None
