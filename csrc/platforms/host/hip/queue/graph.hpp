// SPDX-License-Identifier: MIT
// Graphs and the capture of streams into them, for the HIP sources only. All that is here is behind the runtime's
// mutex.
#pragma once

#include "runtime.hpp"

#include <functional>
#include <memory>

namespace rocpy_host {

struct Graph;
struct Program;

struct Node {
  hipGraphNodeType type = hipGraphNodeTypeEmpty;
  int device = 0;
  std::function<void()> work;             // none: the node only orders others
  std::shared_ptr<const Program> child;   // a graph as it was when it became this node
  std::shared_ptr<Sequence> sequence;     // of the graph made ready whose launch became this node
  std::shared_ptr<void *> memory;         // the address that this node gives out or takes back
  hipMemcpyKind kind = hipMemcpyDefault;  // of a copy
  // What the row that reads parameters gives back, of the type that it has for nodes of this type; none: not known.
  std::shared_ptr<const void> parameters;
  std::vector<size_t> after;  // nodes of the same graph, by index
};

// A node as callers name it; made when somebody first asks for it.
struct NodeName {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  Graph *graph = nullptr;
  size_t index = 0;
};

struct UserObject;

// A user object that a graph owns references to: kept by what is made of the graph too, and by its launches.
struct Retained {
  std::shared_ptr<UserObject> object;
  unsigned count = 0;
};

struct Graph {
  std::atomic<uint64_t> handle{0};
  uint32_t slot = 0, generation = 0;
  std::vector<Node> nodes;
  std::vector<Retained> retained;
  std::vector<NodeName *> names;  // one for each node, or null
  bool is_capturing = false;
};

// A graph made ready: its nodes as they were then, each after those that it follows.
struct Program {
  std::vector<Node> nodes;
  std::vector<Retained> retained;
  uint64_t graph = 0;             // whose nodes' names it goes by
  std::vector<size_t> positions;  // here, of each node of that graph

  // Of the nodes and of those of their children; summarize() writes it.
  bool has_host_function = false;
  Sequences sequences;
  std::vector<void *> handed_out, taken_back;

  void summarize();
  void run() const;
};

// Whether a program can replace another, or why not, and the node of `after` because of which it cannot: none, if the
// number of nodes differs.
struct Comparison {
  hipGraphExecUpdateResult result = hipGraphExecUpdateSuccess;
  std::optional<size_t> node;
};
Comparison compare(const Program &before, const Program &after);

// One capture, from begin to end. It outlives its end for the events that were recorded in it.
struct Capture {
  uint64_t id = 0;
  uint64_t thread = 0;
  hipStreamCaptureMode mode = hipStreamCaptureModeGlobal;
  bool is_valid = true, is_over = false;
  Graph *graph = nullptr;
  std::vector<Stream *> streams;  // the origin first, then those that joined
  std::vector<size_t> released;   // nodes that the user took out of a stream's dependencies: they need no join
  std::vector<hipGraphNode_t> dependencies;  // what hipStreamGetCaptureInfo_v2 last gave out
};

// Where an event was recorded in a capture: it is reached when these nodes are done.
struct Mark {
  std::shared_ptr<Capture> capture;
  const Stream *stream = nullptr;
  std::vector<size_t> after;
};

using GraphTable = HandleTable<Graph, 'G'>;
using NodeTable = HandleTable<NodeName, 'N'>;
GraphTable &graphs();
NodeTable &graph_nodes();

// With the mutex held.
Graph *create_graph();  // null: too many
void destroy_graph(Graph *graph);
size_t add_node(Graph *graph, Node node);
hipGraphNode_t name_node(Graph *graph, size_t index);  // null: too many
std::shared_ptr<Program> compile(const Graph &graph);  // null: nodes that wait for each other
// A stream goes: the capture that began on it is dropped. One that it only joined goes on, and still requires a join of
// its work.
void leave_capture(Stream *stream);
void invalidate(Capture *capture);
void forget_captures();  // in a forked child

// The rest takes the mutex. An answer refuses the call or says that it became part of a graph; without one it goes on
// as ever. What must not be done while streams are captured makes those captures invalid.

// Work as a node, whose device and dependencies are those of its stream.
std::optional<hipError_t> capture_node(Stream *stream, Node node);
// A call that waits for a stream, or asks whether it is idle.
std::optional<hipError_t> capture_forbids_wait(Stream *stream, bool is_query);
// A call that waits for a device.
std::optional<hipError_t> capture_forbids_device_wait(int device);
// A call that may wait for the device by itself, as those that give out memory: see hipThreadExchangeStreamCaptureMode.
std::optional<hipError_t> capture_forbids_unsafe_call();
// Work that no graph can hold.
std::optional<hipError_t> capture_forbids_work(Stream *stream);
// An event that was recorded in a capture that still goes on.
std::optional<hipError_t> capture_forbids_event(const Mark &mark);

std::optional<hipError_t> capture_record(Stream *stream, Mark *mark);
std::optional<hipError_t> capture_wait(Stream *stream, const Mark &mark);

hipStreamCaptureStatus capture_status(const Stream *stream);  // with the mutex held
bool has_blocking_capture(int device);                        // the same
hipError_t begin_capture(Stream *stream, hipStreamCaptureMode mode);
hipError_t end_capture(Stream *stream, hipGraph_t *graph);
hipStreamCaptureMode exchange_capture_mode(hipStreamCaptureMode mode);

}  // namespace rocpy_host
