# SPDX-License-Identifier: MIT
"""What may replace what in a graph made ready, and the memory that its launches give out, as in AMD's runtime."""

import ctypes
import threading

import numpy as np
import pytest
from host_hip import Hip, MemsetParams

INVALID = 1
UPDATE_FAILURE = 910
SUCCESS, TOPOLOGY, NODE_TYPE, PARAMETERS, FUNCTION = 0, 2, 3, 5, 7  # hipGraphExecUpdateResult
TO_DEVICE, BETWEEN_DEVICES = 1, 3  # hipMemcpyKind
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

source, target = np.arange(4, dtype=np.int32), np.zeros(4, dtype=np.int32)
FUNCTION_OF_NOTHING = HOST_FUNCTION(lambda _: None)


@pytest.fixture
def hip():
    runtime = Hip()
    runtime.hipSetDevice(0)
    yield runtime
    runtime.hipSetDevice(0)
    runtime.hipGetLastError()


@pytest.fixture
def stream(hip):
    stream = hip.created("hipStreamCreateWithFlags", 1)
    yield stream
    assert hip.hipStreamSynchronize(stream) == 0
    assert hip.hipStreamDestroy(stream) == 0


def copy(kind=BETWEEN_DEVICES):
    return ctypes.c_void_p(target.ctypes.data), ctypes.c_void_p(source.ctypes.data), ctypes.c_size_t(16), kind


def built(hip, types, edges=(), kind=BETWEEN_DEVICES, device=0):
    """A graph of copies, empty nodes and host functions, and its nodes."""
    assert hip.hipSetDevice(device) == 0
    graph, nodes = hip.created("hipGraphCreate", 0), []
    for kind_of_node in types:
        if kind_of_node == "copy":
            nodes.append(hip.node("MemcpyNode1D", graph, [], *copy(kind)))
        elif kind_of_node == "host":
            params = (ctypes.c_void_p * 2)(ctypes.cast(FUNCTION_OF_NOTHING, ctypes.c_void_p).value, None)
            nodes.append(hip.node("HostNode", graph, [], params))
        else:
            nodes.append(hip.node("EmptyNode", graph, []))
    for earlier, later in edges:
        ends = [ctypes.byref(nodes[index]) for index in (earlier, later)]
        assert hip.hipGraphAddDependencies(graph, *ends, ctypes.c_size_t(1)) == 0
    assert hip.hipSetDevice(0) == 0
    return graph, nodes


def captured(hip, stream, work, *arguments):
    """A graph of what a function, which returns a status or nothing, submits to the stream."""
    assert hip.hipStreamBeginCapture(stream, 2) == 0
    assert not work(*arguments)
    graph = ctypes.c_void_p()
    assert hip.hipStreamEndCapture(stream, ctypes.byref(graph)) == 0
    return graph


def update(hip, ready, graph):
    """The status, the result and the node that hipGraphExecUpdate names."""
    node, result = ctypes.c_void_p(7), ctypes.c_int(-1)
    status = hip.hipGraphExecUpdate(ready, graph, ctypes.byref(node), ctypes.byref(result))
    assert status == (UPDATE_FAILURE if result.value else 0)
    return result.value, node.value


COPIES = ["copy"] * 3
JOIN, FORK = [(0, 2), (1, 2)], [(0, 1), (0, 2)]
UPDATES = {
    "edges added in another order": (COPIES, JOIN, {"edges": JOIN[::-1]}, SUCCESS, None),
    "other edges": (COPIES, JOIN, {"edges": [(0, 1), (1, 2)]}, TOPOLOGY, 1),
    "as many edges": (["copy"] * 4, [(0, 2), (0, 3)], {"edges": [(0, 2), (1, 3)]}, TOPOLOGY, 3),
    "fewer nodes": (COPIES, [], {"types": COPIES[:2]}, TOPOLOGY, None),
    "another type": (COPIES, FORK, {"types": ["copy", "copy", "empty"]}, NODE_TYPE, 2),
    "another direction": (COPIES, FORK, {"kind": TO_DEVICE}, PARAMETERS, 0),
    "another device": (["empty", *COPIES], [(0, 1), (0, 2), (0, 3)], {"device": 1}, FUNCTION, 1),
    "no work on another device": (["empty", "host"], [(0, 1)], {"device": 1}, SUCCESS, None),
}


@pytest.mark.parametrize("case", UPDATES)
def test_an_update_names_what_differs(hip, case):
    types, edges, changes, result, index = UPDATES[case]
    graph, _ = built(hip, types, edges)
    other, nodes = built(hip, **{"types": types, "edges": edges, **changes})
    ready = hip.ready(graph)
    assert update(hip, ready, other) == (result, None if index is None else nodes[index].value)
    hip.destroy(graphs=[graph, other], execs=[ready])


