# SPDX-License-Identifier: MIT
"""Products on streams that another library captures: what its graph computes, with nothing that is used elsewhere."""

import ctypes
import gc
import pathlib
import time
import weakref

import host_platform
import numpy as np
import pytest

import rocpy

pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().host_memory,
    reason="operands in CPU memory, which this device cannot use, are refused in a capture: see test_staging.py",
)


def good(result):
    assert int(result[0]) == 0, result[0]
    return result[1] if len(result) == 2 else result[1:]


class Captured:
    """A stream of hip-python's, and the graphs that it captures there by itself."""

    def __init__(self):
        self.hip = host_platform.load()
        self.stream = good(self.hip.hipStreamCreateWithFlags(self.hip.hipStreamNonBlocking))
        self.graphs = []

    def capture(self, work):
        hip = self.hip
        good(hip.hipStreamBeginCapture(self.stream, hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal))
        try:
            result = work()
        finally:
            graph = good(hip.hipStreamEndCapture(self.stream))
        status, launchable, *_ = hip.hipGraphInstantiate(graph, 0)
        good((status, None))
        self.graphs.append((graph, launchable))
        return launchable, result

    def destroy(self, launchable):
        """Destroy a graph and what was instantiated from it."""
        (pair,) = [pair for pair in self.graphs if pair[1] is launchable]
        self.graphs.remove(pair)
        good(self.hip.hipGraphExecDestroy(pair[1]))
        good(self.hip.hipGraphDestroy(pair[0]))

    def launch(self, graph, stream=None):
        stream = self.stream if stream is None else stream
        good(self.hip.hipGraphLaunch(graph, stream))
        good(self.hip.hipStreamSynchronize(stream))

    def close(self):
        for graph, launchable in self.graphs:
            good(self.hip.hipGraphExecDestroy(launchable))
            good(self.hip.hipGraphDestroy(graph))
        good(self.hip.hipStreamDestroy(self.stream))


@pytest.fixture
def foreign():
    made = Captured()
    yield made
    made.close()


def operands(m=6, n=5, k=7, seed=0):
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((m, k)).astype(np.float32), random.standard_normal((k, n)).astype(np.float32)
    return a, b, np.zeros((m, n), np.float32)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("before", [False, True], ids=["first product of the stream", "after others"])
def test_a_product_becomes_part_of_the_graph(foreign, before):
    a, b, out = operands()
    if before:
        rocpy.matmul(a, b, out=out, stream=foreign.stream)
        good(foreign.hip.hipStreamSynchronize(foreign.stream))
        out[:] = 0
    graph, result = foreign.capture(lambda: rocpy.matmul(a, b, out=out, epilogue="relu", stream=foreign.stream))
    assert result is out
    assert not out.any()
    for scale in (1, -2, 3):
        a *= scale
        foreign.launch(graph)
        close(out, np.maximum(a @ b, 0))


def test_a_planned_product_and_a_result_of_its_own(foreign):
    a, b, _ = operands()
    bias = np.ones(5, np.float32)
    with rocpy.Matmul(a, b, epilogue="bias", bias=bias) as mm:
        graph, result = foreign.capture(lambda: mm.execute(stream=foreign.stream))
        foreign.launch(graph)
        close(result, a @ b + 1)


def test_products_without_elements_and_without_terms(foreign):
    a, b, out = operands(k=0)
    out[:] = 3
    graph, _ = foreign.capture(lambda: rocpy.matmul(a, b, out=out, stream=foreign.stream))
    foreign.launch(graph)
    assert not out.any()


def test_the_stream_is_usable_between_and_after_captures(foreign):
    first, second = operands(seed=1), operands(seed=2)
    graphs = [
        foreign.capture(lambda args=args: rocpy.matmul(*args[:2], out=args[2], stream=foreign.stream))[0]
        for args in (first, second)
    ]
    a, b, out = operands(seed=3)
    for _ in range(3):
        rocpy.matmul(a, b, out=out, stream=foreign.stream)
        for graph, (x, y, d) in zip(graphs, (first, second), strict=True):
            d[:] = 0
            foreign.launch(graph)
            close(d, x @ y)
        close(out, a @ b)


