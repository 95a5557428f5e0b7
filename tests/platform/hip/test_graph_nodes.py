# SPDX-License-Identifier: MIT
"""Nodes of graphs as XLA makes them: kernels, copies, fills and children, and other work for them once made ready."""

import ctypes

import numpy as np
import pytest
from amdgpu_code import compiled
from host_hip import Hip, Memcpy3DParams, MemsetParams, PitchedPtr

KERNEL = """
extern "C" __attribute__((global)) void scale(const int *a, int *b, int factor) {
  int i = __builtin_amdgcn_workitem_id_x();
  b[i] = a[i] * factor;
}
"""
COUNT = 32
INVALID = 1
NOT_SUPPORTED = 801
DEFAULT = 4  # hipMemcpyDefault


class KernelParams(ctypes.Structure):
    _fields_ = [
        ("block", ctypes.c_uint32 * 3),
        ("extra", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("shared", ctypes.c_uint),
    ]


@pytest.fixture(scope="module")
def code():
    return compiled(KERNEL, "gfx942")


@pytest.fixture
def hip():
    return Hip()


@pytest.fixture
def function(hip, code):
    module = hip.created("hipModuleLoadData", code)
    yield hip.created("hipModuleGetFunction", module, b"scale")
    assert hip.hipModuleUnload(module) == 0


def kernel(function, source, target, factor):
    """The parameters of a launch; they own the arguments, which HIP copies."""
    values = [ctypes.c_void_p(source.ctypes.data), ctypes.c_void_p(target.ctypes.data), ctypes.c_int(factor)]
    pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])
    params = KernelParams(block=(COUNT, 1, 1), grid=(1, 1, 1), function=function.value)
    params.arguments = ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p))
    params.kept = values, pointers
    return params


def copy(target, source):
    return (
        ctypes.c_void_p(target.ctypes.data),
        ctypes.c_void_p(source.ctypes.data),
        ctypes.c_size_t(source.nbytes),
        DEFAULT,
    )


def fill(target, value):
    return MemsetParams(dst=target.ctypes.data, element_size=4, height=1, value=value, width=4)


def test_kernels_copies_and_fills_take_other_work(hip, function):
    x = np.arange(COUNT, dtype=np.int32)
    y, z, other = np.zeros_like(x), np.zeros_like(x), np.full_like(x, 50)
    graph = hip.created("hipGraphCreate", 0)
    copied = hip.node("MemcpyNode1D", graph, [], *copy(y, x))
    filled = hip.node("MemsetNode", graph, [copied], ctypes.byref(fill(y, 9)))
    scaled = hip.node("KernelNode", graph, [filled], ctypes.byref(kernel(function, y, z, 3)))
    ready = hip.ready(graph)
    hip.run(ready)
    np.testing.assert_array_equal(z, [27, 27, 27, 27, *(3 * x[4:])])

    # In the graph made ready alone: the graph itself keeps its work.
    z[:] = 0
    target = np.zeros_like(x)
    assert hip.hipGraphExecMemcpyNodeSetParams1D(ready, copied, *copy(y, other)) == 0
    assert hip.hipGraphExecMemsetNodeSetParams(ready, filled, ctypes.byref(fill(y, 1))) == 0
    assert hip.hipGraphExecKernelNodeSetParams(ready, scaled, ctypes.byref(kernel(function, y, target, 2))) == 0
    hip.run(ready)
    np.testing.assert_array_equal(target, [2, 2, 2, 2, *([100] * (COUNT - 4))])
    assert not z.any()
    again = hip.ready(graph)
    hip.run(again)
    np.testing.assert_array_equal(z, [27, 27, 27, 27, *(3 * x[4:])])

    # In the graph: what is made ready later has it.
    assert hip.hipGraphMemcpyNodeSetParams1D(copied, *copy(y, other)) == 0
    assert hip.hipGraphMemsetNodeSetParams(filled, ctypes.byref(fill(y, 0))) == 0
    assert hip.hipGraphKernelNodeSetParams(scaled, ctypes.byref(kernel(function, y, z, 5))) == 0
    hip.run(again)
    assert z[0] == 27
    later = hip.ready(graph)
    hip.run(later)
    np.testing.assert_array_equal(z, [0, 0, 0, 0, *([250] * (COUNT - 4))])
    hip.destroy(graphs=[graph], execs=[ready, again, later])


