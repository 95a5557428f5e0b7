// SPDX-License-Identifier: MIT
// HIP rows about single nodes of graphs: adding them, and giving them other work, in a graph or in one made ready.
#include "graph_calls.hpp"
#include "hip_memory.hpp"
#include "kernel_of.hpp"

#include <cstring>

namespace rocpy_host {

namespace {

using Work = std::function<void()>;

hipError_t add(hipGraphNode_t *out, hipGraph_t handle, const hipGraphNode_t *dependencies, size_t count, Node node) {
  return with_graph(handle, [&](Graph *graph) {
    if (out == nullptr || !read_nodes(graph, dependencies, count, &node.after)) {
      return hipErrorInvalidValue;
    }
    node.device = current_device();
    *out = name_node(graph, add_node(graph, std::move(node)));
    return *out != nullptr ? hipSuccess : hipErrorOutOfMemory;
  });
}

// Gives a node of a graph other work; what it had is dropped after the mutex.
hipError_t replace(hipGraphNode_t handle, Node node) {
  return with_node(handle, [&](Graph *graph, size_t index) {
    Node &found = graph->nodes[index];
    if (found.type != node.type) {
      return hipErrorInvalidValue;
    }
    found.work.swap(node.work);
    return hipSuccess;
  });
}

// The same in a graph made ready, where the node goes by its name in the graph that it was made of. Launches that are
// under way keep what they began with.
hipError_t replace(hipGraphExec_t exec, hipGraphNode_t handle, Node node) {
  std::shared_ptr<const Program> dropped;  // released after the mutex
  return with_node(handle, [&](const Graph *graph, size_t index) {
    Exec *ready = execs().find(exec);
    if (ready == nullptr || ready->program->graph != graph->handle || index >= ready->program->places.size()) {
      return hipErrorInvalidValue;
    }
    auto program = std::make_shared<Program>(*ready->program);
    Node &found = program->nodes[program->places[index]];
    if (found.type != node.type || (found.child == nullptr) != (node.child == nullptr)) {
      return hipErrorInvalidValue;
    }
    if (node.child != nullptr && compare(*found.child, *node.child) != hipGraphExecUpdateSuccess) {
      return hipErrorInvalidValue;
    }
    found.work.swap(node.work);
    found.child.swap(node.child);
    dropped.swap(ready->program);
    ready->program = std::move(program);
    return hipSuccess;
  });
}

// Runs body(node) with the node that was made of parameters, or says why there is none.
template <class Body>
hipError_t with_made(hipError_t status, hipGraphNodeType type, Work work, Body body) {
  if (status != hipSuccess) {
    return remember(status);
  }
  Node node;
  node.type = type;
  node.work = std::move(work);
  return body(std::move(node));
}

template <class Body>
hipError_t with_host(const hipHostNodeParams *params, Body body) {
  if (params == nullptr || params->fn == nullptr) {
    return remember(hipErrorInvalidValue);
  }
  return with_made(
      hipSuccess, hipGraphNodeTypeHost, [function = params->fn, data = params->userData] { function(data); }, body);
}

template <class Body>
hipError_t with_copy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind, Body body) {
  const hipError_t status = bytes == 0 ? hipErrorInvalidValue : check_copy(dst, src, bytes, kind);
  return with_made(status, hipGraphNodeTypeMemcpy, [=] { std::memmove(dst, src, bytes); }, body);
}

template <class Body>
hipError_t with_fill(const hipMemsetParams *params, Body body) {
  Work work;
  const hipError_t status = params != nullptr && make_fill(*params, &work) ? hipSuccess : hipErrorInvalidValue;
  return with_made(status, hipGraphNodeTypeMemset, std::move(work), body);
}

// A kernel goes by the address of its host symbol, or is a module's.
template <class Body>
hipError_t with_kernel(const hipKernelNodeParams *params, Body body) {
  Work work;
  const hipError_t status = hip_call([&] {
    if (params == nullptr || params->func == nullptr) {
      return hipErrorInvalidValue;
    }
    hipFunction_t function = nullptr;
    const hipError_t found = kernel_at_symbol(params->func, &function);
    if (found == hipErrorInvalidDeviceFunction) {
      function = static_cast<hipFunction_t>(params->func);
    } else if (found != hipSuccess) {
      return found;
    }
    return work_of_kernel(function, params->gridDim, params->blockDim, params->sharedMemBytes, params->kernelParams,
                          params->extra, &work);
  });
  return with_made(status, hipGraphNodeTypeKernel, std::move(work), body);
}

// The child is copied: what becomes of its graph later does not matter.
template <class Body>
hipError_t with_child(hipGraph_t child, Body body) {
  Node node;
  node.type = hipGraphNodeTypeGraph;
  const hipError_t status = with_graph(child, [&](const Graph *found) {
    node.child = found->is_capturing ? nullptr : compile(*found);
    return node.child != nullptr ? hipSuccess : hipErrorInvalidValue;
  });
  return status != hipSuccess ? status : body(std::move(node));
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipGraphAddEmptyNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                           size_t dependency_count) {
  return add(node, graph, dependencies, dependency_count, Node());
}

hipError_t rocpy_host_hipGraphAddHostNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                          size_t dependency_count, const hipHostNodeParams *params) {
  return with_host(params,
                   [=](Node made) { return add(node, graph, dependencies, dependency_count, std::move(made)); });
}