def test_a_captured_copy_has_its_direction_and_a_captured_launch_its_nodes(hip, stream):
    graphs = [captured(hip, stream, hip.hipMemcpyAsync, *copy(kind), stream) for kind in (3, 3, 1)]
    execs = [hip.ready(graph) for graph in graphs]
    assert update(hip, execs[0], graphs[1]) == (SUCCESS, None)
    assert update(hip, execs[0], graphs[2])[0] == PARAMETERS
    graph, _ = built(hip, ["copy", "copy"])
    execs.append(hip.ready(graph))
    outers = [captured(hip, stream, hip.hipGraphLaunch, exec_, stream) for exec_ in execs]
    outer = hip.ready(outers[0])
    assert [update(hip, outer, one)[0] for one in outers] == [SUCCESS, SUCCESS, PARAMETERS, TOPOLOGY]
    node, count = ctypes.c_void_p(), ctypes.c_size_t(1)
    assert hip.hipGraphGetNodes(outers[0], ctypes.byref(node), ctypes.byref(count)) == 0
    assert [hip.hipGraphExecChildGraphNodeSetParams(outer, node, one) for one in graphs] == [0, 0, INVALID]
    target[:] = 0
    hip.run(outer)
    np.testing.assert_array_equal(target, source)
    hip.destroy(graphs=[*graphs, graph, *outers], execs=[*execs, outer])


def test_work_of_a_node_made_ready_is_replaced_in_the_same_direction_and_rows(hip):
    graph, (node,) = built(hip, ["copy"])
    rows = MemsetParams(dst=target.ctypes.data, element_size=4, height=2, pitch=8, value=1, width=2)
    fill = hip.node("MemsetNode", graph, [], ctypes.byref(rows))
    ready = hip.ready(graph)
    for kind, status in ((BETWEEN_DEVICES, 0), (TO_DEVICE, INVALID)):
        assert hip.hipGraphExecMemcpyNodeSetParams1D(ready, node, *copy(kind)) == status
    assert hip.hipGraphMemcpyNodeSetParams1D(node, *copy(TO_DEVICE)) == 0  # the graph's own may change
    for changes, status in (({"value": 2}, 0), ({"width": 1}, INVALID), ({"height": 1}, 0)):
        other = MemsetParams(**{name: getattr(rows, name) for name, _ in MemsetParams._fields_} | changes)
        assert hip.hipGraphExecMemsetNodeSetParams(ready, fill, ctypes.byref(other)) == status
    hip.destroy(graphs=[graph], execs=[ready])


# ---- memory that launches give out ----


def allocating(hip, stream, flags=0):
    """A graph made ready that gives out memory and fills it, and the memory."""
    memory = ctypes.c_void_p()

    def work():
        assert hip.hipMallocAsync(ctypes.byref(memory), ctypes.c_size_t(16), stream) == 0
        assert hip.hipMemsetD32Async(memory, 7, ctypes.c_size_t(4), stream) == 0

    graph = captured(hip, stream, work)
    ready = hip.created("hipGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(flags))
    return graph, ready, memory


@pytest.mark.parametrize("way", ["hipFree", "hipFreeAsync", "graph"])
def test_a_graph_is_not_launched_again_before_its_memory_is_free(hip, stream, way):
    graph, ready, memory = allocating(hip, stream)
    outer_graph = captured(hip, stream, hip.hipGraphLaunch, ready, stream)
    free_graph = captured(hip, stream, hip.hipFreeAsync, memory, stream)
    outer, freeing = hip.ready(outer_graph), hip.ready(free_graph)
    for launched in (ready, outer, ready):
        assert hip.hipGraphLaunch(launched, stream) == 0
        for again in (ready, outer):
            assert hip.hipGraphLaunch(again, stream) == INVALID
        if way == "graph":
            assert hip.hipGraphLaunch(freeing, stream) == 0
        else:
            assert getattr(hip, way)(memory, *[stream] * (way == "hipFreeAsync")) == 0
        assert hip.hipFree(memory) == INVALID  # it is free
    hip.destroy(graphs=[graph, outer_graph, free_graph], execs=[ready, outer, freeing])


def test_a_graph_that_frees_at_launch_is_launched_again(hip, stream):
    graph, ready, memory = allocating(hip, stream, flags=1)
    for _ in range(3):
        assert hip.hipGraphLaunch(ready, stream) == 0
    assert [hip.hipFree(memory), hip.hipFree(memory)] == [0, INVALID]
    hip.destroy(graphs=[graph], execs=[ready])


def test_memory_of_a_launch_that_has_not_run_is_freed_after_what_is_queued(hip, stream):
    graph, ready, memory = allocating(hip, stream)
    own = hip.created("hipMalloc", ctypes.c_size_t(16))  # a copy to other memory would wait
    go = threading.Event()
    wait = HOST_FUNCTION(lambda _: go.wait(60) and None)
    assert hip.hipLaunchHostFunc(stream, wait, None) == 0
    assert hip.hipGraphLaunch(ready, stream) == 0
    assert hip.hipGraphLaunch(ready, stream) == INVALID
    assert hip.hipLaunchHostFunc(stream, wait, None) == 0
    assert hip.hipMemcpyDtoDAsync(own, memory, ctypes.c_size_t(16), stream) == 0
    assert hip.hipFreeAsync(memory, stream) == 0
    hip.destroy(graphs=[graph], execs=[ready])
    go.set()
    assert hip.hipStreamSynchronize(stream) == 0
    assert hip.hipMemcpyDtoH(copy()[0], own, ctypes.c_size_t(16)) == 0
    np.testing.assert_array_equal(target, [7] * 4)
    assert [hip.hipFree(memory), hip.hipFree(own)] == [INVALID, 0]
