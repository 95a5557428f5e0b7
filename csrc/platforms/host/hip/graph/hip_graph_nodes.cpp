// SPDX-License-Identifier: MIT
// HIP rows about single nodes of graphs: adding them, and giving them other work, in a graph or in one made ready.
#include "graph_calls.hpp"
#include "hip_memory.hpp"
#include "kernel_of.hpp"

namespace rocpy_host {

namespace {

using Work = std::function<void()>;

// A node made of parameters, or why there is none.
struct NewNode {
  hipError_t status = hipSuccess;
  Node node;
};

hipError_t add(hipGraphNode_t *out, hipGraph_t handle, const hipGraphNode_t *dependencies, size_t count,
               NewNode created) {
  if (created.status != hipSuccess) {
    return remember(created.status);
  }
  return with_graph(handle, [&](Graph *graph) {
    Node &node = created.node;
    if (out == nullptr || !read_nodes(graph, dependencies, count, &node.after)) {
      return hipErrorInvalidValue;
    }
    node.device = current_device();
    *out = name_node(graph, add_node(graph, std::move(node)));
    return *out != nullptr ? hipSuccess : hipErrorOutOfMemory;
  });
}

// Whether a node made ready can do the work of another: of the same type, direction and children, and, as in AMD's
// runtime, the same rows where it fills more than one.
bool can_replace(const Node &current, const Node &node) {
  if (current.type != node.type || current.kind != node.kind || (current.child == nullptr) != (node.child == nullptr)) {
    return false;
  }
  if (node.child != nullptr) {
    return compare(*current.child, *node.child).result == hipGraphExecUpdateSuccess;
  }
  if (node.type != hipGraphNodeTypeMemset || current.parameters == nullptr) {
    return true;
  }
  const auto &before = *static_cast<const hipMemsetParams *>(current.parameters.get());
  const auto &after = *static_cast<const hipMemsetParams *>(node.parameters.get());
  return after.height == 1 ||
         (before.height == after.height && before.width * before.elementSize == after.width * after.elementSize);
}

// Gives a node of a graph other work; what it had is dropped after the mutex.
hipError_t replace(hipGraphNode_t handle, NewNode created) {
  if (created.status != hipSuccess) {
    return remember(created.status);
  }
  return with_node(handle, [&](Graph *graph, size_t index) {
    Node &node = created.node, &current = graph->nodes[index];
    if (current.type != node.type) {
      return hipErrorInvalidValue;
    }
    current.work.swap(node.work);
    current.parameters.swap(node.parameters);
    current.kind = node.kind;
    return hipSuccess;
  });
}

// The same in a graph made ready, where the node goes by its name in the graph that it was made of. Launches that are
// under way keep what they began with.
hipError_t replace(hipGraphExec_t exec, hipGraphNode_t handle, NewNode created) {
  if (created.status != hipSuccess) {
    return remember(created.status);
  }
  std::shared_ptr<const Program> dropped;  // released after the mutex
  return with_node(handle, [&](const Graph *graph, size_t index) {
    Exec *ready = execs().find(exec);
    if (ready == nullptr || ready->program->graph != graph->handle || index >= ready->program->positions.size()) {
      return hipErrorInvalidValue;
    }
    auto program = std::make_shared<Program>(*ready->program);
    Node &node = created.node, &current = program->nodes[program->positions[index]];
    if (!can_replace(current, node)) {
      return hipErrorInvalidValue;
    }
    current.work.swap(node.work);
    current.parameters.swap(node.parameters);
    current.child.swap(node.child);
    current.sequence.swap(node.sequence);
    program->summarize();
    dropped.swap(ready->program);
    ready->program = std::move(program);
    return hipSuccess;
  });
}

// Reads the parameters of a node of a type, which what it was made of tells. A product of hipBLASLt's that was captured
// as a kernel has none, nor has a captured copy or fill.
template <class Parameters>
hipError_t read(hipGraphNode_t handle, hipGraphNodeType type, Parameters *parameters) {
  return with_node(handle, [=](const Graph *graph, size_t index) {
    const Node &node = graph->nodes[index];
    if (parameters == nullptr || node.type != type) {
      return hipErrorInvalidValue;
    }
    if (node.parameters == nullptr) {
      return hipErrorNotSupported;
    }
    *parameters = *static_cast<const Parameters *>(node.parameters.get());
    return hipSuccess;
  });
}

NewNode no_node(hipError_t status) {
  NewNode created;
  created.status = status;
  return created;
}

NewNode new_node(hipGraphNodeType type, Work work, std::shared_ptr<const void> parameters) {
  NewNode created;
  created.node.type = type;
  created.node.work = std::move(work);
  created.node.parameters = std::move(parameters);
  return created;
}

NewNode host_node(const hipHostNodeParams *params) {
  if (params == nullptr || params->fn == nullptr) {
    return no_node(hipErrorInvalidValue);
  }
  return new_node(
      hipGraphNodeTypeHost, [function = params->fn, data = params->userData] { function(data); },
      std::make_shared<hipHostNodeParams>(*params));
}

NewNode copy_node(const hipMemcpy3DParms *params) {
  Work work;
  const hipError_t status = params == nullptr ? hipErrorInvalidValue : make_copy(*params, &work);
  if (status != hipSuccess) {
    return no_node(status);
  }
  NewNode created = new_node(hipGraphNodeTypeMemcpy, std::move(work), std::make_shared<hipMemcpy3DParms>(*params));
  created.node.kind = params->kind;
  return created;
}

NewNode copy_node(void *dst, const void *src, size_t bytes, hipMemcpyKind kind) {
  hipMemcpy3DParms params = {};
  params.srcPtr = {const_cast<void *>(src), bytes, bytes, 1};
  params.dstPtr = {dst, bytes, bytes, 1};
  params.extent = {bytes, 1, 1};
  params.kind = kind;
  return copy_node(&params);
}

NewNode fill_node(const hipMemsetParams *params) {
  Work work;
  if (params == nullptr || !make_fill(*params, &work)) {
    return no_node(hipErrorInvalidValue);
  }
  return new_node(hipGraphNodeTypeMemset, std::move(work), std::make_shared<hipMemsetParams>(*params));
}

// A kernel goes by the address of its host symbol, or is a module's.
NewNode kernel_node(const hipKernelNodeParams *params) {
  std::shared_ptr<amdgpu::Launch> launch;
  const hipError_t status = hip_call([&] {
    if (params == nullptr || params->func == nullptr) {
      return hipErrorInvalidValue;
    }
    hipFunction_t function = nullptr;
    const hipError_t lookup = kernel_at_symbol(params->func, current_device(), &function);
    if (lookup == hipErrorInvalidDeviceFunction) {
      function = static_cast<hipFunction_t>(params->func);
    } else if (lookup != hipSuccess) {
      return lookup;
    }
    return make_launch(function, {params->gridDim, params->blockDim, params->sharedMemBytes}, params->kernelParams,
                       params->extra, &launch);
  });
  return status != hipSuccess
             ? no_node(status)
             : new_node(hipGraphNodeTypeKernel, work_of_launch(launch), parameters_of_launch(*launch, params->func));
}

// The child is copied: what becomes of its graph later does not matter.
NewNode child_node(hipGraph_t child) {
  NewNode created;
  created.node.type = hipGraphNodeTypeGraph;
  created.status = with_graph(child, [&](const Graph *entry) {
    created.node.child = entry->is_capturing ? nullptr : compile(*entry);
    return created.node.child != nullptr ? hipSuccess : hipErrorInvalidValue;
  });
  return created;
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipGraphAddEmptyNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                           size_t dependency_count) {
  return add(node, graph, dependencies, dependency_count, NewNode());
}

hipError_t rocpy_host_hipGraphAddHostNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                          size_t dependency_count, const hipHostNodeParams *params) {
  return add(node, graph, dependencies, dependency_count, host_node(params));
}

hipError_t rocpy_host_hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams *params) {
  return read(node, hipGraphNodeTypeHost, params);
}

