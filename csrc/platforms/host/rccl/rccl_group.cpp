// SPDX-License-Identifier: MIT
// Groups of calls, and how operations come to run: in the order of their stream, from its queue, or at once where that
// is safe.
#include "rccl_comm.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>
#include "exports.h"

namespace rocpy_host {

namespace {

struct Pending {
  std::shared_ptr<Communicator> communicator;
  Operation operation;
  hipStream_t stream;
};

struct Group {
  int depth = 0;
  ncclResult_t failure = ncclSuccess;
  std::string text;
  std::vector<Pending> pending;
  std::vector<std::function<ncclResult_t()>> jobs;
};
thread_local Group group;

// What one communicator does on one stream with a group's end.
struct Unit {
  std::shared_ptr<Communicator> communicator;
  hipStream_t stream;
  std::vector<Operation> operations;
  Stream *resolved = nullptr;
};

// The communicator's device, for as long as a null stream is resolved.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_current_device(device); }
  ~OnDevice() { set_current_device(before_); }

 private:
  int before_;
};

void note_caller(Communicator &communicator) {
  communicator.segment->caller(communicator.rank).store(thread_id(), std::memory_order_relaxed);
}

// A thread that calls for several ranks must not wait in one call for what its next call brings.
bool drives_several(Communicator &communicator) {
  Segment &segment = *communicator.segment;
  const uint64_t me = segment.caller(communicator.rank).load(std::memory_order_relaxed);
  for (int r = 0; r < communicator.count; ++r) {
    if (r != communicator.rank && segment.caller(r).load(std::memory_order_relaxed) == me) return true;
  }
  return false;
}

bool is_collective(Kind kind) {
  return kind != Kind::send && kind != Kind::recv && kind != Kind::put && kind != Kind::signal &&
         kind != Kind::wait_signal;
}

// Operands in registered memory are named so that other processes find them.
void locate(const Communicator &communicator, Operation *operation) {
  Signature &signature = operation->signature;
  const Kind kind = signature.kind;
  const size_t bytes = signature.count * bytes_of_type(signature.type);
  if (communicator.memories.registrations.empty() || bytes <= small_bytes || !is_collective(kind)) return;
  const bool is_cut = kind == Kind::reduce_scatter || kind == Kind::all_to_all || kind == Kind::scatter;
  const size_t sent = is_cut ? bytes * static_cast<size_t>(communicator.count) : bytes;
  signature.sent = communicator.memories.locate(signature.send, sent, &operation->retained);
  signature.received = communicator.memories.locate(signature.recv, bytes, &operation->retained);
}

// Whether a unit's stream takes it; of a group, before anything is launched.
ncclResult_t check(Unit &unit) {
  Communicator &communicator = *unit.communicator;
  begin_call(communicator.handle);
  const OnDevice on_device(communicator.device);
  unit.resolved = resolve(unit.stream);
  if (unit.resolved == nullptr) return refuse(ncclInvalidArgument, "stream is not a stream of this process");
  if (device_of(unit.resolved) != communicator.device) {
    return refuse(ncclInvalidArgument, "stream belongs to device " + std::to_string(device_of(unit.resolved)) +
                                           ", the communicator to device " + std::to_string(communicator.device));
  }
  if (captures_in_progress.load(std::memory_order_relaxed) != 0) {
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    if (rocpy_host_hipStreamIsCapturing(unit.stream, &status) != hipSuccess || status != hipStreamCaptureStatusNone) {
      return refuse(ncclInvalidUsage, "the host platform does not capture collectives into graphs");
    }
  }
  note_caller(communicator);
  return ncclSuccess;
}

ncclResult_t launch(Unit &unit, bool is_alone) {
  Communicator &communicator = *unit.communicator;
  Stream *stream = unit.resolved;
  begin_call(communicator.handle);
  const OnDevice on_device(communicator.device);
  const uint64_t patience = communicator.patience_ns.load();
  for (Operation &operation : unit.operations) {
    Signature &signature = operation.signature;
    signature.sequence = is_collective(signature.kind) ? ++communicator.sequence : ++communicator.transfer_count;
    operation.patience_ns = patience == 0 ? UINT64_MAX : patience;
    if (!communicator.is_one_process) locate(communicator, &operation);
  }
  const Point last = communicator.last;
  const bool is_free = last.stream == nullptr || is_done(last.stream, last.ticket);
  if (is_alone && patience != 0 && is_free && !drives_several(communicator)) {
    if (const uint64_t ticket = begin_inline(stream); ticket != 0) {
      communicator.last = {stream, ticket};
      carry_out(communicator, unit.operations);
      leave_inline(stream);
      return static_cast<ncclResult_t>(communicator.state.load());
    }
  }
  communicator.begin_work();
  try {
    // The user's peers decide when it ends, so process exit does not wait for it.
    const uint64_t ticket = enqueue_function_item(
        stream,
        [shared = unit.communicator, operations = std::move(unit.operations)]() mutable {
          carry_out(*shared, operations);
          shared->end_work();
        },
        ItemKind::external, last.stream == nullptr || last.stream == stream ? nullptr : &last);
    communicator.last = {stream, ticket};
  } catch (...) {
    communicator.end_work();
    throw;
  }
  return ncclSuccess;
}

// As RCCL does always: what nonblocking communicators were told goes to their streams in a thread of its own, later.
bool launches_later(const Communicator &communicator) { return runtime().is_stressed && !communicator.is_blocking; }

ncclResult_t launch_later(std::vector<Unit> units) {
  if (units.empty()) return ncclSuccess;
  while (!units.empty()) {
    const std::shared_ptr<Communicator> communicator = units.front().communicator;
    const auto own = std::make_shared<std::vector<Unit>>();
    const auto others = std::stable_partition(units.begin(), units.end(),
                                              [&](const Unit &unit) { return unit.communicator == communicator; });
    std::move(units.begin(), others, std::back_inserter(*own));
    units.erase(units.begin(), others);
    const auto give = [own] {
      for (Unit &unit : *own) launch(unit, false);
      return ncclSuccess;
    };
    const auto later = [communicator, give] {
      std::this_thread::sleep_for(chance_delay());
      const ncclResult_t code = rccl_call(give);
      if (code != ncclSuccess) communicator->fail({"launch", code, own_last_words(), Kind::none, 0, {}, {}});
      communicator->is_launching = false;
    };
    communicator->is_launching = true;
    try {
      communicator->background.start(later);
    } catch (...) {
      communicator->is_launching = false;
      throw;
    }
  }
  return ncclInProgress;
}

ncclResult_t launch_all(std::vector<Pending> &pending) {
  std::vector<Unit> units;
  for (Pending &one : pending) {
    Unit *unit = nullptr;
    for (Unit &known : units) {
      if (known.communicator == one.communicator && known.stream == one.stream) unit = &known;
    }
    if (unit == nullptr) {
      units.push_back({one.communicator, one.stream, {}});
      unit = &units.back();
    }
    unit->operations.push_back(std::move(one.operation));
  }
  for (Unit &unit : units) {
    const ncclResult_t code = check(unit);
    if (code == ncclSuccess) continue;
    return refuse(code, "rank " + std::to_string(unit.communicator->rank) + ": " + own_last_words());
  }
  ncclResult_t first = ncclSuccess;
  std::string text;
  std::vector<Unit> later;
  for (Unit &unit : units) {
    if (launches_later(*unit.communicator)) {
      later.push_back(std::move(unit));
      continue;
    }
    const ncclResult_t result = launch(unit, units.size() == 1);
    if (first != ncclSuccess || result == ncclSuccess) continue;
    first = result;
    text = own_last_words();
  }
  return first == ncclSuccess ? launch_later(std::move(later)) : refuse(first, text);
}

ncclResult_t run_jobs(std::vector<std::function<ncclResult_t()>> &jobs) {
  if (jobs.size() == 1) return jobs.front()();
  // Each waits for the others, so each has a thread.
  std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
  std::vector<std::string> texts(jobs.size());
  std::vector<std::thread> threads;
  threads.reserve(jobs.size());
  std::mutex mutex;
  std::condition_variable changed;
  size_t running = jobs.size();
  std::atomic<bool> is_interrupted{false};
  const auto is_stopped = [](void *flag) { return static_cast<std::atomic<bool> *>(flag)->load() ? 1 : 0; };
  try {
    for (size_t i = 0; i < jobs.size(); ++i) {
      threads.emplace_back([&, i] {
        set_interrupt(is_stopped, &is_interrupted);
        results[i] = rccl_call(jobs[i]);
        rccl_call([&] {
          texts[i] = own_last_words();
          return ncclSuccess;
        });
        std::lock_guard<std::mutex> lock(mutex);
        --running;
        changed.notify_one();
      });
    }
  } catch (...) {
    is_interrupted = true;  // those that run wait for the one that could not begin
    for (std::thread &thread : threads) thread.join();
    throw;
  }
  // What interrupts this thread ends them.
  const auto is_done = [&] {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, std::chrono::milliseconds(20), [&] { return running == 0; });
  };
  while (!is_done()) {
    if (is_thread_interrupted()) is_interrupted = true;
  }
  for (std::thread &thread : threads) thread.join();
  bool is_in_progress = false;
  for (size_t i = 0; i < jobs.size(); ++i) {
    is_in_progress = is_in_progress || results[i] == ncclInProgress;
    if (results[i] != ncclSuccess && results[i] != ncclInProgress) return refuse(results[i], texts[i]);
  }
  return is_in_progress ? ncclInProgress : ncclSuccess;
}

