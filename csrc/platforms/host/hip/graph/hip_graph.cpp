// SPDX-License-Identifier: MIT
// HIP rows about graphs: making them, looking at them, making them ready, and launching them.
#include "graph_calls.hpp"
#include "hip_memory.hpp"
#include "lazy.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace rocpy_host {

// Never destroyed, as the runtime.
ReadyTable &execs() {
  static rocpy::Lazy<ReadyTable> table;
  return table.get();
}

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

namespace {

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
  std::vector<size_t> indices;
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    if (condition(graph.nodes[index])) {
      indices.push_back(index);
    }
  }
  return indices;
}

bool follows(const Node &node, size_t earlier) {
  return std::find(node.after.begin(), node.after.end(), earlier) != node.after.end();
}

const char *name_of(hipGraphNodeType type) {
  switch (type) {
    case hipGraphNodeTypeKernel:
      return "kernel";
    case hipGraphNodeTypeMemcpy:
      return "copy";
    case hipGraphNodeTypeMemset:
      return "fill";
    case hipGraphNodeTypeHost:
      return "host function";
    case hipGraphNodeTypeGraph:
      return "graph";
    case hipGraphNodeTypeMemAlloc:
      return "allocation";
    case hipGraphNodeTypeMemFree:
      return "free";
    default:
      return "empty";
  }
}

// The graph in the language of Graphviz.
std::string drawn(const Graph &graph) {
  std::string text = "digraph graph_of_hip {\n";
  for (size_t index = 0; index < graph.nodes.size(); ++index) {
    const std::string name = "node_" + std::to_string(index);
    text += "  " + name + " [label=\"" + std::to_string(index) + ": " + name_of(graph.nodes[index].type) + "\"];\n";
    for (const size_t earlier : graph.nodes[index].after) {
      text += "  node_" + std::to_string(earlier) + " -> " + name + ";\n";
    }
  }
  return text + "}\n";
}