def test_a_child_is_copied_and_replaced(hip, function):
    x = np.arange(COUNT, dtype=np.int32)
    y, z = np.zeros_like(x), np.zeros_like(x)
    children = []
    for factor in (4, 6):
        child = hip.created("hipGraphCreate", 0)
        first = hip.node("KernelNode", child, [], ctypes.byref(kernel(function, x, y, factor)))
        hip.node("MemsetNode", child, [first], ctypes.byref(fill(y, factor)))
        children.append(child)
    graph = hip.created("hipGraphCreate", 0)
    inner = hip.node("ChildGraphNode", graph, [], children[0])
    hip.node("MemcpyNode1D", graph, [inner], *copy(z, y))
    assert hip.hipGraphDestroy(children[0]) == 0
    ready = hip.ready(graph)
    hip.run(ready)
    np.testing.assert_array_equal(z, [4, 4, 4, 4, *(4 * x[4:])])
    assert hip.hipGraphExecChildGraphNodeSetParams(ready, inner, children[1]) == 0
    hip.run(ready)
    np.testing.assert_array_equal(z, [6, 6, 6, 6, *(6 * x[4:])])
    empty = hip.created("hipGraphCreate", 0)
    assert hip.hipGraphExecChildGraphNodeSetParams(ready, inner, empty) == INVALID  # of another shape
    hip.destroy(graphs=[empty, children[1], graph], execs=[ready])


def test_what_is_refused(hip, function):
    x = np.arange(COUNT, dtype=np.int32)
    graph, other = hip.created("hipGraphCreate", 0), hip.created("hipGraphCreate", 0)
    copied = hip.node("MemcpyNode1D", graph, [], *copy(np.zeros_like(x), x))
    elsewhere = hip.node("MemcpyNode1D", other, [], *copy(np.zeros_like(x), x))
    ready = hip.ready(graph)
    late = hip.node("MemcpyNode1D", graph, [], *copy(np.zeros_like(x), x))
    params = kernel(function, x, x, 1)
    assert hip.hipGraphExecKernelNodeSetParams(ready, copied, ctypes.byref(params)) == INVALID  # a copy is no kernel
    assert hip.hipGraphKernelNodeSetParams(copied, ctypes.byref(params)) == INVALID
    for node in (elsewhere, late, None):  # of another graph, or added since
        assert hip.hipGraphExecMemcpyNodeSetParams1D(ready, node, *copy(x, x)) == INVALID
    made = ctypes.c_void_p()
    for wrong, status in ((None, INVALID), (KernelParams(block=(1, 1, 1), grid=(1, 1, 1)), INVALID)):
        pointer = None if wrong is None else ctypes.byref(wrong)
        assert hip.hipGraphAddKernelNode(ctypes.byref(made), graph, None, ctypes.c_size_t(0), pointer) == status
    params.grid[0] = 0
    assert hip.hipGraphAddKernelNode(ctypes.byref(made), graph, None, ctypes.c_size_t(0), ctypes.byref(params)) != 0
    assert hip.hipGraphAddChildGraphNode(ctypes.byref(made), graph, None, ctypes.c_size_t(0), None) == INVALID
    hip.hipGetLastError()
    hip.destroy(graphs=[graph, other], execs=[ready])


