# SPDX-License-Identifier: MIT
"""Products captured into graphs: what a launch computes, what it keeps alive, and what is refused."""

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest
from blocked_streams import blocked, delay

import rocpy

pytestmark = pytest.mark.skipif(
    not rocpy.platform.current().host_memory,
    reason="operands in CPU memory, which this device cannot use, are refused in a capture: see test_staging.py",
)


class Array(np.ndarray):
    """An array that can be watched."""


@pytest.fixture
def stream():
    with rocpy.Stream(nonblocking=True) as made:
        yield made


def arrays(m=5, n=4, k=3, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)


def test_a_launch_computes_what_the_operands_are_then(stream):
    a, b = arrays()
    bias = np.zeros(4, np.float32)
    d = np.full((5, 4), np.nan, np.float32)
    with rocpy.Matmul(a, b, epilogue="relu_bias", bias=bias) as mm:
        with stream.capture() as graph:
            assert mm.execute(out=d, stream=stream) is d
        assert np.isnan(d).all()
        for scale in (1, 2, 3):
            a *= scale
            bias += 0.5
            graph.launch()
            stream.synchronize()
            np.testing.assert_allclose(d, np.maximum(a @ b + bias, 0), rtol=1e-5, atol=1e-5)
    assert graph.node_count == 1
    graph.close()


def test_products_that_follow_each_other_and_fork(stream):
    a, b = arrays(4, 4, 4)
    with rocpy.Stream(nonblocking=True) as other, rocpy.Event() as fork, rocpy.Event() as join:
        with stream.capture() as graph:
            first = rocpy.matmul(a, b, stream=stream)
            stream.record(fork)
            other.wait(fork)
            left = rocpy.matmul(first, b, stream=stream)
            right = rocpy.matmul(a, first, stream=other)
            other.record(join)
            stream.wait(join)
            both = rocpy.matmul(left, right, stream=stream)
        assert graph.node_count == 4
        graph.launch(stream=other)
        other.synchronize()
        np.testing.assert_allclose(both, ((a @ b) @ b) @ (a @ (a @ b)), rtol=1e-3, atol=1e-3)


def test_a_stream_that_joined_may_be_closed_while_the_capture_goes_on(stream):
    a, b = arrays()
    with rocpy.Event() as fork, rocpy.Event() as join:
        with stream.capture() as graph:
            stream.record(fork)
            with rocpy.Stream(nonblocking=True) as other:
                other.wait(fork)
                product = rocpy.matmul(a, b, stream=other)
                other.record(join)
                stream.wait(join)
        rocpy.plan_cache.clear()
        with rocpy.Stream(nonblocking=True) as another:
            rocpy.matmul(a, b, stream=another)  # takes nothing that the graph uses
        product[:] = np.nan
        graph.launch()
        stream.synchronize()
        np.testing.assert_allclose(product, a @ b, rtol=1e-5, atol=1e-6)
    graph.close()


def test_an_epilogue_with_two_results(stream):
    a, b = arrays()
    with stream.capture() as graph:
        d, aux = rocpy.matmul(a, b, epilogue="gelu_aux", stream=stream)
    graph.launch()
    stream.synchronize()
    np.testing.assert_allclose(aux["gelu_aux"], a @ b, rtol=1e-5, atol=1e-5)
    assert d.shape == aux["gelu_aux"].shape


def test_the_graph_keeps_operands_and_results(stream):
    a, b = (x.view(Array) for x in arrays())
    wanted = np.asarray(a @ b)
    with stream.capture() as graph:
        d = rocpy.matmul(a, b, stream=stream)
    watched = [weakref.ref(x) for x in (a, b)]
    del a, b
    gc.collect()
    assert all(x() is not None for x in watched)
    graph.launch()
    stream.synchronize()
    np.testing.assert_allclose(d, wanted, rtol=1e-5, atol=1e-5)
    graph.close()
    rocpy.matmul(np.ones((2, 2)), np.ones((2, 2)), stream=stream)  # what the launch held goes with the next that holds
    stream.synchronize()
    gc.collect()
    assert all(x() is None for x in watched)


