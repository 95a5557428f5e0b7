// SPDX-License-Identifier: MIT
// Whether stress mode finds what it is for: each program below exists in two forms, one that waits where HIP's order
// asks for it and one that forgot to. Under twenty seeds the first form must always be right, and the second must be
// wrong at least once. A child process runs each program under each seed.
#include "check.hpp"
#include "prototypes.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr int seeds = 20;
constexpr size_t bytes = 1 << 16;
constexpr unsigned char stale = 1, fresh = 2, later = 3;

void require(hipError_t error) {
  if (error != hipSuccess) {
    std::fprintf(stderr, "%s\n", hipGetErrorName(error));
    _exit(2);
  }
}

// Memory of a device that holds stale bytes.
unsigned char *device_memory(int device = 0) {
  void *memory = nullptr;
  require(hipSetDevice(device));
  require(hipMalloc(&memory, bytes));
  require(hipMemset(memory, stale, bytes));
  require(hipDeviceSynchronize());
  require(hipSetDevice(0));
  return static_cast<unsigned char *>(memory);
}

unsigned char *pinned_memory() {
  void *memory = nullptr;
  require(hipHostMalloc(&memory, bytes, 0));
  std::memset(memory, stale, bytes);
  return static_cast<unsigned char *>(memory);
}

hipStream_t stream_of(int device = 0, unsigned flags = hipStreamDefault) {
  hipStream_t stream = nullptr;
  require(hipSetDevice(device));
  require(hipStreamCreateWithFlags(&stream, flags));
  require(hipSetDevice(0));
  return stream;
}

hipEvent_t event_of(int device = 0) {
  hipEvent_t event = nullptr;
  require(hipSetDevice(device));
  require(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  require(hipSetDevice(0));
  return event;
}

// Every byte, read after all devices are at rest.
bool holds(const unsigned char *memory, unsigned char value) {
  int devices = 0;
  require(hipGetDeviceCount(&devices));
  for (int device = 0; device < std::min(devices, 2); ++device) {
    require(hipSetDevice(device));
    require(hipDeviceSynchronize());
  }
  require(hipSetDevice(0));
  std::vector<unsigned char> seen(bytes);
  require(hipMemcpy(seen.data(), memory, bytes, hipMemcpyDefault));
  return std::all_of(seen.begin(), seen.end(), [value](unsigned char one) { return one == value; });
}

// Without asking for order: what the CPU finds at this moment.
bool holds_now(const unsigned char *memory, unsigned char value) {
  const volatile unsigned char *seen = memory;
  for (size_t i = 0; i < bytes; ++i) {
    if (seen[i] != value) {
      return false;
    }
  }
  return true;
}

// ---- the programs: each returns whether its result is right ----

bool between_two_streams(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipStream_t first = stream_of(), second = stream_of();
  require(hipMemsetAsync(a, fresh, bytes, first));
  if (waits) {
    hipEvent_t event = event_of();
    require(hipEventRecord(event, first));
    require(hipStreamWaitEvent(second, event, 0));
  }
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, second));
  return holds(b, fresh);
}

// The event is recorded, but before the work that it is to stand for.
bool event_recorded_too_early(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipStream_t first = stream_of(), second = stream_of();
  hipEvent_t event = event_of();
  if (!waits) {
    require(hipEventRecord(event, first));
  }
  require(hipMemsetAsync(a, fresh, bytes, first));
  if (waits) {
    require(hipEventRecord(event, first));
  }
  require(hipStreamWaitEvent(second, event, 0));
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, second));
  return holds(b, fresh);
}

// A stream that does not take part in the null stream's order reads what the null stream writes.
bool null_stream_and_nonblocking_stream(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipStream_t second = stream_of(0, waits ? hipStreamDefault : hipStreamNonBlocking);
  require(hipMemsetAsync(a, fresh, bytes, nullptr));
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, second));
  return holds(b, fresh);
}

// The other way round: the null stream reads what a non-blocking stream writes.
bool nonblocking_stream_and_null_stream(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipStream_t first = stream_of(0, waits ? hipStreamDefault : hipStreamNonBlocking);
  require(hipMemsetAsync(a, fresh, bytes, first));
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, nullptr));
  return holds(b, fresh);
}

bool between_two_devices(bool waits) {
  unsigned char *a = device_memory(0), *b = device_memory(1);
  hipStream_t first = stream_of(0), second = stream_of(1);
  require(hipMemsetAsync(a, fresh, bytes, first));
  if (waits) {
    hipEvent_t event = event_of(0);
    require(hipEventRecord(event, first));
    require(hipStreamWaitEvent(second, event, 0));
  }
  require(hipMemcpyPeerAsync(b, 1, a, 0, bytes, second));
  return holds(b, fresh);
}

