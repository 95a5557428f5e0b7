# SPDX-License-Identifier: MIT
"""Memory of a closed Buffer stays until whatever still uses it is done: a plan, a graph, an array, another thread."""

from __future__ import annotations

import itertools
import mmap
import pathlib
import threading

import numpy as np
import pytest

import rocpy
from rocpy.runtime import memory

N = 64


def filled(value):
    made = rocpy.Buffer((N, N), np.float32)
    made.copy_from(np.full((N, N), value, np.float32))
    return made


def reuse_memory():
    """Write other numbers where memory that was given back too early would show them."""
    for _ in range(20):
        filled(-1.7e38).close()


def address_space():
    """Size of the process's address space, in bytes."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE


def test_a_plan_keeps_the_memory_of_its_operands():
    a, b = filled(1), filled(2)
    with rocpy.Matmul(a, b) as planned:
        planned.plan()
        a.close()
        b.close()
        reuse_memory()
        assert (planned.execute().to_numpy() == 2 * N).all()


@pytest.mark.parametrize("keep", ["operands", "result"])
def test_a_graph_keeps_the_memory_of_operands_and_results(keep):
    a, b, out = filled(1), filled(2), filled(0)
    with rocpy.Stream(nonblocking=True) as stream, rocpy.Matmul(a, b) as planned:
        with stream.capture() as graph:
            planned.execute(out=out, stream=stream)
        planned.close()
        if keep == "result" and rocpy.platform.current().host_memory:
            seen = np.from_dlpack(out)
            out.close()
        else:
            seen = None
            a.close()
            b.close()
        reuse_memory()
        graph.launch(stream)
        stream.synchronize()
        assert ((out.to_numpy() if seen is None else seen) == 2 * N).all()
        graph.close()


def test_products_on_a_stream_keep_the_memory_of_their_operands():
    big = np.ones((700, 700), np.float32)
    added = rocpy.epilogue(lambda x, more: x + more)
    with rocpy.Stream() as stream:
        rocpy.matmul(big, big, stream=stream)
        a, b, more = filled(1), filled(2), filled(3)
        results = [
            rocpy.matmul(a, b, stream=stream),
            rocpy.matmul(a, b, epilogue=added, epilogue_inputs={"more": more}, stream=stream),
            *rocpy.grouped_matmul([a], [b], stream=stream),
        ]
        for buffer in (a, b, more):
            buffer.close()
        reuse_memory()
        stream.synchronize()
        for result, expected in zip(results, (2 * N, 2 * N + 3, 2 * N), strict=True):
            assert (result.to_numpy() == expected).all()


@pytest.mark.parametrize("export", [np.asarray, np.from_dlpack])
def test_arrays_of_numpys_keep_the_memory(export):
    if not rocpy.platform.current().host_memory:
        pytest.skip("the CPU cannot read this device's memory")
    buffer = filled(5)
    array = export(buffer)
    buffer.close()
    reuse_memory()
    assert (array == 5).all()
    with pytest.raises(rocpy.ClosedError):
        rocpy.matmul(buffer, buffer)


@pytest.mark.parametrize(
    "look", [np.asarray, np.shape, np.from_dlpack, lambda buffer: hasattr(buffer, "__array_interface__")]
)
def test_close_frees_memory_whose_arrays_are_gone(look):
    """Although the closed Buffer is still there."""
    if not rocpy.platform.current().host_memory:
        pytest.skip("the CPU cannot read this device's memory")
    before = address_space()
    buffer = rocpy.Buffer(64 << 20)
    array = look(buffer)
    buffer.close()
    if isinstance(array, np.ndarray):
        assert address_space() > before + (32 << 20)
    del array
    assert address_space() < before + (32 << 20)
    assert buffer.is_closed


USES = {
    "product": lambda buffer: rocpy.matmul(buffer, buffer).to_numpy()[0, 0] == N,
    "copy": lambda buffer: (buffer.to_numpy() == 1).all(),
    "copy into another": lambda buffer: filled(0).copy_from(buffer) is None,
    "numpy": lambda buffer: (np.asarray(buffer) == 1).all(),
    "DLPack": lambda buffer: (np.from_dlpack(buffer) == 1).all(),
    "Weight": lambda buffer: (rocpy.matmul(np.ones((2, N), np.float32), rocpy.Weight(buffer)) == N).all(),
}


@pytest.mark.parametrize("use", USES)
def test_another_thread_closes_it_meanwhile(use):
    if use in ("numpy", "DLPack", "Weight") and not rocpy.platform.current().host_memory:
        pytest.skip("the CPU cannot read this device's memory")
    shared = [filled(1)]
    stop, wrong = threading.Event(), []

    def exchange():
        while not stop.is_set():
            before, shared[0] = shared[0], filled(1)
            before.close()
            reuse_memory()

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(150):
            try:
                if not USES[use](shared[0]):
                    wrong.append(use)
            except rocpy.ClosedError:
                continue
    finally:
        stop.set()
        thread.join()
    assert not wrong


READS = {
    **USES,
    "handle": lambda buffer: buffer.handle != 0,
    "fill": lambda buffer: buffer.fill(0) is None,
    "copy to": lambda buffer: buffer.copy_to(np.empty((N, N), np.float32)) is None,
    "second operand": lambda buffer: rocpy.matmul(filled(1), buffer).to_numpy()[0, 0] == N,
}


@pytest.mark.parametrize("use", READS)
def test_another_thread_closes_it_between_two_steps_of_a_call(use, monkeypatch):
    """Wherever a call runs Python another thread may have its turn: each of those places is tried."""
    if use in ("numpy", "DLPack", "Weight") and not rocpy.platform.current().host_memory:
        pytest.skip("the CPU cannot read this device's memory")
    asked = memory.current_platform
    for place in itertools.count():
        buffer, steps = filled(1), itertools.count()

        def current(place=place, buffer=buffer, steps=steps):
            if next(steps) == place:
                buffer.close()
                reuse_memory()
            return asked()

        with monkeypatch.context() as patch:
            patch.setattr(memory, "current_platform", current)
            try:
                assert READS[use](buffer)
            except rocpy.ClosedError:
                assert buffer.is_closed
        if not buffer.is_closed:
            break
    assert place > 0