@pytest.mark.parametrize("epilogue", ["dgelu_bgrad", "drelu_bgrad", None])
def test_the_graph_keeps_what_a_product_without_elements_writes(stream, epilogue):
    """Sums of nothing, and the largest of no magnitudes, are zeros that each launch writes."""
    a, b = arrays(m=0)
    options = {"epilogue": epilogue, "aux": np.zeros((0, 4), np.float32)}
    if epilogue is None:
        a, b = (x.astype(rocpy.dtypes.lookup("float8_e4m3fn").numpy) for x in (a, b))
        options = {"scale_a": 1.0, "scale_b": 1.0, "amax": True}
    with stream.capture() as graph:
        _, extras = rocpy.matmul(a, b, **options, stream=stream)
    assert graph.node_count == 1
    watched = [weakref.ref(array) for array in extras.values()]
    extras.clear()
    gc.collect()
    assert all(array() is not None for array in watched)
    graph.launch()
    stream.synchronize()
    assert all((array() == 0).all() for array in watched)
    graph.close()


@pytest.mark.parametrize(("epilogue", "m", "n"), [("bgradb", 0, 4), ("bgrada", 5, 0)])
def test_sums_of_an_operand_without_a_product_are_refused(stream, epilogue, m, n):
    """The arrays' framework computes them: a launch would not."""
    a, b = arrays(m, n)
    with rocpy.Matmul(a, b, epilogue=epilogue) as mm, stream.capture() as graph:
        with pytest.raises(rocpy.UnsupportedError, match="gradient of a result without elements"):
            rocpy.matmul(a, b, epilogue=epilogue, stream=stream)
        with pytest.raises(rocpy.UnsupportedError, match="gradient of a result without elements"):
            mm.execute(stream=stream)
    assert graph.node_count == 0


@pytest.mark.torch
@pytest.mark.parametrize("form", ["matmul", "plan", "grouped", "buffer", "fill", "inner"])
def test_a_launch_counts_as_a_write_of_a_tensor(stream, torch, form):
    """Autograd and a Weight see that by the tensor's version."""
    ones, w = torch.ones(4, 4), torch.zeros(4, 4)
    weight, buffer = rocpy.Weight(w), rocpy.Buffer.from_dlpack(w)
    with rocpy.Matmul(ones, ones) as mm, stream.capture() as graph:
        if form == "plan":
            mm.execute(out=w, stream=stream)
        elif form == "grouped":
            rocpy.grouped_matmul([ones], [ones], out=[w], stream=stream)
        elif form == "buffer":
            rocpy.matmul(ones, ones, out=buffer, stream=stream)
        elif form == "fill":
            buffer.fill(0, stream=stream)
        else:
            rocpy.matmul(ones, ones, out=w, stream=stream)
    if form == "inner":
        inner = graph
        with stream.capture() as graph:
            inner.launch()
        inner.close()
    w.fill_(7)
    assert (rocpy.matmul(ones, weight) == 28).all()
    for _ in range(2):
        before = w._version
        graph.launch()
        stream.synchronize()
        assert w._version > before
    assert (rocpy.matmul(ones, weight) == 4 * w[0, 0]).all()
    assert w[0, 0] == (0 if form == "fill" else 4)
    graph.close()


def test_a_weight_that_is_packed_again_leaves_the_graph_its_memory(stream):
    a, b = arrays(8, 64, 32)
    weight = rocpy.Weight(b.copy())
    with stream.capture() as graph:
        d = rocpy.matmul(a, weight, stream=stream)
    weight.source[:] = 0
    weight.refresh()
    weight.close()
    graph.launch()
    stream.synchronize()
    np.testing.assert_allclose(d, a @ b, rtol=1e-4, atol=1e-4)