def test_what_a_node_was_made_of_can_be_read_and_given_to_another(hip, function):
    x = np.arange(COUNT, dtype=np.int32)
    y, z, w = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    graph = hip.created("hipGraphCreate", 0)
    copied = hip.node("MemcpyNode1D", graph, [], *copy(y, x))
    filled = hip.node("MemsetNode", graph, [copied], ctypes.byref(fill(y, 9)))
    hip.node("KernelNode", graph, [filled], ctypes.byref(kernel(function, y, z, 3)))
    scaled = hip.node("KernelNode", graph, [filled], ctypes.byref(kernel(function, y, w, 7)))

    box, rows, launch = Memcpy3DParams(), MemsetParams(), KernelParams()
    assert hip.hipGraphMemcpyNodeGetParams(copied, ctypes.byref(box)) == 0
    assert (box.src.ptr, box.dst.ptr, box.kind) == (x.ctypes.data, y.ctypes.data, DEFAULT)
    assert tuple(box.extent) == (x.nbytes, 1, 1)
    assert hip.hipGraphMemsetNodeGetParams(filled, ctypes.byref(rows)) == 0
    assert (rows.dst, rows.value, rows.width, rows.element_size) == (y.ctypes.data, 9, 4, 4)
    assert hip.hipGraphKernelNodeGetParams(scaled, ctypes.byref(launch)) == 0
    assert (launch.function, tuple(launch.block), tuple(launch.grid)) == (function.value, (COUNT, 1, 1), (1, 1, 1))
    target = ctypes.cast(launch.arguments[1], ctypes.POINTER(ctypes.c_void_p))
    factor = ctypes.cast(launch.arguments[2], ctypes.POINTER(ctypes.c_int))
    assert (target[0], factor[0]) == (w.ctypes.data, 7)

    # Changed a little and given back: what is made ready later has it.
    factor[0], rows.value = 5, 1
    box.src = PitchedPtr(x[16:].ctypes.data, 64, 64, 1)
    box.extent[0] = 64
    assert hip.hipGraphKernelNodeSetParams(scaled, ctypes.byref(launch)) == 0
    assert hip.hipGraphMemsetNodeSetParams(filled, ctypes.byref(rows)) == 0
    assert hip.hipGraphMemcpyNodeSetParams(copied, ctypes.byref(box)) == 0
    ready = hip.ready(graph)
    hip.run(ready)
    expected = np.r_[np.ones(4), x[20:], np.zeros(16)]
    np.testing.assert_array_equal(w, 5 * expected)
    np.testing.assert_array_equal(z, 3 * expected)
    box.src = PitchedPtr(x.ctypes.data, 64, 64, 1)
    assert hip.hipGraphExecMemcpyNodeSetParams(ready, copied, ctypes.byref(box)) == 0
    hip.run(ready)
    np.testing.assert_array_equal(w[4:16], 5 * x[4:16])

    for name, node, params in (("Kernel", copied, launch), ("Memset", scaled, rows), ("Memcpy", filled, box)):
        read = getattr(hip, f"hipGraph{name}NodeGetParams")
        assert read(node, ctypes.byref(params)) == INVALID  # of another type
        assert read(node, None) == INVALID
    hip.hipGetLastError()
    hip.destroy(graphs=[graph], execs=[ready])


def test_a_captured_kernel_and_a_host_function_can_be_read(hip, function):
    x = np.arange(COUNT, dtype=np.int32)
    y = np.zeros_like(x)
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    stream = hip.created("hipStreamCreate")
    params = kernel(function, x, y, 3)
    assert hip.hipStreamBeginCapture(stream, 0) == 0
    assert hip.hipModuleLaunchKernel(function, 1, 1, 1, COUNT, 1, 1, 0, stream, params.arguments, None) == 0
    assert hip.hipLaunchHostFunc(stream, called, ctypes.c_void_p(42)) == 0
    assert hip.hipMemcpyAsync(*copy(y, x), stream) == 0
    graph = ctypes.c_void_p()
    assert hip.hipStreamEndCapture(stream, ctypes.byref(graph)) == 0
    nodes, count = (ctypes.c_void_p * 3)(), ctypes.c_size_t(3)
    assert hip.hipGraphGetNodes(graph, nodes, ctypes.byref(count)) == 0
    launched, hosted, copied = (ctypes.c_void_p(node) for node in nodes)
    launch, host, box = KernelParams(), (ctypes.c_void_p * 2)(), Memcpy3DParams()
    assert hip.hipGraphKernelNodeGetParams(launched, ctypes.byref(launch)) == 0
    assert ctypes.cast(launch.arguments[2], ctypes.POINTER(ctypes.c_int))[0] == 3
    assert hip.hipGraphHostNodeGetParams(hosted, host) == 0
    assert tuple(host) == (ctypes.cast(called, ctypes.c_void_p).value, 42)
    assert hip.hipGraphMemcpyNodeGetParams(copied, ctypes.byref(box)) == NOT_SUPPORTED
    hip.hipGetLastError()
    assert hip.hipGraphDestroy(graph) == 0
    assert hip.hipStreamDestroy(stream) == 0


def test_a_graph_is_drawn(hip, tmp_path):
    x = np.arange(COUNT, dtype=np.int32)
    graph = hip.created("hipGraphCreate", 0)
    copied = hip.node("MemcpyNode1D", graph, [], *copy(np.zeros_like(x), x))
    hip.node("MemsetNode", graph, [copied], ctypes.byref(fill(x, 9)))
    path = tmp_path / "graph.dot"
    assert hip.hipGraphDebugDotPrint(graph, bytes(path), 0) == 0
    assert path.read_text().splitlines()[1:-1] == [
        '  node_0 [label="0: copy"];',
        '  node_1 [label="1: fill"];',
        "  node_0 -> node_1;",
    ]
    assert hip.hipGraphDebugDotPrint(graph, bytes(tmp_path / "none" / "graph.dot"), 0) == 304
    assert hip.hipGraphDebugDotPrint(graph, None, 0) == INVALID
    hip.hipGetLastError()
    assert hip.hipGraphDestroy(graph) == 0
