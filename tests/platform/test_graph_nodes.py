# SPDX-License-Identifier: MIT
"""Nodes of graphs as XLA makes them: kernels, copies, fills and children, and other work for them once made ready."""

import ctypes

import numpy as np
import pytest
from amdgpu_code import compiled

from rocpy.cli.rocm_tree import libraries

KERNEL = """
extern "C" __attribute__((global)) void scale(const int *a, int *b, int factor) {
  int i = __builtin_amdgcn_workitem_id_x();
  b[i] = a[i] * factor;
}
"""
COUNT = 32
INVALID = 1
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


class MemsetParams(ctypes.Structure):
    _fields_ = [
        ("dst", ctypes.c_void_p),
        ("element_size", ctypes.c_uint),
        ("height", ctypes.c_size_t),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("width", ctypes.c_size_t),
    ]


class Hip:
    """HIP's functions on the host platform, each of which returns its status."""

    def __init__(self):
        self.library = ctypes.CDLL(str(libraries("7.2")["librocpy_host.so"]))

    def __getattr__(self, name):
        return getattr(self.library, f"rocpy_host_{name}")

    def made(self, name, *arguments):
        """Call what gives a handle back."""
        handle = ctypes.c_void_p()
        status = getattr(self, name)(ctypes.byref(handle), *arguments)
        assert status == 0, f"{name}: {status}"
        return handle

    def node(self, kind, graph, after, *arguments):
        count = ctypes.c_size_t(len(after))
        return self.made(f"hipGraphAdd{kind}", graph, (ctypes.c_void_p * len(after))(*after), count, *arguments)

    def ready(self, graph):
        return self.made("hipGraphInstantiate", graph, None, None, ctypes.c_size_t(0))

    def run(self, ready):
        assert self.hipGraphLaunch(ready, None) == 0
        assert self.hipDeviceSynchronize() == 0

    def destroy(self, *, graphs, execs):
        for graph in graphs:
            assert self.hipGraphDestroy(graph) == 0
        for exec_ in execs:
            assert self.hipGraphExecDestroy(exec_) == 0


@pytest.fixture(scope="module")
def code():
    return compiled(KERNEL, "gfx942")


@pytest.fixture
def hip():
    return Hip()


@pytest.fixture
def function(hip, code):
    module = hip.made("hipModuleLoadData", code)
    yield hip.made("hipModuleGetFunction", module, b"scale")
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
    graph = hip.made("hipGraphCreate", 0)
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
        child = hip.made("hipGraphCreate", 0)
        first = hip.node("KernelNode", child, [], ctypes.byref(kernel(function, x, y, factor)))
        hip.node("MemsetNode", child, [first], ctypes.byref(fill(y, factor)))
        children.append(child)
    graph = hip.made("hipGraphCreate", 0)
    inner = hip.node("ChildGraphNode", graph, [], children[0])
    hip.node("MemcpyNode1D", graph, [inner], *copy(z, y))
    assert hip.hipGraphDestroy(children[0]) == 0
    ready = hip.ready(graph)
    hip.run(ready)
    np.testing.assert_array_equal(z, [4, 4, 4, 4, *(4 * x[4:])])
    assert hip.hipGraphExecChildGraphNodeSetParams(ready, inner, children[1]) == 0
    hip.run(ready)
    np.testing.assert_array_equal(z, [6, 6, 6, 6, *(6 * x[4:])])
    empty = hip.made("hipGraphCreate", 0)
    assert hip.hipGraphExecChildGraphNodeSetParams(ready, inner, empty) == INVALID  # of another shape
    hip.destroy(graphs=[empty, children[1], graph], execs=[ready])


def test_what_is_refused(hip, function):
    x = np.arange(COUNT, dtype=np.int32)
    graph, other = hip.made("hipGraphCreate", 0), hip.made("hipGraphCreate", 0)
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
