// SPDX-License-Identifier: MIT
// Stream capture and graphs: random programs over several streams, whose graphs must keep what stream order demands;
// and what is refused while a stream is captured.
#include "check.hpp"
#include "prototypes.h"

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<long> clock_ticks{0};

struct Step {
  std::vector<int> after;
  std::atomic<long> started{0}, ended{0};
  std::atomic<int> runs{0};
  static void run(void *data) {
    auto *step = static_cast<Step *>(data);
    step->started = ++clock_ticks;
    ++step->runs;
    step->ended = ++clock_ticks;
  }
};

hipStream_t made_stream(unsigned flags = hipStreamNonBlocking) {
  hipStream_t stream = nullptr;
  CHECK_EQUAL(hipStreamCreateWithFlags(&stream, flags), hipSuccess);
  return stream;
}

hipEvent_t made_event() {
  hipEvent_t event = nullptr;
  CHECK_EQUAL(hipEventCreate(&event), hipSuccess);
  return event;
}

// Host functions on several streams that record and wait for events, captured from the first stream's fork to its join,
// launched twice.
void run_program(unsigned seed) {
  constexpr int stream_count = 4, event_count = 5, operations = 60;
  std::mt19937 random(seed);
  const auto pick = [&random](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  std::vector<hipStream_t> streams;
  std::vector<hipEvent_t> events;
  for (int i = 0; i < stream_count; ++i) {
    streams.push_back(made_stream(pick(2) ? hipStreamNonBlocking : hipStreamDefault));
  }
  for (int i = 0; i < event_count; ++i) events.push_back(made_event());

  std::vector<std::unique_ptr<Step>> steps;
  std::vector<int> follows[stream_count], marks[event_count];  // what comes before the next step, by step
  CHECK_EQUAL(hipStreamBeginCapture(streams[0], hipStreamCaptureModeThreadLocal), hipSuccess);
  for (int i = 1; i < stream_count; ++i) {
    CHECK_EQUAL(hipEventRecord(events[0], streams[0]), hipSuccess);
    CHECK_EQUAL(hipStreamWaitEvent(streams[i], events[0], 0), hipSuccess);
  }
  for (hipEvent_t event : events) CHECK_EQUAL(hipEventRecord(event, streams[0]), hipSuccess);
  for (int i = 0; i < operations; ++i) {
    const int stream = pick(stream_count), event = pick(event_count);
    switch (pick(4)) {
      case 0:
        CHECK_EQUAL(hipEventRecord(events[event], streams[stream]), hipSuccess);
        marks[event] = follows[stream];
        break;
      case 1:
        CHECK_EQUAL(hipStreamWaitEvent(streams[stream], events[event], 0), hipSuccess);
        follows[stream].insert(follows[stream].end(), marks[event].begin(), marks[event].end());
        break;
      default: {
        steps.push_back(std::make_unique<Step>());
        steps.back()->after = follows[stream];
        follows[stream] = {static_cast<int>(steps.size()) - 1};
        CHECK_EQUAL(hipLaunchHostFunc(streams[stream], Step::run, steps.back().get()), hipSuccess);
      }
    }
  }
  for (int i = 1; i < stream_count; ++i) {
    CHECK_EQUAL(hipEventRecord(events[0], streams[i]), hipSuccess);
    CHECK_EQUAL(hipStreamWaitEvent(streams[0], events[0], 0), hipSuccess);
  }
  hipGraph_t graph = nullptr;
  CHECK_EQUAL(hipStreamEndCapture(streams[0], &graph), hipSuccess);
  for (const auto &step : steps) CHECK_EQUAL(step->runs, 0);

  size_t count = 0;
  CHECK_EQUAL(hipGraphGetNodes(graph, nullptr, &count), hipSuccess);
  CHECK_EQUAL(count, steps.size());
  hipGraphExec_t exec = nullptr;
  CHECK_EQUAL(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0), hipSuccess);
  CHECK_EQUAL(hipGraphDestroy(graph), hipSuccess);
  for (int launch = 1; launch <= 2; ++launch) {
    CHECK_EQUAL(hipGraphLaunch(exec, streams[launch]), hipSuccess);
    CHECK_EQUAL(hipStreamSynchronize(streams[launch]), hipSuccess);
    for (const auto &step : steps) {
      CHECK_EQUAL(step->runs, launch);
      for (const int before : step->after) CHECK(steps[before]->ended < step->started);
    }
  }
  // A graph does not run beside itself, whatever the streams.
  CHECK_EQUAL(hipGraphLaunch(exec, streams[1]), hipSuccess);
  CHECK_EQUAL(hipGraphLaunch(exec, streams[2]), hipSuccess);
  CHECK_EQUAL(hipGraphExecDestroy(exec), hipSuccess);
  CHECK_EQUAL(hipStreamSynchronize(streams[2]), hipSuccess);
  for (const auto &step : steps) CHECK_EQUAL(step->runs, 4);
  for (hipStream_t stream : streams) CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  for (hipEvent_t event : events) CHECK_EQUAL(hipEventDestroy(event), hipSuccess);
}