hipError_t instantiate(hipGraphExec_t *out, hipGraph_t handle, unsigned long long flags) {
  return with_graph(handle, [=](const Graph *graph) {
    if (out == nullptr || graph->is_capturing) {
      return hipErrorInvalidValue;
    }
    auto program = compile(*graph);
    if (program == nullptr) {
      return hipErrorInvalidValue;
    }
    auto sequence = std::make_shared<Sequence>();
    Exec *exec = execs().take();
    if (exec == nullptr) {
      return hipErrorOutOfMemory;
    }
    exec->program = std::move(program);
    exec->sequence = std::move(sequence);
    exec->frees_at_launch = (flags & hipGraphInstantiateFlagAutoFreeOnLaunch) != 0;
    *out = reinterpret_cast<hipGraphExec_t>(execs().publish(exec));
    return hipSuccess;
  });
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
  Node node;
  node.type = hipGraphNodeTypeGraph;
  node.child = exec->program;
  node.sequence = exec->sequence;
  const bool frees_at_launch = exec->frees_at_launch;
  lock.unlock();
  const auto program = node.child;
  Sequences sequences = program->sequences;
  sequences.push_back(node.sequence);
  if (const auto answer = capture_node(stream, std::move(node))) {
    return *answer;
  }
  if (!give_out(program->handed_out, program->taken_back, frees_at_launch)) {
    return hipErrorInvalidValue;
  }
  const auto run = [program] { program->run(); };
  if (!program->has_host_function && begin_inline(stream, sequences) != 0) {
    run_in_default_environment(run);
    leave_inline(stream);
  } else {
    const ItemKind kind = program->has_host_function ? ItemKind::external : ItemKind::work;
    enqueue_function_item(stream, run, kind, nullptr, sequences);
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
    const Graph *created = create_graph();
    if (created == nullptr) {
      return hipErrorOutOfMemory;
    }
    *graph = reinterpret_cast<hipGraph_t>(created->handle.load());
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphDestroy(hipGraph_t graph) {
  return with_graph(graph, [](Graph *entry) {
    if (entry->is_capturing) {
      return hipErrorInvalidValue;
    }
    destroy_graph(entry);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphClone(hipGraph_t *clone, hipGraph_t original) {
  return with_graph(original, [=](const Graph *entry) {
    if (clone == nullptr || entry->is_capturing) {
      return hipErrorInvalidValue;
    }
    std::vector<Node> nodes = entry->nodes;
    std::vector<NodeName *> names(nodes.size());
    std::vector<Retained> retained = entry->retained;
    for (Retained &one : retained) {
      one.count = 1;
    }
    Graph *created = create_graph();
    if (created == nullptr) {
      return hipErrorOutOfMemory;
    }
    created->nodes.swap(nodes);
    created->names.swap(names);
    created->retained.swap(retained);
    *clone = reinterpret_cast<hipGraph_t>(created->handle.load());
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t *from, const hipGraphNode_t *to,
                                              size_t count) {
  return with_graph(graph, [=](Graph *entry) {
    for (size_t i = 0; i < count; ++i) {
      std::vector<size_t> earlier, later;
      if (from == nullptr || to == nullptr || !read_nodes(entry, from + i, 1, &earlier) ||
          !read_nodes(entry, to + i, 1, &later) || earlier == later || follows(entry->nodes[later[0]], earlier[0])) {
        return hipErrorInvalidValue;
      }
      entry->nodes[later[0]].after.push_back(earlier[0]);
    }
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
  return with_graph(graph, [=](Graph *entry) {
    return give_nodes(entry, nodes_where(*entry, [](const Node &) { return true; }), nodes, count);
  });
}

hipError_t rocpy_host_hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t *nodes, size_t *count) {
  return with_graph(graph, [=](Graph *entry) {
    return give_nodes(entry, nodes_where(*entry, [](const Node &node) { return node.after.empty(); }), nodes, count);
  });
}

hipError_t rocpy_host_hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t *from, hipGraphNode_t *to, size_t *count) {
  return with_graph(graph, [=](Graph *entry) {
    if (count == nullptr || (from == nullptr) != (to == nullptr)) {
      return hipErrorInvalidValue;
    }
    std::vector<size_t> earlier, later;
    for (size_t index = 0; index < entry->nodes.size(); ++index) {
      for (const size_t before : entry->nodes[index].after) {
        earlier.push_back(before);
        later.push_back(index);
      }
    }
    size_t same_count = *count;
    const hipError_t error = give_nodes(entry, earlier, from, &same_count);
    return error == hipSuccess ? give_nodes(entry, later, to, count) : error;
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
  return instantiate(exec, graph, 0);
}

hipError_t rocpy_host_hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph, unsigned long long flags) {
  constexpr unsigned long long known_flags =
      hipGraphInstantiateFlagAutoFreeOnLaunch | hipGraphInstantiateFlagUpload | hipGraphInstantiateFlagUseNodePriority;
  return (flags & ~known_flags) == 0 ? instantiate(exec, graph, flags) : remember(hipErrorInvalidValue);
}

hipError_t rocpy_host_hipGraphExecUpdate(hipGraphExec_t exec, hipGraph_t graph, hipGraphNode_t *error_node,
                                         hipGraphExecUpdateResult *result) {
  std::shared_ptr<const Program> dropped;  // released after the mutex
  return with_graph(graph, [&dropped, exec, error_node, result](Graph *entry) {
    Exec *ready = execs().find(exec);
    if (ready == nullptr || error_node == nullptr || result == nullptr) {
      return hipErrorInvalidValue;
    }
    *error_node = nullptr;
    auto program = compile(*entry);
    const Comparison comparison = program != nullptr ? compare(*ready->program, *program)
                                                     : Comparison{hipGraphExecUpdateErrorTopologyChanged, std::nullopt};
    *result = comparison.result;
    if (comparison.node.has_value()) {
      const std::vector<size_t> &positions = program->positions;
      const auto index = std::find(positions.begin(), positions.end(), *comparison.node) - positions.begin();
      *error_node = name_node(entry, static_cast<size_t>(index));
    }
    if (*result != hipGraphExecUpdateSuccess) {
      return hipErrorGraphExecUpdateFailure;
    }
    program->graph = ready->program->graph;  // nodes go by the names of the graph that was made ready
    program->positions = ready->program->positions;
    dropped.swap(ready->program);
    ready->program = std::move(program);
    return hipSuccess;
  });
}

hipError_t rocpy_host_hipGraphExecDestroy(hipGraphExec_t exec) {
  return hip_call([exec] {
    std::shared_ptr<const Program> dropped;  // released after the mutex
    std::lock_guard<std::mutex> lock(runtime().mutex);
    Exec *instance = execs().find(exec);
    if (instance == nullptr) {
      return hipErrorInvalidValue;
    }
    execs().retire(instance);
    dropped.swap(instance->program);
    instance->sequence.reset();
    execs().give_back(instance);
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

hipError_t rocpy_host_hipGraphDebugDotPrint(hipGraph_t graph, const char *path, unsigned int) {
  std::string text;
  const hipError_t status = with_graph(graph, [&text, path](const Graph *entry) {
    text = drawn(*entry);
    return path != nullptr ? hipSuccess : hipErrorInvalidValue;
  });
  if (status != hipSuccess) {
    return status;
  }
  std::ofstream file(path);
  file << text << std::flush;
  return file.good() ? status : remember(hipErrorOperatingSystem);
}