// Null streams of two devices do not wait for each other.
bool null_streams_of_two_devices(bool waits) {
  unsigned char *a = device_memory(0), *b = device_memory(1), *c = device_memory(1);
  require(hipMemsetAsync(a, fresh, bytes, nullptr));
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, nullptr));
  if (waits) {
    require(hipDeviceSynchronize());
  }
  require(hipSetDevice(1));
  require(hipMemcpyAsync(c, b, bytes, hipMemcpyDeviceToDevice, nullptr));
  return holds(c, fresh);
}

// A copy of another device's memory follows that device's null stream, and no stream that is not blocking.
bool copy_of_another_device(bool waits) {
  unsigned char *a = device_memory(1), *result = pinned_memory();
  hipStream_t stream = stream_of(1, hipStreamNonBlocking);
  require(hipMemsetAsync(a, fresh, bytes, stream));
  if (waits) {
    require(hipStreamSynchronize(stream));
  }
  require(hipMemcpy(result, a, bytes, hipMemcpyDeviceToHost));
  return holds_now(result, fresh);
}

// A fill stays in the stream of the call, whose memory it may be.
bool fill_of_another_device(bool waits) {
  unsigned char *a = device_memory(1);
  require(hipSetDevice(1));
  require(hipMemsetAsync(a, later, bytes, nullptr));
  if (waits) {
    require(hipDeviceSynchronize());
  }
  require(hipSetDevice(0));
  require(hipMemsetAsync(a, fresh, bytes, nullptr));
  require(hipDeviceSynchronize());
  return holds(a, fresh);
}

bool host_reads_results(bool waits) {
  unsigned char *a = device_memory(), *result = pinned_memory();
  hipStream_t stream = stream_of();
  require(hipMemsetAsync(a, fresh, bytes, stream));
  require(hipMemcpyAsync(result, a, bytes, hipMemcpyDeviceToHost, stream));
  if (waits) {
    require(hipStreamSynchronize(stream));
  }
  return holds_now(result, fresh);
}

// An event is asked whether it is done, and the answer ignored.
bool host_ignores_a_query(bool waits) {
  unsigned char *a = device_memory(), *result = pinned_memory();
  hipStream_t stream = stream_of();
  hipEvent_t event = event_of();
  require(hipMemsetAsync(a, fresh, bytes, stream));
  require(hipMemcpyAsync(result, a, bytes, hipMemcpyDeviceToHost, stream));
  require(hipEventRecord(event, stream));
  while (hipEventQuery(event) == hipErrorNotReady && waits) {
  }
  return holds_now(result, fresh);
}

// The CPU writes its next batch into memory that is still being copied from.
bool host_reuses_its_memory(bool waits) {
  unsigned char *a = device_memory(), *batch = pinned_memory();
  hipStream_t stream = stream_of();
  std::memset(batch, fresh, bytes);
  require(hipMemcpyAsync(a, batch, bytes, hipMemcpyHostToDevice, stream));
  if (waits) {
    require(hipStreamSynchronize(stream));
  }
  std::memset(batch, later, bytes);
  return holds(a, fresh);
}

// A second stream writes into memory that the first still reads.
bool write_after_read(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipStream_t first = stream_of(), second = stream_of();
  require(hipMemsetAsync(a, fresh, bytes, first));
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, first));
  if (waits) {
    hipEvent_t event = event_of();
    require(hipEventRecord(event, first));
    require(hipStreamWaitEvent(second, event, 0));
  }
  require(hipMemsetAsync(a, later, bytes, second));
  return holds(b, fresh) && holds(a, later);
}

// Memory goes back to the pool in the order of one stream, while another still reads it.
bool freed_too_early(bool waits) {
  unsigned char *b = device_memory();
  hipStream_t first = stream_of(), second = stream_of();
  void *a = nullptr, *next = nullptr;
  require(hipMallocAsync(&a, bytes, first));
  require(hipMemsetAsync(a, fresh, bytes, first));
  require(hipStreamSynchronize(first));
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, second));
  if (waits) {
    hipEvent_t event = event_of();
    require(hipEventRecord(event, second));
    require(hipStreamWaitEvent(first, event, 0));
  }
  require(hipFreeAsync(a, first));
  require(hipMallocAsync(&next, bytes, first));
  require(hipMemsetAsync(next, later, bytes, first));
  return holds(b, fresh);
}

bool graph_without_an_edge(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipGraph_t graph = nullptr;
  hipGraphNode_t writes = nullptr, reads = nullptr;
  hipGraphExec_t exec = nullptr;
  hipMemsetParams set{};
  set.dst = a;
  set.elementSize = 1;
  set.height = 1;
  set.value = fresh;
  set.width = bytes;
  require(hipGraphCreate(&graph, 0));
  require(hipGraphAddMemsetNode(&writes, graph, nullptr, 0, &set));
  require(hipGraphAddMemcpyNode1D(&reads, graph, waits ? &writes : nullptr, waits ? 1 : 0, b, a, bytes,
                                  hipMemcpyDeviceToDevice));
  require(hipGraphInstantiateWithFlags(&exec, graph, 0));
  require(hipGraphLaunch(exec, stream_of()));
  return holds(b, fresh);
}