def test_nothing_of_a_graph_is_given_back_or_used_elsewhere(foreign):
    """Long products that take a workspace, while as many streams come and go as would empty any pool."""
    random = np.random.default_rng(4)
    a = random.standard_normal((8, 4096)).astype(np.float32)
    b = random.standard_normal((4096, 8)).astype(np.float32)
    outs = [np.zeros((8, 8), np.float32) for _ in range(2)]
    graphs = [foreign.capture(lambda out=out: rocpy.matmul(a, b, out=out, stream=foreign.stream))[0] for out in outs]
    for seed in range(80):
        with rocpy.Stream(nonblocking=True) as stream:
            x, y, d = operands(seed=seed)
            rocpy.matmul(x, y, out=d, stream=stream)
            stream.synchronize()
            close(d, x @ y)
    gc.collect()
    with rocpy.Stream(nonblocking=True) as one, rocpy.Stream(nonblocking=True) as other:
        for _ in range(5):
            for out in outs:
                out[:] = 0
            for graph, stream in zip(graphs, (one, other), strict=True):
                good(foreign.hip.hipGraphLaunch(graph, stream.handle))
            eager = rocpy.matmul(a, b, stream=foreign.stream)
            good(foreign.hip.hipStreamSynchronize(foreign.stream))
            one.synchronize()
            other.synchronize()
            for out in (*outs, eager):
                np.testing.assert_allclose(out, a @ b, rtol=1e-3, atol=1e-3)


def test_grouped_products(foreign):
    a, b, _ = operands()
    graph, results = foreign.capture(lambda: rocpy.grouped_matmul([a, a], [b, b], stream=foreign.stream))
    foreign.launch(graph)
    for result in results:
        close(result, a @ b)


def test_what_no_graph_can_hold_is_refused_and_the_capture_goes_on(foreign):
    a, b, out = operands()

    def work():
        with pytest.raises(rocpy.UnsupportedError, match="captured"):
            rocpy.matmul(a[::2, ::2], b[: a[::2, ::2].shape[1]], stream=foreign.stream, options={"copies": "allow"})
        rocpy.matmul(a, b, out=out, stream=foreign.stream)

    graph, _ = foreign.capture(work)
    foreign.launch(graph)
    close(out, a @ b)


def test_rocpys_own_capture_of_the_same_stream_afterwards(foreign):
    a, b, out = operands()
    theirs, _ = foreign.capture(lambda: rocpy.matmul(a, b, out=out, stream=foreign.stream))
    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            rocpy.matmul(out, out.T.copy(), stream=stream)
        graph.launch()
        stream.synchronize()
        graph.close()
    foreign.launch(theirs)
    close(out, a @ b)


@pytest.mark.parametrize("form", ["function", "plan", "grouped"])
def test_a_weight_that_is_packed_again_and_closed_leaves_the_graph_its_memory(foreign, form):
    a, b, out = operands(24, 160, 192)
    weight = rocpy.Weight(b.copy())
    with rocpy.Matmul(a, weight) as planned:
        planned.execute(out=out)
        planned.execute(out=out, stream=foreign.stream)
        good(foreign.hip.hipStreamSynchronize(foreign.stream))
        forms = {
            "function": lambda: rocpy.matmul(a, weight, out=out, stream=foreign.stream),
            "plan": lambda: planned.execute(out=out, stream=foreign.stream),
            "grouped": lambda: rocpy.grouped_matmul([a], weight, out=[out], stream=foreign.stream),
        }
        graph, _ = foreign.capture(forms[form])
    weight.source[:] = np.nan
    weight.refresh()
    weight.close()
    gc.collect()
    others = [rocpy.Weight(np.full(b.shape, np.nan, np.float32)) for _ in range(8)]
    out[:] = 0
    foreign.launch(graph)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)
    del others


# ---- what goes with the graph, and what stays as long as anything of it ----


class Array(np.ndarray):
    """An array that can be watched."""


def watched_operands(seed=0):
    a, b, out = operands(seed=seed)
    return a.view(Array), b, out


def until_dropped(foreign, operand):
    """Products on a stream drop what graphs kept that are gone, a moment after the last launch is done."""
    a, b, out = operands(seed=3)
    end = time.monotonic() + 60
    while operand() is not None and time.monotonic() < end:
        rocpy.matmul(a, b, out=out, stream=foreign.stream)
        good(foreign.hip.hipStreamSynchronize(foreign.stream))
        gc.collect()
    assert operand() is None
    close(out, a @ b)