def test_the_first_product_of_all_is_captured():
    import subprocess
    import sys

    program = (
        "import numpy as np, rocpy\n"
        "a = np.ones((70, 50)); d = np.zeros((70, 70))\n"
        "with rocpy.Stream(nonblocking=True) as stream, rocpy.Matmul(a, a.T) as mm:\n"
        "    with stream.capture() as graph:\n"
        "        mm.execute(out=d, stream=stream)\n"
        "    graph.launch(); stream.synchronize(); graph.close()\n"
        "assert (d == 50).all()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_graph_within_a_graph(stream):
    a, b = arrays()
    with stream.capture() as inner:
        d = rocpy.matmul(a, b, stream=stream)
    with stream.capture() as outer:
        inner.launch()
    inner.close()
    outer.launch()
    stream.synchronize()
    np.testing.assert_allclose(d, a @ b, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_captured_is_refused_before_it_spoils_the_capture(stream):
    a, b = arrays(4, 4, 4)
    buffer = rocpy.Buffer(a.shape, "float32")
    refused = {
        "a copied operand": lambda: rocpy.matmul(np.ones((8, 8), np.float32)[::2, ::2], b, stream=stream),
        "another dtype of out": lambda: rocpy.matmul(a, b, out=np.zeros((4, 4)), stream=stream),
        "groups that are copied": lambda: rocpy.grouped_matmul(
            [a, np.ones((8, 8), np.float32)[::2, ::2]], [b], stream=stream
        ),
        "copies into a buffer": lambda: buffer.copy_from(a, stream=stream),
        "copies of a transposed array": lambda: buffer.copy_from(a.T, stream=stream),
        "copies out of a buffer": lambda: buffer.copy_to(a, stream=stream),
        "copies as an array": lambda: buffer.to_numpy(stream=stream),
    }
    with stream.capture() as graph:
        d = rocpy.matmul(a, b, stream=stream)
        for call in refused.values():
            with pytest.raises(rocpy.UnsupportedError, match="captured into a graph"):
                call()
    graph.launch()
    stream.synchronize()
    np.testing.assert_allclose(d, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["thread_local", "global", "relaxed"])
def test_a_capture_goes_on_while_calls_wait_for_other_streams(stream, mode):
    a, b = arrays(4, 4, 4)
    wide = np.ones((8, 8), np.float32)
    buffer = rocpy.Buffer(a.shape, "float32")
    with rocpy.Stream(nonblocking=True) as other, stream.capture(mode) as graph:
        d = rocpy.matmul(a, b, stream=stream)
        rocpy.matmul(wide[::2, ::2], b, stream=other)
        rocpy.matmul(a, b, out=np.empty((4, 4)), stream=other)
        buffer.copy_from(a, stream=other)
        np.testing.assert_array_equal(buffer.to_numpy(stream=other), a)
    graph.launch()
    stream.synchronize()
    np.testing.assert_allclose(d, a @ b, rtol=1e-5, atol=1e-5)


WAITING = {
    "product": rocpy.matmul,
    "plan": lambda a, b: rocpy.Matmul(a, b).execute(),
    "weight": lambda a, b: rocpy.matmul(a, rocpy.Weight(b)),
    "epilogue": lambda a, b: rocpy.matmul(a, b, epilogue=rocpy.epilogue(lambda x: x * 1)),
    "groups": lambda a, b: rocpy.grouped_matmul([a], [b])[0],
    "packed groups": lambda a, b: rocpy.grouped_matmul(a, b[None], offsets=[0, len(a)]),
    "composed": lambda a, b: rocpy.matmul(a.astype(np.int8), b.astype(np.int8), epilogue="relu_aux")[0],
}


@pytest.mark.parametrize("mode", ["thread_local", "global"])
@pytest.mark.parametrize("name", WAITING)
def test_a_capture_goes_on_while_calls_wait_for_the_null_stream(stream, name, mode):
    a, b = np.full((8, 8), 2, np.float32), np.full((8, 8), 3, np.float32)
    with rocpy.Stream() as writer, stream.capture(mode) as graph:
        keep = delay(writer)  # the null stream waits for it, and the product for the null stream
        np.testing.assert_array_equal(WAITING[name](a, b), np.full((8, 8), 48))
        del keep
        d = rocpy.matmul(a, b, stream=stream)
    graph.launch()
    stream.synchronize()
    np.testing.assert_array_equal(d, a @ b)


def test_a_planned_product_that_copies_is_refused(stream):
    a, b = arrays(4, 4, 4)
    for operand, given, match in (
        (np.ones((8, 8), np.float32)[::2, ::2], None, "a must be copied"),
        (a, np.zeros((4, 4)), "out="),
    ):
        with rocpy.Matmul(operand, b) as mm:
            with stream.capture() as graph, pytest.raises(rocpy.UnsupportedError, match=match):
                mm.execute(out=given, stream=stream)
            assert graph.node_count == 0


def test_a_capture_that_fails_leaves_a_closed_graph(stream):
    a, b = arrays()
    graph = stream.capture()
    with pytest.raises(rocpy.RocpyError) as caught, graph:
        rocpy.Device.current().synchronize()
    assert caught.value.status_name == "hipErrorStreamCaptureUnsupported"
    assert graph.is_closed
    with pytest.raises(rocpy.ClosedError):
        graph.launch()
    with pytest.raises(ZeroDivisionError), stream.capture():
        rocpy.matmul(a, b, stream=stream, alpha=1 / 0)
    np.testing.assert_allclose(rocpy.matmul(a, b, stream=stream), rocpy.matmul(a, b), rtol=1e-6)
    stream.synchronize()


@pytest.mark.parametrize("call", [lambda stream: stream.synchronize(), lambda stream: stream.done])
def test_a_capture_goes_on_where_its_stream_is_waited_for(stream, call):
    a, b = arrays()
    out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    with stream.capture() as graph:
        with pytest.raises(
            rocpy.UnsupportedError, match=r"^stream: it is being captured.*call it outside of the capture$"
        ):
            call(stream)
        rocpy.matmul(a, b, out=out, stream=stream)
    graph.launch()
    stream.synchronize()
    np.testing.assert_allclose(out, rocpy.matmul(a, b), rtol=1e-6)


@pytest.mark.parametrize("error", [None, KeyError])
def test_only_its_own_thread_ends_a_capture(stream, error):
    """Another one is refused, also where its block failed; then the capture goes on and its own thread ends it."""
    memory, refused = rocpy.Buffer(4), []
    graph = stream.capture()

    def leave():
        try:
            graph.__exit__(error, None, None)
        except rocpy.LibraryError as caught:
            refused.append(caught.status_name)

    with graph:
        memory.fill(1, stream=stream)
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert "being captured" in repr(graph)
        memory.fill(2, stream=stream)
    assert refused == ["hipErrorStreamCaptureWrongThread"]
    assert graph.node_count == 2
    graph.launch()
    stream.synchronize()
    assert (memory.to_numpy() == 2).all()


def test_a_graph_that_is_dropped_in_its_block_ends_the_capture(stream):
    memory, operand = rocpy.Buffer(4), np.ones((2, 2), np.float32).view(Array)
    kept = weakref.ref(operand)
    graph = stream.capture().__enter__()
    rocpy.matmul(operand, operand, stream=stream)
    del graph, operand
    gc.collect()
    assert kept() is None
    memory.fill(3, stream=stream)
    stream.synchronize()
    assert (memory.to_numpy() == 3).all()


def test_a_graph_that_another_thread_drops_warns_and_leaves_the_capture(stream):
    box = [stream.capture().__enter__()]
    thread = threading.Thread(target=box.clear)

    def drop():
        thread.start()
        thread.join()

    with pytest.warns(rocpy.RocpyWarning, match="dropped in its block.*WrongThread"):
        drop()
    handles = rocpy.plan_cache.handles()
    stream.close()  # which ends the capture in HIP
    with rocpy.Stream() as other:
        operand = np.ones((2, 2), np.float32).view(Array)
        kept = weakref.ref(operand)
        rocpy.matmul(operand, operand, stream=other)
        del operand
        other.synchronize()
        assert kept() is None
    gc.collect()
    rocpy.plan_cache.clear()  # and what the capture was lent
    assert rocpy.plan_cache.handles() < handles


def test_a_launch_on_a_stream_of_another_device(stream):
    """HIP takes such a stream. The work is queued once, and the call returns before it is done."""
    memory = rocpy.Buffer(4, device=0)
    memory.fill(0)
    with stream.capture() as graph:
        memory.fill(8, stream=stream)
    with rocpy.Stream(1, nonblocking=True) as other:
        with blocked(other):
            graph.launch(other)
            assert not other.done
            assert (memory.to_numpy(stream=stream) == 0).all()
        other.synchronize()
        assert (memory.to_numpy() == 8).all()


def test_misuse_is_told(stream):
    with pytest.raises(rocpy.InvalidProblemError, match="mode"):
        stream.capture(mode="local")
    graph = stream.capture()
    with pytest.raises(rocpy.RocpyError, match="captured nothing yet"):
        graph.launch()
    with graph, pytest.raises(rocpy.RocpyError, match="exit its with block"):
        graph.close()
    with pytest.raises(rocpy.RocpyError, match="another one"):
        graph.__enter__()
    graph.launch()
    assert "0 nodes" in repr(graph)
    graph.close()
    assert graph.is_closed


def test_memory_may_be_given_out_while_a_stream_is_captured(stream):
    before = rocpy.Buffer(16, "uint8")
    values = rocpy.Buffer(16, "uint8")
    with stream.capture(mode="global") as graph:
        before.close()
        rocpy.Buffer(1 << 20, "uint8").close()
        values.fill(3, stream=stream)
    graph.launch()
    stream.synchronize()
    assert (values.to_numpy() == 3).all()
    values.close()


# ---- groups ----


@pytest.mark.parametrize("form", ["lists", "rows", "columns", "sums"])
def test_grouped_products(stream, form):
    random = np.random.default_rng(5)
    draw = lambda *shape: random.standard_normal(shape, np.float32)  # noqa: E731
    offsets = np.array([0, 3, 3, 7, 12])
    groups = list(itertools.pairwise(offsets.tolist()))
    if form == "lists":
        a, b = [draw(3, 5), draw(1, 8)], [draw(5, 4), draw(8, 6)]
        wanted = lambda: [x @ y for x, y in zip(a, b, strict=True)]  # noqa: E731
        given = {}
    elif form == "rows":
        a, b = draw(12, 5), draw(4, 5, 6)
        wanted = lambda: [np.concatenate([a[i:j] @ b[g] for g, (i, j) in enumerate(groups)])]  # noqa: E731
        given = {"offsets": offsets}
    elif form == "columns":
        a, b = draw(4, 6, 5), draw(5, 12)
        wanted = lambda: [np.concatenate([a[g] @ b[:, i:j] for g, (i, j) in enumerate(groups)], axis=1)]  # noqa: E731
        given = {"offsets": offsets}
    else:
        a, b = draw(6, 12), draw(12, 5)
        wanted = lambda: [np.stack([a[:, i:j] @ b[i:j] for i, j in groups])]  # noqa: E731
        given = {"offsets": offsets}
    with stream.capture() as graph:
        d = rocpy.grouped_matmul(a, b, stream=stream, **given)
    offsets[:] = 0  # read when the graph was made
    for times in (1, 2):
        for left in a if form == "lists" else [a]:
            np.multiply(left, times, out=left)
        graph.launch()
        stream.synchronize()
        offsets[:] = [0, 3, 3, 7, 12]
        for seen, expected in zip(d if form == "lists" else [d], wanted(), strict=True):
            np.testing.assert_allclose(seen, expected, rtol=1e-4, atol=1e-5)
    graph.close()


def test_a_grouped_weight_that_is_packed_again_leaves_the_graph_its_memory(stream):
    a, b = arrays(8, 64, 32)
    weight = rocpy.Weight(b.copy())
    with stream.capture() as graph:
        results = rocpy.grouped_matmul([a, 2 * a], weight, stream=stream)
    weight.source[:] = 0
    weight.refresh()
    weight.close()
    graph.launch()
    stream.synchronize()
    for times, d in enumerate(results, 1):
        np.testing.assert_allclose(d, times * a @ b, rtol=1e-4, atol=1e-4)