hipError_t rocpy_host_hipGraphHostNodeSetParams(hipGraphNode_t node, const hipHostNodeParams *params) {
  return replace(node, host_node(params));
}

hipError_t rocpy_host_hipGraphExecHostNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                    const hipHostNodeParams *params) {
  return replace(exec, node, host_node(params));
}

hipError_t rocpy_host_hipGraphAddMemcpyNode1D(hipGraphNode_t *node, hipGraph_t graph,
                                              const hipGraphNode_t *dependencies, size_t dependency_count, void *dst,
                                              const void *src, size_t bytes, hipMemcpyKind kind) {
  return add(node, graph, dependencies, dependency_count, copy_node(dst, src, bytes, kind));
}

hipError_t rocpy_host_hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void *dst, const void *src, size_t bytes,
                                                    hipMemcpyKind kind) {
  return replace(node, copy_node(dst, src, bytes, kind));
}

hipError_t rocpy_host_hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t exec, hipGraphNode_t node, void *dst,
                                                        const void *src, size_t bytes, hipMemcpyKind kind) {
  return replace(exec, node, copy_node(dst, src, bytes, kind));
}

hipError_t rocpy_host_hipGraphAddMemcpyNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                            size_t dependency_count, const hipMemcpy3DParms *params) {
  return add(node, graph, dependencies, dependency_count, copy_node(params));
}