hipError_t rocpy_host_hipGraphHostNodeSetParams(hipGraphNode_t node, const hipHostNodeParams *params) {
  return with_host(params, [=](Node made) { return replace(node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphExecHostNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                    const hipHostNodeParams *params) {
  return with_host(params, [=](Node made) { return replace(exec, node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphAddMemcpyNode1D(hipGraphNode_t *node, hipGraph_t graph,
                                              const hipGraphNode_t *dependencies, size_t dependency_count, void *dst,
                                              const void *src, size_t bytes, hipMemcpyKind kind) {
  return with_copy(dst, src, bytes, kind,
                   [=](Node made) { return add(node, graph, dependencies, dependency_count, std::move(made)); });
}

hipError_t rocpy_host_hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void *dst, const void *src, size_t bytes,
                                                    hipMemcpyKind kind) {
  return with_copy(dst, src, bytes, kind, [=](Node made) { return replace(node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t exec, hipGraphNode_t node, void *dst,
                                                        const void *src, size_t bytes, hipMemcpyKind kind) {
  return with_copy(dst, src, bytes, kind, [=](Node made) { return replace(exec, node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                            size_t dependency_count, const hipMemsetParams *params) {
  return with_fill(params,
                   [=](Node made) { return add(node, graph, dependencies, dependency_count, std::move(made)); });
}

hipError_t rocpy_host_hipGraphMemsetNodeSetParams(hipGraphNode_t node, const hipMemsetParams *params) {
  return with_fill(params, [=](Node made) { return replace(node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                      const hipMemsetParams *params) {
  return with_fill(params, [=](Node made) { return replace(exec, node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphAddKernelNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                            size_t dependency_count, const hipKernelNodeParams *params) {
  return with_kernel(params,
                     [=](Node made) { return add(node, graph, dependencies, dependency_count, std::move(made)); });
}

hipError_t rocpy_host_hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams *params) {
  return with_kernel(params, [=](Node made) { return replace(node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                      const hipKernelNodeParams *params) {
  return with_kernel(params, [=](Node made) { return replace(exec, node, std::move(made)); });
}

hipError_t rocpy_host_hipGraphAddChildGraphNode(hipGraphNode_t *node, hipGraph_t graph,
                                                const hipGraphNode_t *dependencies, size_t dependency_count,
                                                hipGraph_t child) {
  return with_child(child,
                    [=](Node made) { return add(node, graph, dependencies, dependency_count, std::move(made)); });
}

hipError_t rocpy_host_hipGraphExecChildGraphNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, hipGraph_t child) {
  return with_child(child, [=](Node made) { return replace(exec, node, std::move(made)); });
}