def pages():
    """Pages of the process's address space."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0])


def test_many_captures_that_are_destroyed_take_no_more_memory(foreign):
    """Products that take a workspace, and nothing but captures, so that only those can give it back."""
    random = np.random.default_rng(5)
    a = random.standard_normal((8, 4096)).astype(np.float32)
    b = random.standard_normal((4096, 8)).astype(np.float32)
    out = np.zeros((8, 8), np.float32)

    def once():
        graph, _ = foreign.capture(lambda: rocpy.matmul(a, b, out=out, stream=foreign.stream))
        out[:] = 0
        foreign.launch(graph)
        np.testing.assert_allclose(out, a @ b, rtol=1e-3, atol=1e-3)
        foreign.destroy(graph)

    for _ in range(10):
        once()
    before = pages()
    for _ in range(100):
        once()
    assert (pages() - before) * 4096 < 32 << 20


def captured_product(foreign, form, out):
    """Capture a product of operands that nobody else has; returns the graph, its result, what that is, an operand."""
    a, b, _ = watched_operands()
    wanted = np.asarray(a @ b)
    if form == "plan":
        with rocpy.Matmul(a, b) as mm:
            graph, _ = foreign.capture(lambda: mm.execute(out=out, stream=foreign.stream))
    elif form == "custom":
        arguments = {"epilogue": rocpy.epilogue(lambda x, shift: x * 2 - shift)}
        arguments["epilogue_inputs"] = {"shift": np.full(5, 0.5, np.float32)}
        graph, out = foreign.capture(lambda: rocpy.matmul(a, b, stream=foreign.stream, **arguments))
        wanted = wanted * 2 - 0.5
    elif form == "grouped":
        graph, _ = foreign.capture(lambda: rocpy.grouped_matmul([a], [b], out=[out], stream=foreign.stream))
    else:
        graph, _ = foreign.capture(lambda: rocpy.matmul(a, b, out=out, stream=foreign.stream))
    return graph, out, wanted, weakref.ref(a)


@pytest.mark.parametrize("form", ["function", "plan", "grouped", "custom"])
def test_operands_and_results_are_kept_until_the_graph_is_gone(foreign, form):
    graph, out, wanted, operand = captured_product(foreign, form, np.zeros((6, 5), np.float32))
    rocpy.plan_cache.clear()
    gc.collect()
    noise = [np.full((6, 7), np.nan, np.float32) for _ in range(50)]
    assert operand() is not None
    foreign.launch(graph)
    close(out, wanted)
    foreign.destroy(graph)
    until_dropped(foreign, operand)
    del noise


RELEASES = {
    "garbage collection": lambda stream, buffer: gc.collect(),
    "a stream is waited for": lambda stream, buffer: stream.synchronize(),
    "a stream is asked": lambda stream, buffer: stream.done,
    "an event is waited for": lambda stream, buffer: stream.record().synchronize(),
    "an event is asked": lambda stream, buffer: stream.record().done,
    "the device is waited for": lambda stream, buffer: stream.device.synchronize(),
    "a copy": lambda stream, buffer: buffer.to_numpy(),
    "a fill": lambda stream, buffer: buffer.fill(1, stream=stream),
    "a launch of a graph": lambda stream, buffer: buffer.graph.launch(stream),
}


class Filled(rocpy.Buffer):
    """Memory, and a graph that fills it."""


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_graph_kept_leaves_with_the_next_call_after_it(foreign, release):
    with rocpy.Stream(nonblocking=True) as stream, Filled(4) as buffer:
        with stream.capture() as buffer.graph:
            buffer.fill(2, stream=stream)
        graph, _, _, operand = captured_product(foreign, "function", np.zeros((6, 5), np.float32))
        RELEASES[release](stream, buffer)
        assert operand() is not None
        foreign.destroy(graph)
        RELEASES[release](stream, buffer)
        assert operand() is None


def test_what_is_made_of_a_graph_keeps_what_the_graph_kept(foreign):
    """Instantiated twice and cloned, its makers destroyed one after the other; captured again into another graph."""
    hip = foreign.hip
    out = np.zeros((6, 5), np.float32)
    launchable, _, wanted, operand = captured_product(foreign, "function", out)
    (graph, _) = foreign.graphs.pop()
    good(hip.hipGraphExecDestroy(launchable))
    clone = good(hip.hipGraphClone(graph))
    instances = [hip.hipGraphInstantiate(one, 0)[1] for one in (graph, graph, clone)]
    good(hip.hipGraphDestroy(clone))
    good(hip.hipGraphDestroy(graph))
    outer, _ = foreign.capture(lambda: good(hip.hipGraphLaunch(instances[0], foreign.stream)))
    for instance in [*instances, outer]:
        rocpy.plan_cache.clear()
        x, y, d = operands(seed=3)
        rocpy.matmul(x, y, out=d, stream=foreign.stream)
        gc.collect()
        assert operand() is not None
        out[:] = 0
        foreign.launch(instance)
        close(out, wanted)
        if instance is outer:
            foreign.destroy(instance)
        else:
            good(hip.hipGraphExecDestroy(instance))
    until_dropped(foreign, operand)


def test_a_capture_that_failed_or_was_dropped_keeps_nothing(foreign):
    hip = foreign.hip
    a, b, out = watched_operands()
    operand = weakref.ref(a)
    good(hip.hipStreamBeginCapture(foreign.stream, hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal))
    rocpy.matmul(a, b, out=out, stream=foreign.stream)
    assert int(hip.hipStreamSynchronize(foreign.stream)[0]) != 0
    assert int(hip.hipStreamEndCapture(foreign.stream)[0]) != 0
    other = good(hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking))
    good(hip.hipStreamBeginCapture(other, hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal))
    rocpy.matmul(a, b, out=out, stream=other)
    good(hip.hipStreamDestroy(other))
    del a, b
    gc.collect()
    assert operand() is None


def test_an_instance_takes_the_place_of_another(foreign):
    """hipGraphExecUpdate: the instance keeps what the graph that it was updated from kept."""
    hip = foreign.hip
    kept = []
    graphs = []
    out = np.zeros((6, 5), np.float32)
    for seed in range(2):
        a, b, _ = watched_operands(seed=seed)
        good(hip.hipStreamBeginCapture(foreign.stream, hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal))
        rocpy.matmul(a, b, out=out, stream=foreign.stream)
        graphs.append(good(hip.hipStreamEndCapture(foreign.stream)))
        kept.append((weakref.ref(a), np.asarray(a @ b)))
        del a, b
    instance = hip.hipGraphInstantiate(graphs[0], 0)[1]
    assert int(hip.hipGraphExecUpdate(instance, graphs[1], (ctypes.c_void_p * 1)())[0]) == 0
    for graph in graphs:
        good(hip.hipGraphDestroy(graph))
    until_dropped(foreign, kept[0][0])
    assert kept[1][0]() is not None
    foreign.launch(instance)
    close(out, kept[1][1])
    good(hip.hipGraphExecDestroy(instance))


@pytest.mark.parametrize("form", ["product", "groups", "packed groups"])
def test_numbers_as_scales_stay_with_the_graph(foreign, form):
    """They lie in memory of rocpy's own, which all products share and which is given back when there are many."""
    float8 = pytest.importorskip("ml_dtypes").float8_e4m3fn
    a, b, _ = operands(16, 16, 16)
    a, b = a.astype(float8), b.T.astype(float8).T
    wanted = a.astype(np.float32) @ b.astype(np.float32) * (0.375 * 1.25)
    scales = {"scale_a": 0.375, "scale_b": 1.25, "dtype": "float32", "stream": foreign.stream}
    calls = {
        "product": lambda: rocpy.matmul(a, b, **scales),
        "groups": lambda: rocpy.grouped_matmul([a], [b], **scales)[0],
        "packed groups": lambda: rocpy.grouped_matmul(a, b[None], offsets=np.array([0, 16]), **scales),
    }
    graph, result = foreign.capture(calls[form])
    one = np.ones((1, 1), float8)
    for i in range(4200):
        rocpy.matmul(one, one, scale_a=float(i), scale_b=1.0, dtype="float32")
    result[:] = 0
    foreign.launch(graph)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)
