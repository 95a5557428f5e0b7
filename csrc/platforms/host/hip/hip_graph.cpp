// SPDX-License-Identifier: MIT
// HIP rows about graphs: building them, looking at them, making them ready, and launching them.
#include "graph.hpp"
#include "hip_call.hpp"
#include "hip_memory.hpp"

#include <algorithm>
#include <cstring>

namespace rocpy_host {

namespace {

// A graph made ready, as callers name it.
struct Exec {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  std::shared_ptr<const Program> program;
  Point last{nullptr, 0};  // where it was launched last: a graph does not run beside itself
};

using ReadyTable = HandleTable<Exec, 'X'>;

ReadyTable &execs() {
  static auto *table = new ReadyTable;
  return *table;
}

// Runs body(graph) with the mutex held, if the handle is a graph's.
template <class Body>
hipError_t with_graph(hipGraph_t handle, Body body) {
  return hip_call([&] {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    Graph *graph = graphs().find(handle);
    return graph != nullptr ? body(graph) : hipErrorInvalidValue;
  });
}

// The same for a node, with its graph and its index there.
template <class Body>
hipError_t with_node(hipGraphNode_t handle, Body body) {
  return hip_call([&] {
    std::lock_guard<std::mutex> lock(runtime().mutex);
    NodeName *name = graph_nodes().find(handle);
    return name != nullptr ? body(name->graph, name->index) : hipErrorInvalidValue;
  });
}

// Reads nodes of a graph as its user names them. False: one is not of this graph, or comes twice.
bool read_nodes(const Graph *graph, const hipGraphNode_t *nodes, size_t count, std::vector<size_t> *indexes) {
  if (nodes == nullptr && count != 0) {
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    const NodeName *name = graph_nodes().find(nodes[i]);
    if (name == nullptr || name->graph != graph) {
      return false;
    }
    indexes->push_back(name->index);
  }
  std::sort(indexes->begin(), indexes->end());
  return std::adjacent_find(indexes->begin(), indexes->end()) == indexes->end();
}

hipError_t add(hipGraphNode_t *out, hipGraph_t handle, const hipGraphNode_t *dependencies, size_t count,
               hipGraphNodeType type, std::function<void()> work) {
  return with_graph(handle, [&](Graph *graph) {
    Node node;
    if (out == nullptr || !read_nodes(graph, dependencies, count, &node.after)) {
      return hipErrorInvalidValue;
    }
    node.type = type;
    node.device = current_device();
    node.work = std::move(work);
    *out = name_node(graph, add_node(graph, std::move(node)));
    return *out != nullptr ? hipSuccess : hipErrorOutOfMemory;
  });
}

// Gives nodes out as HIP does: without an array their number, else as many as fit, null where there are no more.
hipError_t give_nodes(Graph *graph, const std::vector<size_t> &indexes, hipGraphNode_t *nodes, size_t *count) {
  if (count == nullptr) {
    return hipErrorInvalidValue;
  }
  for (size_t i = 0; nodes != nullptr && i < *count; ++i) {
    nodes[i] = i < indexes.size() ? name_node(graph, indexes[i]) : nullptr;
    if (i < indexes.size() && nodes[i] == nullptr) {
      return hipErrorOutOfMemory;
    }
  }
  *count = nodes == nullptr ? indexes.size() : std::min(*count, indexes.size());
  return hipSuccess;
}

// The nodes that satisfy a condition.
template <class Condition>
std::vector<size_t> nodes_where(const Graph &graph, Condition condition) {
  std::vector<size_t> found;
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    if (condition(graph.nodes[index])) {
      found.push_back(index);
    }
  }
  return found;
}

bool follows(const Node &node, size_t earlier) {
  return std::find(node.after.begin(), node.after.end(), earlier) != node.after.end();
}

hipError_t instantiate(hipGraphExec_t *out, hipGraph_t handle) {
  return with_graph(handle, [=](const Graph *graph) {
    if (out == nullptr || graph->is_capturing) {
      return hipErrorInvalidValue;
    }
    auto program = compile(*graph);
    if (program == nullptr) {
      return hipErrorInvalidValue;
    }
    Exec *exec = execs().take();
    if (exec == nullptr) {
      return hipErrorOutOfMemory;
    }
    exec->program = std::move(program);
    exec->last = Point{nullptr, 0};
    *out = reinterpret_cast<hipGraphExec_t>(execs().publish(exec));
    return hipSuccess;
  });
}

// Why the graph cannot take the place of the one that was made ready.
hipGraphExecUpdateResult compare(const Program &before, const Program &after) {
  if (before.nodes.size() != after.nodes.size()) {
    return hipGraphExecUpdateErrorTopologyChanged;
  }
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    if (before.nodes[i].after != after.nodes[i].after) {
      return hipGraphExecUpdateErrorTopologyChanged;
    }
    if (before.nodes[i].type != after.nodes[i].type) {
      return hipGraphExecUpdateErrorNodeTypeChanged;
    }
  }
  return hipGraphExecUpdateSuccess;
}