void nothing(void *) {}

// Begins a capture, makes a call that must be answered so, and ends the capture with the answer of one that is invalid.
template <class Call>
void check_refused(const char *what, hipStreamCaptureMode mode, hipError_t wanted, Call call, bool spoils = true,
                   unsigned flags = hipStreamNonBlocking) {
  const hipStream_t stream = made_stream(flags);
  CHECK_EQUAL(hipStreamBeginCapture(stream, mode), hipSuccess);
  CHECK_EQUAL(hipLaunchHostFunc(stream, nothing, nullptr), hipSuccess);
  const int before = failures;
  CHECK_EQUAL(call(stream), wanted);
  hipStreamCaptureStatus status;
  CHECK_EQUAL(hipStreamIsCapturing(stream, &status), hipSuccess);
  CHECK_EQUAL(status, spoils ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive);
  if (spoils) CHECK_EQUAL(hipLaunchHostFunc(stream, nothing, nullptr), hipErrorStreamCaptureInvalidated);
  hipGraph_t graph = nullptr;
  CHECK_EQUAL(hipStreamEndCapture(stream, &graph), spoils ? hipErrorStreamCaptureInvalidated : hipSuccess);
  CHECK((graph == nullptr) == spoils);
  if (graph != nullptr) CHECK_EQUAL(hipGraphDestroy(graph), hipSuccess);
  CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  if (failures != before) std::fprintf(stderr, "in the check of %s, mode %d\n", what, static_cast<int>(mode));
}

hipError_t in_a_thread(hipError_t (*call)()) {
  hipError_t answer = hipErrorUnknown;
  std::thread([&] { answer = call(); }).join();
  return answer;
}

hipError_t allocate() {
  void *memory = nullptr;
  const hipError_t error = hipMalloc(&memory, 64);
  if (error == hipSuccess) {
    hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
    CHECK_EQUAL(hipThreadExchangeStreamCaptureMode(&mode), hipSuccess);
    CHECK_EQUAL(hipFree(memory), hipSuccess);
    CHECK_EQUAL(hipThreadExchangeStreamCaptureMode(&mode), hipSuccess);
  }
  return error;
}

