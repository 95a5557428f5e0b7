// SPDX-License-Identifier: MIT
// Graphs: their nodes, the names that callers have for them, and how a graph that was made ready runs.
#include "graph.hpp"
#include "lazy.h"

#include <algorithm>
#include <deque>
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
  graph->names.resize(graph->nodes.size() + 1);
  graph->nodes.push_back(std::move(node));
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
  std::vector<size_t> missing(nodes.size()), order;
  std::deque<size_t> ready;
  std::vector<std::vector<size_t>> before(nodes.size());
  for (size_t index = 0; index < nodes.size(); ++index) {
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
  // First those that became ready first, as in AMD's runtime: an update compares nodes in this order.
  const std::vector<size_t> order = ordered(graph.nodes, [](size_t) { return 0; });
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
    std::vector<size_t> &after = program->nodes.back().after;
    for (size_t &earlier : after) {
      earlier = position[earlier];
    }
    std::sort(after.begin(), after.end());  // they compare as a set
  }
  program->summarize();
  return program;
}

void Program::summarize() {
  const auto append = [](auto *list, const auto &more) { list->insert(list->end(), more.begin(), more.end()); };
  has_host_function = false;
  sequences.clear();
  handed_out.clear();
  taken_back.clear();
  for (const Node &node : nodes) {
    has_host_function |= node.type == hipGraphNodeTypeHost;
    if (node.memory != nullptr) {
      (node.type == hipGraphNodeTypeMemAlloc ? handed_out : taken_back).push_back(*node.memory);
    }
    if (node.sequence != nullptr) {
      sequences.push_back(node.sequence);
    }
    if (node.child != nullptr) {
      has_host_function |= node.child->has_host_function;
      append(&sequences, node.child->sequences);
      append(&handed_out, node.child->handed_out);
      append(&taken_back, node.child->taken_back);
    }
  }
}

namespace {

// Why a node cannot replace another. A node that does no work on a device may change that.
hipGraphExecUpdateResult compare(const Node &before, const Node &after) {
  const bool is_of_device = after.type != hipGraphNodeTypeHost && after.type != hipGraphNodeTypeEmpty;
  if (before.type != after.type || (before.child == nullptr) != (after.child == nullptr)) {
    return hipGraphExecUpdateErrorNodeTypeChanged;
  }
  if (is_of_device && before.device != after.device) {
    return hipGraphExecUpdateErrorUnsupportedFunctionChange;
  }
  if (before.kind != after.kind) {
    return hipGraphExecUpdateErrorParametersChanged;
  }
  if (before.after != after.after) {
    return hipGraphExecUpdateErrorTopologyChanged;
  }
  return before.child != nullptr ? compare(*before.child, *after.child).result : hipGraphExecUpdateSuccess;
}

}  // namespace

Comparison compare(const Program &before, const Program &after) {
  if (before.nodes.size() != after.nodes.size()) {
    return {hipGraphExecUpdateErrorTopologyChanged, std::nullopt};
  }
  for (size_t i = 0; i < before.nodes.size(); ++i) {
    if (const auto result = compare(before.nodes[i], after.nodes[i]); result != hipGraphExecUpdateSuccess) {
      return {result, i};
    }
  }
  return {};
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