hipError_t launch(hipGraphExec_t handle, hipStream_t stream_handle) {
  Runtime &rt = runtime();
  Stream *stream = resolve(stream_handle);
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  std::unique_lock<std::mutex> lock(rt.mutex);
  Exec *exec = execs().find(handle);
  if (exec == nullptr) {
    return hipErrorInvalidValue;
  }
  const auto program = exec->program;
  const Point last = exec->last;
  lock.unlock();
  const auto run = [program] { program->run(); };
  if (const auto answer = offer_to_capture(stream, hipGraphNodeTypeGraph, run)) {
    return *answer;
  }
  const bool is_free = last.stream == nullptr || last.stream == stream || is_done(last.stream, last.ticket);
  const auto remember_launch = [&](uint64_t ticket) {
    lock.lock();
    if ((exec = execs().find(handle)) != nullptr) {
      exec->last = Point{stream, ticket};
    }
    lock.unlock();
  };
  if (const uint64_t ticket = is_free && !program->has_host_function ? begin_inline(stream) : 0) {
    remember_launch(ticket);
    run_in_default_environment(run);
    leave_inline(stream);
  } else {
    remember_launch(enqueue_function_item(stream, run, program->has_host_function ? ItemKind::external : ItemKind::work,
                                          is_free ? nullptr : &last));
  }
  return hipSuccess;
}

}  // namespace

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipGraphCreate(hipGraph_t *graph, unsigned int flags) {
  return hip_call([=] {
    if (graph == nullptr || flags != 0) {
      return hipErrorInvalidValue;
    }
    std::lock_guard<std::mutex> lock(runtime().mutex);
    const Graph *made = create_graph();
    if (made == nullptr) {
      return hipErrorOutOfMemory;
    }
    *graph = reinterpret_cast<hipGraph_t>(made->handle.load());
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphDestroy(hipGraph_t graph) {
  return with_graph(graph, [](Graph *found) {
    if (found->is_capturing) {
      return hipErrorInvalidValue;
    }
    destroy_graph(found);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphClone(hipGraph_t *clone, hipGraph_t original) {
  return with_graph(original, [=](const Graph *found) {
    if (clone == nullptr || found->is_capturing) {
      return hipErrorInvalidValue;
    }
    std::vector<Node> nodes = found->nodes;
    std::vector<NodeName *> names(nodes.size());
    std::vector<Retained> retained = found->retained;
    for (Retained &one : retained) {
      one.count = 1;
    }
    Graph *made = create_graph();
    if (made == nullptr) {
      return hipErrorOutOfMemory;
    }
    made->nodes.swap(nodes);
    made->names.swap(names);
    made->retained.swap(retained);
    *clone = reinterpret_cast<hipGraph_t>(made->handle.load());
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphAddEmptyNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                           size_t dependency_count) {
  return add(node, graph, dependencies, dependency_count, hipGraphNodeTypeEmpty, nullptr);
}

hipError_t rocpy_host_hipGraphAddHostNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                          size_t dependency_count, const hipHostNodeParams *params) {
  if (params == nullptr || params->fn == nullptr) {
    return remember(hipErrorInvalidValue);
  }
  return add(node, graph, dependencies, dependency_count, hipGraphNodeTypeHost,
             [function = params->fn, data = params->userData] { function(data); });
}

hipError_t rocpy_host_hipGraphAddMemcpyNode1D(hipGraphNode_t *node, hipGraph_t graph,
                                              const hipGraphNode_t *dependencies, size_t dependency_count, void *dst,
                                              const void *src, size_t bytes, hipMemcpyKind kind) {
  if (const hipError_t error = bytes == 0 ? hipErrorInvalidValue : check_copy(dst, src, bytes, kind)) {
    return remember(error);
  }
  return add(node, graph, dependencies, dependency_count, hipGraphNodeTypeMemcpy,
             [=] { std::memmove(dst, src, bytes); });
}

hipError_t rocpy_host_hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                            size_t dependency_count, const hipMemsetParams *params) {
  std::function<void()> work;
  if (params == nullptr || !make_fill(*params, &work)) {
    return remember(hipErrorInvalidValue);
  }
  return add(node, graph, dependencies, dependency_count, hipGraphNodeTypeMemset, std::move(work));
}

hipError_t rocpy_host_hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to,
                                              size_t count) {
  return with_graph(graph, [=](Graph *found) {
    for (size_t i = 0; i < count; ++i) {
      std::vector<size_t> earlier, later;
      if (from == nullptr || to == nullptr || !read_nodes(found, from + i, 1, &earlier) ||
          !read_nodes(found, to + i, 1, &later) || earlier == later || follows(found->nodes[later[0]], earlier[0])) {
        return hipErrorInvalidValue;
      }
      found->nodes[later[0]].after.push_back(earlier[0]);
    }
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
  return with_graph(graph, [=](Graph *found) {
    return give_nodes(found, nodes_where(*found, [](const Node &) { return true; }), nodes, count);
  });
}

hipError_t rocpy_host_hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
  return with_graph(graph, [=](Graph *found) {
    return give_nodes(found, nodes_where(*found, [](const Node &node) { return node.after.empty(); }), nodes, count);
  });
}

hipError_t rocpy_host_hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t *from, hipGraphNode_t *to, size_t *count) {
  return with_graph(graph, [=](Graph *found) {
    if (count == nullptr || (from == nullptr) != (to == nullptr)) {
      return hipErrorInvalidValue;
    }
    std::vector<size_t> earlier, later;
    for (size_t index = 0; index < found->nodes.size(); ++index) {
      for (const size_t before : found->nodes[index].after) {
        earlier.push_back(before);
        later.push_back(index);
      }
    }
    size_t same_count = *count;
    const hipError_t error = give_nodes(found, earlier, from, &same_count);
    return error == hipSuccess ? give_nodes(found, later, to, count) : error;
  });
}

hipError_t rocpy_host_hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType *type) {
  return with_node(node, [=](const Graph *graph, size_t index) {
    if (type == nullptr) {
      return hipErrorInvalidValue;
    }
    *type = graph->nodes[index].type;
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t *nodes, size_t *count) {
  return with_node(
      node, [=](Graph *graph, size_t index) { return give_nodes(graph, graph->nodes[index].after, nodes, count); });
}

hipError_t rocpy_host_hipGraphNodeGetDependentNodes(hipGraphNode_t node, hipGraphNode_t *nodes, size_t *count) {
  return with_node(node, [=](Graph *graph, size_t index) {
    return give_nodes(graph, nodes_where(*graph, [=](const Node &other) { return follows(other, index); }), nodes,
                      count);
  });
}

hipError_t rocpy_host_hipGraphInstantiate(hipGraphExec_t *exec, hipGraph_t graph, hipGraphNode_t *error_node, char *log,
                                          size_t log_bytes) {
  if (error_node != nullptr) {
    *error_node = nullptr;
  }
  if (log != nullptr && log_bytes != 0) {
    *log = '\0';
  }
  return instantiate(exec, graph);
}

hipError_t rocpy_host_hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph, unsigned long long flags) {
  constexpr unsigned long long known_flags =
      hipGraphInstantiateFlagAutoFreeOnLaunch | hipGraphInstantiateFlagUpload | hipGraphInstantiateFlagUseNodePriority;
  return (flags & ~known_flags) == 0 ? instantiate(exec, graph) : remember(hipErrorInvalidValue);
}

hipError_t rocpy_host_hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t *error_node,
                                         hipGraphExecUpdateResult *result) {
  std::shared_ptr<const Program> dropped;  // released after the mutex
  return with_graph(graph, [&dropped, exec, error_node, result](const Graph *found) {
    Exec *ready = execs().find(exec);
    if (ready == nullptr || error_node == nullptr || result == nullptr) {
      return hipErrorInvalidValue;
    }
    *error_node = nullptr;
    auto program = compile(*found);
    *result = program != nullptr ? compare(*ready->program, *program) : hipGraphExecUpdateErrorTopologyChanged;
    if (*result != hipGraphExecUpdateSuccess) {
      return hipErrorGraphExecUpdateFailure;
    }
    dropped.swap(ready->program);
    ready->program = std::move(program);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphExecDestroy(hipGraphExec_t exec) {
  return hip_call([exec] {
    std::shared_ptr<const Program> dropped;  // released after the mutex
    std::lock_guard<std::mutex> lock(runtime().mutex);
    Exec *found = execs().find(exec);
    if (found == nullptr) {
      return hipErrorInvalidValue;
    }
    execs().retire(found);
    dropped.swap(found->program);
    execs().give_back(found);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphUpload(hipGraphExec_t exec, hipStream_t stream) {
  return hip_call([=] {
    if (resolve(stream) == nullptr) {
      return hipErrorContextIsDestroyed;
    }
    return execs().find(exec) != nullptr ? hipSuccess : hipErrorInvalidValue;
  });
}

hipError_t rocpy_host_hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream) {
  return hip_call([=] { return launch(exec, stream); });
}