void check_rules() {
  constexpr auto unsupported = hipErrorStreamCaptureUnsupported;
  static char bytes[64];
  static void *other = nullptr;
  CHECK_EQUAL(hipMalloc(&other, 64), hipSuccess);
  for (const auto mode : {hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal, hipStreamCaptureModeRelaxed}) {
    const bool is_global = mode == hipStreamCaptureModeGlobal, is_relaxed = mode == hipStreamCaptureModeRelaxed;
    check_refused("synchronise", mode, unsupported, [](hipStream_t s) { return hipStreamSynchronize(s); });
    check_refused("query", mode, unsupported, [](hipStream_t s) { return hipStreamQuery(s); });
    check_refused("device", mode, unsupported, [](hipStream_t) { return hipDeviceSynchronize(); });
    check_refused("callback", mode, unsupported, [](hipStream_t s) {
      return hipStreamAddCallback(s, [](hipStream_t, hipError_t, void *) {}, nullptr, 0);
    });
    check_refused("copy that waits", mode, unsupported,
                  [](hipStream_t s) { return hipMemcpyWithStream(bytes, bytes + 32, 32, hipMemcpyDefault, s); });
    check_refused("other memory", mode, unsupported, [](hipStream_t s) { return hipFreeAsync(other, s); });
    check_refused(
        "null stream", mode, hipErrorStreamCaptureImplicit,
        [](hipStream_t) { return hipMemsetAsync(bytes, 0, 64, nullptr); }, true, hipStreamDefault);
    check_refused(
        "null stream beside", mode, hipSuccess, [](hipStream_t) { return hipMemsetAsync(bytes, 0, 64, nullptr); },
        false);
    check_refused(
        "malloc", mode, is_relaxed ? hipSuccess : unsupported, [](hipStream_t) { return allocate(); }, !is_relaxed);
    check_refused(
        "malloc elsewhere", mode, is_global ? unsupported : hipSuccess,
        [](hipStream_t) { return in_a_thread(allocate); }, is_global);
    check_refused(
        "malloc, relaxed thread", mode, hipSuccess,
        [](hipStream_t) {
          hipStreamCaptureMode relaxed = hipStreamCaptureModeRelaxed;
          CHECK_EQUAL(hipThreadExchangeStreamCaptureMode(&relaxed), hipSuccess);
          const hipError_t error = allocate();
          CHECK_EQUAL(hipThreadExchangeStreamCaptureMode(&relaxed), hipSuccess);
          CHECK_EQUAL(relaxed, hipStreamCaptureModeRelaxed);
          return error;
        },
        false);
    check_refused("event inside", mode, hipErrorCapturedEvent, [](hipStream_t s) {
      const hipEvent_t event = made_event();
      CHECK_EQUAL(hipEventRecord(event, s), hipSuccess);
      const hipError_t error = hipEventQuery(event);
      CHECK_EQUAL(hipEventDestroy(event), hipSuccess);
      return error;
    });
    check_refused("event from outside", mode, hipErrorStreamCaptureIsolation, [](hipStream_t s) {
      const hipStream_t other = made_stream();
      const hipEvent_t event = made_event();
      CHECK_EQUAL(hipEventRecord(event, other), hipSuccess);
      const hipError_t error = hipStreamWaitEvent(s, event, 0);
      CHECK_EQUAL(hipEventDestroy(event), hipSuccess);
      CHECK_EQUAL(hipStreamDestroy(other), hipSuccess);
      return error;
    });
    check_refused(
        "second begin", mode, hipErrorIllegalState,
        [](hipStream_t s) { return hipStreamBeginCapture(s, hipStreamCaptureModeGlobal); }, false);
  }
}