ncclResult_t end_group(bool is_simulated) {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  Group ended;
  std::swap(ended, group);
  if (ended.failure != ncclSuccess) return refuse(ended.failure, ended.text);
  if (is_simulated) return ncclSuccess;
  if (!ended.jobs.empty() && !ended.pending.empty()) {
    return refuse(ncclInvalidUsage, "a group either creates communicators or communicates, not both");
  }
  if (!ended.jobs.empty()) return run_jobs(ended.jobs);
  return launch_all(ended.pending);
}

}  // namespace

bool in_group() { return group.depth > 0; }

ncclResult_t submit(const std::shared_ptr<Communicator> &communicator, Operation operation, hipStream_t stream) {
  operation.number = ++communicator->submitted;
  operation.signature.description = communicator->description;
  if (in_group()) {
    group.pending.push_back({communicator, std::move(operation), stream});
    return ncclSuccess;
  }
  Unit unit{communicator, stream, {}};
  unit.operations.push_back(std::move(operation));
  const ncclResult_t code = check(unit);
  if (code != ncclSuccess) return code;
  if (launches_later(*communicator)) return launch_later({std::move(unit)});
  return launch(unit, true);
}

ncclResult_t submit_job(std::function<ncclResult_t()> job) {
  if (!in_group()) return job();
  group.jobs.push_back(std::move(job));
  return ncclSuccess;
}