// A capture in which the second stream's work is forked from before the first's, not from after it.
bool capture_forked_too_early(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipStream_t first = stream_of(), second = stream_of();
  hipEvent_t fork = event_of(), join = event_of();
  hipGraph_t graph = nullptr;
  hipGraphExec_t exec = nullptr;
  require(hipStreamBeginCapture(first, hipStreamCaptureModeGlobal));
  if (!waits) {
    require(hipEventRecord(fork, first));
  }
  require(hipMemsetAsync(a, fresh, bytes, first));
  if (waits) {
    require(hipEventRecord(fork, first));
  }
  require(hipStreamWaitEvent(second, fork, 0));
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, second));
  require(hipEventRecord(join, second));
  require(hipStreamWaitEvent(first, join, 0));
  require(hipStreamEndCapture(first, &graph));
  require(hipGraphInstantiateWithFlags(&exec, graph, 0));
  require(hipGraphLaunch(exec, first));
  return holds(b, fresh);
}

// A graph writes what a call outside of it reads from another stream.
bool graph_and_eager_work(bool waits) {
  unsigned char *a = device_memory(), *b = device_memory();
  hipStream_t first = stream_of(), second = stream_of();
  hipGraph_t graph = nullptr;
  hipGraphExec_t exec = nullptr;
  require(hipStreamBeginCapture(first, hipStreamCaptureModeGlobal));
  require(hipMemsetAsync(a, fresh, bytes, first));
  require(hipStreamEndCapture(first, &graph));
  require(hipGraphInstantiateWithFlags(&exec, graph, 0));
  require(hipGraphLaunch(exec, first));
  if (waits) {
    require(hipStreamSynchronize(first));
  }
  require(hipMemcpyAsync(b, a, bytes, hipMemcpyDeviceToDevice, second));
  return holds(b, fresh);
}

void set_flag(void *flag) { *static_cast<volatile unsigned char *>(flag) = fresh; }

// A host function's result is read without waiting for the stream that runs it.
bool host_function(bool waits) {
  static volatile unsigned char flag = stale;
  hipStream_t stream = stream_of();
  require(hipLaunchHostFunc(stream, set_flag, const_cast<unsigned char *>(&flag)));
  if (waits) {
    require(hipStreamSynchronize(stream));
  }
  const bool is_right = flag == fresh;
  require(hipStreamSynchronize(stream));
  return is_right;
}

struct Program {
  const char *name;
  bool (*run)(bool waits);
};

constexpr Program programs[] = {
    {"between two streams", between_two_streams},
    {"event recorded too early", event_recorded_too_early},
    {"null stream, then a non-blocking stream", null_stream_and_nonblocking_stream},
    {"non-blocking stream, then the null stream", nonblocking_stream_and_null_stream},
    {"between two devices", between_two_devices},
    {"null streams of two devices", null_streams_of_two_devices},
    {"copy of another device's memory", copy_of_another_device},
    {"fill of another device's memory", fill_of_another_device},
    {"host reads results", host_reads_results},
    {"host ignores the answer of a query", host_ignores_a_query},
    {"host reuses its memory", host_reuses_its_memory},
    {"write after read", write_after_read},
    {"freed too early", freed_too_early},
    {"graph without an edge", graph_without_an_edge},
    {"capture forked too early", capture_forked_too_early},
    {"graph, then eager work", graph_and_eager_work},
    {"host function", host_function},
};

// In a process of its own, since the seed is read when the library is loaded: 0 right, 1 wrong, anything else a
// failure.
int outcome(const char *self, const Program &program, bool waits, int seed) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("ROCPY_HOST_STRESS", std::to_string(seed).c_str(), 1);
    setenv("ROCPY_HOST_DEVICES", "2", 1);
    execl(self, self, program.name, waits ? "waits" : "forgets", nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + status;
}

#ifdef __SANITIZE_THREAD__
constexpr bool runs_wrong_programs = false;  // races, which the sanitizer reports
#else
constexpr bool runs_wrong_programs = true;
#endif

}  // namespace

int main(int count, char **words) {
  if (count == 3) {
    const auto *program = std::find_if(std::begin(programs), std::end(programs),
                                       [words](const Program &one) { return std::strcmp(one.name, words[1]) == 0; });
    _exit(program->run(std::strcmp(words[2], "waits") == 0) ? 0 : 1);
  }
  std::printf("%-44s %s\n", "missing wait", "seeds under which it is wrong");
  for (const Program &program : programs) {
    std::string caught;
    for (int seed = 1; seed <= seeds; ++seed) {
      CHECK_EQUAL(outcome(words[0], program, true, seed), 0);
      if (runs_wrong_programs) {
        const int result = outcome(words[0], program, false, seed);
        CHECK(result == 0 || result == 1);
        caught += result == 1 ? " " + std::to_string(seed) : "";
      }
    }
    std::printf("%-44s%s\n", program.name, caught.c_str());
    CHECK(!runs_wrong_programs || !caught.empty());
  }
  return failures == 0 ? 0 : 1;
}