void check_ends() {
  hipGraph_t graph = nullptr;
  CHECK_EQUAL(hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal), hipErrorStreamCaptureUnsupported);
  const hipStream_t origin = made_stream(), other = made_stream();
  const hipEvent_t fork = made_event(), join = made_event();
  CHECK_EQUAL(hipStreamBeginCapture(origin, static_cast<hipStreamCaptureMode>(3)), hipErrorInvalidValue);
  CHECK_EQUAL(hipStreamEndCapture(origin, &graph), hipErrorIllegalState);

  // Forked work that is not joined; the fork itself cannot end the capture, nor can another thread.
  CHECK_EQUAL(hipStreamBeginCapture(origin, hipStreamCaptureModeThreadLocal), hipSuccess);
  CHECK_EQUAL(hipEventRecord(fork, origin), hipSuccess);
  CHECK_EQUAL(hipStreamWaitEvent(other, fork, 0), hipSuccess);
  CHECK_EQUAL(hipLaunchHostFunc(other, nothing, nullptr), hipSuccess);
  CHECK_EQUAL(hipStreamEndCapture(other, &graph), hipErrorStreamCaptureUnmatched);
  std::thread([&] { CHECK_EQUAL(hipStreamEndCapture(origin, &graph), hipErrorStreamCaptureWrongThread); }).join();
  CHECK_EQUAL(hipStreamEndCapture(origin, &graph), hipErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
  CHECK_EQUAL(hipEventQuery(fork), hipSuccess);  // as never recorded
  CHECK_EQUAL(hipStreamSynchronize(other), hipSuccess);

  // Two captures do not become one.
  CHECK_EQUAL(hipStreamBeginCapture(origin, hipStreamCaptureModeThreadLocal), hipSuccess);
  CHECK_EQUAL(hipStreamBeginCapture(other, hipStreamCaptureModeThreadLocal), hipSuccess);
  CHECK_EQUAL(hipEventRecord(fork, origin), hipSuccess);
  CHECK_EQUAL(hipStreamWaitEvent(other, fork, 0), hipErrorStreamCaptureMerge);
  CHECK_EQUAL(hipStreamEndCapture(origin, &graph), hipErrorStreamCaptureInvalidated);
  CHECK_EQUAL(hipStreamEndCapture(other, &graph), hipErrorStreamCaptureInvalidated);

  // A stream that goes takes the capture with it, but not where it only joined: then its work needs a join as ever, and
  // its events are no join.
  for (const bool is_joined : {true, false}) {
    const hipStream_t third = made_stream();
    CHECK_EQUAL(hipStreamBeginCapture(origin, hipStreamCaptureModeThreadLocal), hipSuccess);
    CHECK_EQUAL(hipEventRecord(fork, origin), hipSuccess);
    CHECK_EQUAL(hipStreamWaitEvent(third, fork, 0), hipSuccess);
    CHECK_EQUAL(hipLaunchHostFunc(third, nothing, nullptr), hipSuccess);
    CHECK_EQUAL(hipEventRecord(join, third), hipSuccess);
    if (is_joined) CHECK_EQUAL(hipStreamWaitEvent(origin, join, 0), hipSuccess);
    CHECK_EQUAL(hipStreamDestroy(third), hipSuccess);
    CHECK_EQUAL(hipStreamWaitEvent(origin, join, 0), hipSuccess);
    CHECK_EQUAL(hipStreamWaitEvent(other, join, 0), hipSuccess);
    CHECK_EQUAL(hipStreamEndCapture(origin, &graph), is_joined ? hipSuccess : hipErrorStreamCaptureUnjoined);
    if (is_joined) CHECK_EQUAL(hipGraphDestroy(graph), hipSuccess);
  }
  CHECK_EQUAL(hipStreamBeginCapture(origin, hipStreamCaptureModeThreadLocal), hipSuccess);
  CHECK_EQUAL(hipEventRecord(fork, origin), hipSuccess);
  CHECK_EQUAL(hipStreamWaitEvent(other, fork, 0), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(origin), hipSuccess);
  hipStreamCaptureStatus status;
  CHECK_EQUAL(hipStreamIsCapturing(other, &status), hipSuccess);
  CHECK_EQUAL(status, hipStreamCaptureStatusNone);
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  for (hipEvent_t event : {fork, join}) CHECK_EQUAL(hipEventDestroy(event), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(other), hipSuccess);
}

// Appends to a text: what a host node of the graphs below does.
struct Letter {
  std::string *text;
  char letter;
  static void write(void *data) {
    const auto *self = static_cast<Letter *>(data);
    self->text->push_back(self->letter);
  }
};

