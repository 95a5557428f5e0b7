// SPDX-License-Identifier: MIT
// What the rows about graphs share: handles become graphs, nodes and graphs made ready.
#pragma once

#include "graph.hpp"
#include "hip_call.hpp"

namespace rocpy_host {

// A graph made ready, as callers name it.
struct Exec {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  std::shared_ptr<const Program> program;
  std::shared_ptr<Sequence> sequence;  // of its launches
  bool frees_at_launch = false;        // hipGraphInstantiateFlagAutoFreeOnLaunch
};

using ReadyTable = HandleTable<Exec, 'X'>;
ReadyTable &execs();

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
bool read_nodes(const Graph *graph, const hipGraphNode_t *nodes, size_t count, std::vector<size_t> *indexes);

}  // namespace rocpy_host
