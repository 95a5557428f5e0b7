// SPDX-License-Identifier: MIT
// Graphs: their nodes, the names that callers have for them, and how a graph that was made ready runs.
#include "graph.hpp"
#include "lazy.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace rocpy_host {

// Never destroyed, as the runtime.
GraphTable &graphs() {
  static rocpy::Lazy<GraphTable> table;
  return table.get();
}

NodeTable &graph_nodes() {
  static rocpy::Lazy<NodeTable> table;
  return table.get();
}

Graph *create_graph() {
  Graph *graph = graphs().take();
  if (graph != nullptr) {
    graphs().publish(graph);
  }
  return graph;
}

void destroy_graph(Graph *graph) {
  graphs().retire(graph);
  for (NodeName *name : graph->names) {
    if (name != nullptr) {
      graph_nodes().retire(name);
      graph_nodes().give_back(name);
    }
  }
  graph->names.clear();
  graph->nodes.clear();
  graph->retained.clear();
  graph->is_capturing = false;
  graphs().give_back(graph);
}

size_t add_node(Graph *graph, Node node) {
  graph->names.reserve(graph->nodes.size() + 1);
  graph->nodes.push_back(std::move(node));
  graph->names.push_back(nullptr);
  return graph->nodes.size() - 1;
}

hipGraphNode_t name_node(Graph *graph, size_t index) {
  NodeName *&name = graph->names[index];
  if (name == nullptr) {
    name = graph_nodes().take();
    if (name == nullptr) {
      return nullptr;
    }
    name->graph = graph;
    name->index = index;
    graph_nodes().publish(name);
  }
  return reinterpret_cast<hipGraphNode_t>(name->handle.load(std::memory_order_relaxed));
}

namespace {

// Gives the nodes in an order in which each comes after those that it follows: of those that may come next, the one
// that `pick(count)` chooses. Fewer than all: some wait for each other.
template <class Pick>
std::vector<size_t> ordered(const std::vector<Node> &nodes, Pick pick) {
  std::vector<size_t> missing(nodes.size()), ready, order;
  std::vector<std::vector<size_t>> before(nodes.size());
  for (size_t index = nodes.size(); index-- > 0;) {
    missing[index] = nodes[index].after.size();
    if (missing[index] == 0) {
      ready.push_back(index);
    }
    for (const size_t earlier : nodes[index].after) {
      before[earlier].push_back(index);
    }
  }
  while (!ready.empty()) {
    const auto chosen = ready.begin() + static_cast<std::ptrdiff_t>(pick(ready.size()));
    const size_t index = *chosen;
    ready.erase(chosen);
    order.push_back(index);
    for (const size_t later : before[index]) {
      if (--missing[later] == 0) {
        ready.push_back(later);
      }
    }
  }
  return order;
}

}  // namespace

std::shared_ptr<Program> compile(const Graph &graph) {
  const std::vector<size_t> order = ordered(graph.nodes, [](size_t count) { return count - 1; });
  if (order.size() != graph.nodes.size()) {
    return nullptr;
  }
  auto program = std::make_shared<Program>();
  program->retained = graph.retained;
  program->graph = graph.handle.load(std::memory_order_relaxed);
  std::vector<size_t> &position = program->positions;
  position.resize(order.size());
  for (const size_t index : order) {
    position[index] = program->nodes.size();
    program->nodes.push_back(graph.nodes[index]);
    for (size_t &earlier : program->nodes.back().after) {
      earlier = position[earlier];
    }
    const Node &node = program->nodes.back();
    program->has_host_function |=
        node.type == hipGraphNodeTypeHost || (node.child != nullptr && node.child->has_host_function);
  }
  return program;
}

hipGraphExecUpdateResult compare(const Program &before, const Program &after) {
  if (before.nodes.size() != after.nodes.size()) {
    return hipGraphExecUpdateErrorTopologyChanged;
  }
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    const Node &earlier = before.nodes[i], &later = after.nodes[i];
    if (earlier.after != later.after) {
      return hipGraphExecUpdateErrorTopologyChanged;
    }
    if (earlier.type != later.type || (earlier.child == nullptr) != (later.child == nullptr)) {
      return hipGraphExecUpdateErrorNodeTypeChanged;
    }
    if (earlier.child != nullptr) {
      if (const auto result = compare(*earlier.child, *later.child); result != hipGraphExecUpdateSuccess) {
        return result;
      }
    }
  }
  return hipGraphExecUpdateSuccess;
}

void Program::run() const {
  const int device = current_device();
  const auto run_node = [](const Node &node) {
    if (node.child != nullptr) {
      node.child->run();
    } else if (node.work) {
      set_current_device(node.device);
      node.work();
    }
  };
  Runtime &rt = runtime();
  if (!rt.is_stressed) {
    for (const Node &node : nodes) {
      run_node(node);
    }
  } else {
    // A graph that lacks a dependency is to fail here: any order that its own allow.
    std::unique_lock<std::mutex> lock(rt.mutex);
    std::minstd_rand random(static_cast<std::minstd_rand::result_type>(next_random(rt)));
    lock.unlock();
    for (const size_t index : ordered(nodes, [&random](size_t count) { return random() % count; })) {
      run_node(nodes[index]);
    }
  }
  set_current_device(device);
}

}  // namespace rocpy_host
