// SPDX-License-Identifier: MIT
// Groups of calls, and how operations come to run: in the order of their stream, from its queue, or at once where that
// is safe.
#include "rccl_comm.hpp"

#include <cstring>
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
};

// The communicator's device, for as long as a null stream is resolved.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_current_device(device); }
  ~OnDevice() { set_current_device(before_); }

 private:
  int before_;
};

// A thread that calls for several ranks must not wait in one call for what its next call brings.
bool drives_several(Communicator &communicator) {
  Segment &segment = *communicator.segment;
  const uint64_t me = thread_id();
  segment.caller(communicator.rank).store(me, std::memory_order_relaxed);
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

ncclResult_t launch(Unit &unit, bool is_alone) {
  Communicator &communicator = *unit.communicator;
  begin_call(communicator.handle);
  const OnDevice on_device(communicator.device);
  Stream *stream = resolve(unit.stream);
  if (stream == nullptr) return refuse(ncclInvalidArgument, "stream is not a stream of this process");
  if (device_of(stream) != communicator.device) {
    return refuse(ncclInvalidArgument, "stream belongs to device " + std::to_string(device_of(stream)) +
                                           ", the communicator to device " + std::to_string(communicator.device));
  }
  if (captures_in_progress.load(std::memory_order_relaxed) != 0) {
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    if (rocpy_host_hipStreamIsCapturing(unit.stream, &status) != hipSuccess || status != hipStreamCaptureStatusNone) {
      return refuse(ncclInvalidUsage, "the host platform does not capture collectives into graphs");
    }
  }
  const uint64_t patience = communicator.patience_ns.load();
  for (Operation &operation : unit.operations) {
    Signature &signature = operation.signature;
    signature.sequence = is_collective(signature.kind) ? ++communicator.sequence : ++communicator.transfer_count;
    operation.patience_ns = patience == 0 ? UINT64_MAX : patience;
    if (!communicator.is_one_process) locate(communicator, &operation);
  }
  const bool several = drives_several(communicator);
  const Point last = communicator.last;
  const bool is_free = last.stream == nullptr || is_done(last.stream, last.ticket);
  if (is_alone && patience != 0 && !several && is_free) {
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
  ncclResult_t first = ncclSuccess;
  std::string text;
  for (Unit &unit : units) {
    const ncclResult_t result = launch(unit, units.size() == 1);
    if (first != ncclSuccess || result == ncclSuccess) continue;
    first = result;
    text = own_last_words();
  }
  return first == ncclSuccess ? first : refuse(first, text);
}

ncclResult_t run_jobs(std::vector<std::function<ncclResult_t()>> &jobs) {
  if (jobs.size() == 1) return jobs.front()();
  // Each waits for the others, so each has a thread.
  std::vector<ncclResult_t> results(jobs.size(), ncclSuccess);
  std::vector<std::string> texts(jobs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < jobs.size(); ++i) {
    threads.emplace_back([&, i] {
      results[i] = rccl_call(jobs[i]);
      texts[i] = own_last_words();
    });
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
  return launch(unit, true);
}

ncclResult_t submit_job(std::function<ncclResult_t()> job) {
  if (!in_group()) return job();
  group.jobs.push_back(std::move(job));
  return ncclSuccess;
}

ncclResult_t fail_group(ncclResult_t code) {
  if (in_group() && code != ncclInvalidArgument && group.failure == ncclSuccess) {
    group.failure = code;
    group.text = own_last_words();
  }
  return code;
}

void carry_out(Communicator &communicator, std::vector<Operation> &operations) {
  ++communicator.running;
  std::vector<Operation *> transfers, waits;
  RankState &mine = communicator.self();
  const auto enter = [&](const Signature &signature) {
    mine.kind.store(signature.kind, std::memory_order_relaxed);
    mine.type.store(signature.type, std::memory_order_relaxed);
    mine.op.store(signature.op, std::memory_order_relaxed);
    mine.root.store(signature.root, std::memory_order_relaxed);
    mine.count.store(signature.count, std::memory_order_relaxed);
    mine.finished.store(signature.sequence - 1, std::memory_order_relaxed);
    mine.entered.store(signature.sequence, std::memory_order_relaxed);
  };
  const auto tally = [&](Kind kind) {
    std::atomic<uint64_t> &calls = mine.calls[static_cast<size_t>(kind)];
    calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  };
  bool is_good = communicator.state.load() == ncclSuccess;
  if (is_good && communicator.is_aborting.load()) {
    is_good = communicator.fail({"aborted", ncclInvalidUsage, "the communicator was aborted", Kind::none, 0, {}, {}});
  }
  for (Operation &operation : operations) {
    const Kind kind = operation.signature.kind;
    if (!is_good) break;
    tally(kind);
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
    enter(operation.signature);
    communicator.note_begin(operation.number);
    if (operation.device_scalar != nullptr) {
      std::memcpy(operation.signature.scale.bytes, operation.device_scalar, bytes_of_type(operation.signature.type));
    }
    is_good = carry_out_collective(communicator, operation);
    communicator.note_end(operation.number);
    if (is_good) mine.finished.store(operation.signature.sequence, std::memory_order_relaxed);
  }
  if (is_good && !transfers.empty()) {
    enter(transfers.front()->signature);
    for (const Operation *operation : transfers) communicator.note_begin(operation->number);
    is_good = carry_out_transfers(communicator, transfers);
    for (const Operation *operation : transfers) communicator.note_end(operation->number);
    if (is_good) mine.finished.store(mine.entered.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  // Last of a group: what they wait for may hang on its other calls.
  for (Operation *operation : waits) {
    if (!is_good) break;
    enter(operation->signature);
    communicator.note_begin(operation->number);
    is_good = carry_out_wait(communicator, *operation);
    communicator.note_end(operation->number);
    if (is_good) mine.finished.store(operation->signature.sequence, std::memory_order_relaxed);
  }
  --communicator.running;
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