ncclResult_t fail_group(ncclResult_t code) {
  if (in_group() && code != ncclSuccess && code != ncclInProgress && group.failure == ncclSuccess) {
    group.failure = code;
    group.text = own_last_words();
  }
  return code;
}

void carry_out(Communicator &communicator, std::vector<Operation> &operations) {
  communicator.runner = thread_id();
  ++communicator.running;
  std::vector<Operation *> transfers, waits;
  bool is_good = communicator.state.load() == ncclSuccess;
  if (is_good && communicator.is_aborting.load()) {
    is_good = communicator.fail({"aborted", ncclInvalidUsage, "the communicator was aborted", Kind::none, 0, {}, {}});
  }
  for (Operation &operation : operations) {
    const Kind kind = operation.signature.kind;
    if (!is_good) break;
    communicator.count_call(kind);
    if (kind == Kind::send || kind == Kind::recv) {
      transfers.push_back(&operation);
      continue;
    }
    if (kind == Kind::wait_signal) {
      waits.push_back(&operation);
      continue;
    }
    if (kind == Kind::put || kind == Kind::signal) {
      communicator.note_begin(operation.number);
      is_good = carry_out_put(communicator, operation);
      communicator.note_end(operation.number);
      continue;
    }
    communicator.show_begin(operation.signature);
    communicator.note_begin(operation.number);
    if (operation.device_scalar != nullptr) {
      std::memcpy(operation.signature.scale.bytes, operation.device_scalar, bytes_of_type(operation.signature.type));
    }
    is_good = carry_out_collective(communicator, operation);
    communicator.note_end(operation.number);
    if (is_good) communicator.show_end(operation.signature);
  }
  if (is_good && !transfers.empty()) {
    communicator.show_begin(transfers.front()->signature);
    for (const Operation *operation : transfers) communicator.note_begin(operation->number);
    is_good = carry_out_transfers(communicator, transfers);
    for (const Operation *operation : transfers) communicator.note_end(operation->number);
    if (is_good) communicator.show_end(transfers.front()->signature);
  }
  // Last of a group: what they wait for may hang on its other calls.
  for (Operation *operation : waits) {
    if (!is_good) break;
    communicator.show_begin(operation->signature);
    communicator.note_begin(operation->number);
    is_good = carry_out_wait(communicator, *operation);
    communicator.note_end(operation->number);
    if (is_good) communicator.show_end(operation->signature);
  }
  --communicator.running;
}

bool carry_out_call(Communicator &communicator, Operation *operation) {
  if (!communicator.finish_work(operation)) return false;
  communicator.count_call(operation->signature.kind);
  communicator.show_begin(operation->signature);
  if (!carry_out_collective(communicator, *operation)) return false;
  communicator.show_end(operation->signature);
  return true;
}

}  // namespace rocpy_host

using namespace rocpy_host;

ncclResult_t rocpy_host_ncclGroupStart(void) {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t rocpy_host_ncclGroupEnd(void) {
  return rccl_call([] { return end_group(false); });
}

// The group is dropped, as RCCL does; how long it would have taken nobody knows here, so the estimate stays unset.
ncclResult_t rocpy_host_ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  return rccl_call([=]() -> ncclResult_t {
    if (info != nullptr && info->magic != NCCL_SIM_INFO_MAGIC) {
      return refuse(ncclInvalidArgument, "simInfo is not initialised");
    }
    return end_group(true);
  });
}