hipError_t rocpy_host_hipGraphMemcpyNodeGetParams(hipGraphNode_t node, hipMemcpy3DParms *params) {
  return read(node, hipGraphNodeTypeMemcpy, params);
}

hipError_t rocpy_host_hipGraphMemcpyNodeSetParams(hipGraphNode_t node, const hipMemcpy3DParms *params) {
  return replace(node, copy_node(params));
}

hipError_t rocpy_host_hipGraphExecMemcpyNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                      hipMemcpy3DParms *params) {
  return replace(exec, node, copy_node(params));
}

hipError_t rocpy_host_hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                            size_t dependency_count, const hipMemsetParams *params) {
  return add(node, graph, dependencies, dependency_count, fill_node(params));
}

hipError_t rocpy_host_hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams *params) {
  return read(node, hipGraphNodeTypeMemset, params);
}

hipError_t rocpy_host_hipGraphMemsetNodeSetParams(hipGraphNode_t node, const hipMemsetParams *params) {
  return replace(node, fill_node(params));
}

hipError_t rocpy_host_hipGraphExecMemsetNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                      const hipMemsetParams *params) {
  return replace(exec, node, fill_node(params));
}

hipError_t rocpy_host_hipGraphAddKernelNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                            size_t dependency_count, const hipKernelNodeParams *params) {
  return add(node, graph, dependencies, dependency_count, kernel_node(params));
}

// The arguments that it gives back are the node's: they hold until it has others.
hipError_t rocpy_host_hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams *params) {
  return read(node, hipGraphNodeTypeKernel, params);
}

hipError_t rocpy_host_hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams *params) {
  return replace(node, kernel_node(params));
}

hipError_t rocpy_host_hipGraphExecKernelNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node,
                                                      const hipKernelNodeParams *params) {
  return replace(exec, node, kernel_node(params));
}

hipError_t rocpy_host_hipGraphAddChildGraphNode(hipGraphNode_t *node, hipGraph_t graph,
                                                const hipGraphNode_t *dependencies, size_t dependency_count,
                                                hipGraph_t child) {
  return add(node, graph, dependencies, dependency_count, child_node(child));
}

hipError_t rocpy_host_hipGraphExecChildGraphNodeSetParams(hipGraphExec_t exec, hipGraphNode_t node, hipGraph_t child) {
  return replace(exec, node, child_node(child));
}