std::string written(hipGraphExec_t exec, std::string *text) {
  const hipStream_t stream = made_stream();
  text->clear();
  CHECK_EQUAL(hipGraphLaunch(exec, stream), hipSuccess);
  CHECK_EQUAL(hipStreamSynchronize(stream), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
  return *text;
}

void check_built_graphs() {
  std::string text;
  Letter a{&text, 'a'}, b{&text, 'b'}, c{&text, 'c'};
  hipGraph_t graph = nullptr;
  CHECK_EQUAL(hipGraphCreate(&graph, 1), hipErrorInvalidValue);
  CHECK_EQUAL(hipGraphCreate(&graph, 0), hipSuccess);
  hipGraphNode_t nodes[4] = {};
  const auto add = [&](int index, Letter *letter, const hipGraphNode_t *after, size_t count) {
    const hipHostNodeParams params{Letter::write, letter};
    return hipGraphAddHostNode(&nodes[index], graph, after, count, &params);
  };
  CHECK_EQUAL(add(0, &a, nullptr, 0), hipSuccess);
  CHECK_EQUAL(add(1, &b, nullptr, 0), hipSuccess);
  CHECK_EQUAL(add(2, &c, nodes, 1), hipSuccess);
  CHECK_EQUAL(add(3, &c, nullptr, 1), hipErrorInvalidValue);
  CHECK_EQUAL(hipGraphAddDependencies(graph, &nodes[2], &nodes[1], 1), hipSuccess);  // a, c, b
  CHECK_EQUAL(hipGraphAddDependencies(graph, &nodes[2], &nodes[1], 1), hipErrorInvalidValue);
  CHECK_EQUAL(hipGraphAddEmptyNode(&nodes[3], graph, &nodes[1], 1), hipSuccess);

  hipGraphNode_t seen[8];
  size_t count = 8;
  CHECK_EQUAL(hipGraphGetNodes(graph, seen, &count), hipSuccess);
  CHECK_EQUAL(count, 4);
  CHECK(seen[0] == nodes[0] && seen[3] == nodes[3] && seen[4] == nullptr);
  count = 8;
  CHECK_EQUAL(hipGraphGetRootNodes(graph, seen, &count), hipSuccess);
  CHECK(count == 1 && seen[0] == nodes[0]);
  hipGraphNode_t from[8], to[8];
  count = 8;
  CHECK_EQUAL(hipGraphGetEdges(graph, from, to, &count), hipSuccess);
  CHECK_EQUAL(count, 3);
  count = 8;
  CHECK_EQUAL(hipGraphNodeGetDependencies(nodes[1], seen, &count), hipSuccess);
  CHECK(count == 1 && seen[0] == nodes[2]);
  count = 8;
  CHECK_EQUAL(hipGraphNodeGetDependentNodes(nodes[1], seen, &count), hipSuccess);
  CHECK(count == 1 && seen[0] == nodes[3]);
  hipGraphNodeType type;
  CHECK_EQUAL(hipGraphNodeGetType(nodes[1], &type), hipSuccess);
  CHECK_EQUAL(type, hipGraphNodeTypeHost);

  hipGraphExec_t exec = nullptr, exec_of_clone = nullptr;
  CHECK_EQUAL(hipGraphInstantiateWithFlags(&exec, graph, 0), hipSuccess);
  CHECK(written(exec, &text) == "acb");
  hipGraph_t clone = nullptr;
  CHECK_EQUAL(hipGraphClone(&clone, graph), hipSuccess);
  CHECK_EQUAL(hipGraphAddDependencies(graph, &nodes[1], &nodes[0], 1), hipSuccess);  // a waits for b, which waits for a
  CHECK_EQUAL(hipGraphInstantiate(&exec_of_clone, graph, nullptr, nullptr, 0), hipErrorInvalidValue);
  hipGraphNode_t failed = nullptr;
  hipGraphExecUpdateResult result;
  CHECK_EQUAL(hipGraphExecUpdate(exec, graph, &failed, &result), hipErrorGraphExecUpdateFailure);
  CHECK_EQUAL(result, hipGraphExecUpdateErrorTopologyChanged);
  CHECK_EQUAL(hipGraphDestroy(graph), hipSuccess);
  CHECK_EQUAL(hipGraphDestroy(graph), hipErrorInvalidValue);
  CHECK_EQUAL(hipGraphNodeGetType(nodes[1], &type), hipErrorInvalidValue);
  CHECK_EQUAL(hipGraphInstantiate(&exec_of_clone, clone, nullptr, nullptr, 0), hipSuccess);
  CHECK(written(exec_of_clone, &text) == "acb");
  CHECK_EQUAL(hipGraphExecUpdate(exec, clone, &failed, &result), hipSuccess);
  CHECK(written(exec, &text) == "acb");
  CHECK_EQUAL(hipGraphDestroy(clone), hipSuccess);

  // A graph within a capture is a node of the other graph.
  const hipStream_t stream = made_stream();
  CHECK_EQUAL(hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed), hipSuccess);
  CHECK_EQUAL(hipGraphLaunch(exec, stream), hipSuccess);
  CHECK_EQUAL(hipGraphLaunch(exec_of_clone, stream), hipSuccess);
  CHECK_EQUAL(hipStreamEndCapture(stream, &graph), hipSuccess);
  hipGraphExec_t outer = nullptr;
  CHECK_EQUAL(hipGraphInstantiate(&outer, graph, nullptr, nullptr, 0), hipSuccess);
  for (hipGraphExec_t one : {exec, exec_of_clone}) CHECK_EQUAL(hipGraphExecDestroy(one), hipSuccess);
  CHECK(written(outer, &text) == "acbacb");
  CHECK_EQUAL(hipGraphLaunch(exec, stream), hipErrorInvalidValue);
  CHECK_EQUAL(hipGraphExecDestroy(outer), hipSuccess);
  CHECK_EQUAL(hipGraphDestroy(graph), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

// Copies and fills, captured and built, with the dependencies that the caller sets himself.
void check_memory_nodes() {
  uint16_t source[6] = {1, 2, 3, 4, 5, 6}, target[6] = {};
  const hipStream_t stream = made_stream();
  CHECK_EQUAL(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal), hipSuccess);
  CHECK_EQUAL(hipMemsetD16Async(target, 7, 6, stream), hipSuccess);
  hipStreamCaptureStatus status;
  unsigned long long id = 0, again = 0;
  hipGraph_t graph = nullptr, captured = nullptr;
  const hipGraphNode_t *nodes = nullptr;
  size_t count = 0;
  CHECK_EQUAL(hipStreamGetCaptureInfo(stream, &status, &id), hipSuccess);
  CHECK_EQUAL(hipStreamGetCaptureInfo_v2(stream, &status, &again, &captured, &nodes, &count), hipSuccess);
  CHECK(id == again && id != 0 && count == 1 && status == hipStreamCaptureStatusActive);
  CHECK_EQUAL(hipGraphDestroy(captured), hipErrorInvalidValue);
  // A node that is added by hand takes the place of what the stream would follow.
  hipGraphNode_t copy = nullptr;
  CHECK_EQUAL(hipGraphAddMemcpyNode1D(&copy, captured, nodes, count, target, source, 4, hipMemcpyDefault), hipSuccess);
  CHECK_EQUAL(hipStreamUpdateCaptureDependencies(stream, &copy, 1, hipStreamSetCaptureDependencies), hipSuccess);
  CHECK_EQUAL(hipMemcpyAsync(target + 4, target, 4, hipMemcpyDefault, stream), hipSuccess);
  CHECK_EQUAL(hipStreamEndCapture(stream, &graph), hipSuccess);
  CHECK(graph == captured && target[0] == 0);
  hipMemsetParams fill = {};
  fill.dst = target + 2;
  fill.elementSize = 2;
  fill.width = fill.height = 1;
  fill.value = 9;
  hipGraphNode_t node = nullptr;
  CHECK_EQUAL(hipGraphAddMemsetNode(&node, graph, &copy, 1, &fill), hipSuccess);
  fill.elementSize = 3;
  CHECK_EQUAL(hipGraphAddMemsetNode(&node, graph, &copy, 1, &fill), hipErrorInvalidValue);
  hipGraphExec_t exec = nullptr;
  CHECK_EQUAL(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0), hipSuccess);
  CHECK_EQUAL(hipGraphUpload(exec, stream), hipSuccess);
  CHECK_EQUAL(hipGraphLaunch(exec, nullptr), hipSuccess);
  CHECK_EQUAL(hipDeviceSynchronize(), hipSuccess);
  const uint16_t wanted[6] = {1, 2, 9, 7, 1, 2};
  CHECK_EQUAL(std::memcmp(target, wanted, sizeof(target)), 0);
  CHECK_EQUAL(hipGraphExecDestroy(exec), hipSuccess);
  CHECK_EQUAL(hipGraphDestroy(graph), hipSuccess);
  CHECK_EQUAL(hipStreamDestroy(stream), hipSuccess);
}

}  // namespace

int main() {
  check_rules();
  check_ends();
  check_built_graphs();
  check_memory_nodes();
  for (unsigned seed = 1; seed <= 40 && failures.load() == 0; ++seed) {
    run_program(seed);
    if (failures.load() != 0) std::fprintf(stderr, "with the program of seed %u\n", seed);
  }
  return failures.load() == 0 ? 0 : 1;
}
