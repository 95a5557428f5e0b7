// SPDX-License-Identifier: MIT
// Groups of calls, and how operations come to run: in the order of their stream, from its queue, or at once where that
// is safe.
#include "rccl_comm.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <iterator>
#include <memory>
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
  std::vector<Job> jobs;
};
thread_local Group group;

// What one communicator does with a group's end. It waits for all streams that its calls name, and they for it.
struct Unit {
  std::shared_ptr<Communicator> communicator;
  std::vector<Operation> operations;
  Stream *stream = nullptr;        // of its first call
  std::vector<Stream *> others{};  // each once
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

// A call becomes part of a unit, if its stream takes it; of a group all do, before anything is launched.
ncclResult_t add_call(Unit *unit, Operation operation, hipStream_t handle) {
  Communicator &communicator = *unit->communicator;
  begin_call(communicator.handle);
  const OnDevice on_device(communicator.device);
  Stream *stream = resolve(handle);
  if (stream == nullptr) return refuse(ncclInvalidArgument, "stream is not a stream of this process");
  if (device_of(stream) != communicator.device) {
    return refuse(ncclInvalidArgument, "stream belongs to device " + std::to_string(device_of(stream)) +
                                           ", the communicator to device " + std::to_string(communicator.device));
  }
  if (captures_in_progress.load(std::memory_order_relaxed) != 0) {
    hipStreamCaptureStatus status = hipStreamCaptureStatusNone;
    if (rocpy_host_hipStreamIsCapturing(handle, &status) != hipSuccess || status != hipStreamCaptureStatusNone) {
      return refuse(ncclInvalidUsage, "the host platform does not capture collectives into graphs");
    }
  }
  note_caller(communicator);
  auto &others = unit->others;
  if (unit->stream == nullptr) unit->stream = stream;
  if (unit->stream != stream && std::find(others.begin(), others.end(), stream) == others.end()) {
    others.push_back(stream);
  }
  unit->operations.push_back(std::move(operation));
  return ncclSuccess;
}

bool is_awaited(const Unit &unit) {
  return std::all_of(unit.operations.begin(), unit.operations.end(),
                     [](const Operation &operation) { return operation.is_awaited; });
}

// Whether the calling thread may carry out a unit that nothing is before: where a call may wait there, or need not wait
// for what another call is to bring. A nonblocking communicator's calls only pass it on.
bool may_run_here(Communicator &communicator, const Unit &unit) {
  if (!unit.others.empty()) return false;
  if (is_awaited(unit)) return !drives_several(communicator);
  const bool is_one = unit.operations.size() == 1 && is_collective(unit.operations.front().signature.kind);
  return communicator.is_blocking && is_one && communicator.is_last_to_arrive();
}

// Gives a unit to its first stream, between points that order the others before and after it.
void enqueue_unit(Unit &unit, const Point &last) {
  constexpr auto nothing = [] {};
  Communicator &communicator = *unit.communicator;
  for (Stream *other : unit.others) {
    const Point before{other, enqueue_function_item(other, nothing, ItemKind::mark, nullptr)};
    enqueue_function_item(unit.stream, nothing, ItemKind::mark, &before);
  }
  Point end{unit.stream, 0};
  communicator.begin_work();
  try {
    // The user's peers decide when it ends, so process exit does not wait for it.
    end.ticket = enqueue_function_item(
        unit.stream,
        [shared = unit.communicator, operations = std::move(unit.operations)]() mutable {
          carry_out(*shared, operations);
          shared->end_work();
        },
        ItemKind::external, last.stream == nullptr || last.stream == unit.stream ? nullptr : &last);
  } catch (...) {
    communicator.end_work();
    throw;
  }
  communicator.last = end;
  for (Stream *other : unit.others) enqueue_function_item(other, nothing, ItemKind::mark, &end);
}

ncclResult_t launch(Unit &unit, bool is_alone) {
  Communicator &communicator = *unit.communicator;
  begin_call(communicator.handle);
  const OnDevice on_device(communicator.device);
  for (Operation &operation : unit.operations) {
    Signature &signature = operation.signature;
    signature.sequence = is_collective(signature.kind) ? ++communicator.sequence : ++communicator.transfer_count;
    if (!communicator.is_one_process) locate(communicator, &operation);
  }
  const Point last = communicator.last;
  const bool is_free = last.stream == nullptr || is_done(last.stream, last.ticket);
  if (is_alone && is_free && may_run_here(communicator, unit)) {
    if (const uint64_t ticket = begin_inline(unit.stream); ticket != 0) {
      communicator.last = {unit.stream, ticket};
      carry_out(communicator, unit.operations);
      leave_inline(unit.stream);
      // Who does not wait in calls asks for what they came to.
      return is_awaited(unit) ? static_cast<ncclResult_t>(communicator.state.load()) : ncclSuccess;
    }
  }
  enqueue_unit(unit, last);
  return ncclSuccess;
}

// As RCCL does always: what nonblocking communicators were told goes to their streams in a thread of its own, later.
bool launches_later(const Communicator &communicator) { return runtime().is_stressed && !communicator.is_blocking; }

// The units of a group go to their streams in the group's order, each after what `before` stands for and before it
// stands for the unit: communicators that share streams would wait for each other in two orders.
ncclResult_t launch_later(Unit unit, std::shared_future<void> *before) {
  const auto shared = std::make_shared<Unit>(std::move(unit));
  const auto launched = std::make_shared<std::promise<void>>();
  Communicator &communicator = *shared->communicator;
  communicator.is_launching = true;
  try {
    communicator.background.start([shared, launched, last = *before, &communicator] {
      std::this_thread::sleep_for(chance_delay());
      if (last.valid()) last.wait();
      const ncclResult_t code = rccl_call([&] { return launch(*shared, false); });
      if (code != ncclSuccess) communicator.fail({"launch", code, own_last_words(), Kind::none, 0, {}, {}});
      launched->set_value();
      communicator.is_launching = false;
    });
    *before = launched->get_future().share();
  } catch (...) {
    communicator.is_launching = false;
    throw;
  }
  return ncclInProgress;
}

ncclResult_t launch_all(std::vector<Pending> &pending) {
  std::vector<Unit> units;
  for (Pending &one : pending) {
    const auto is_its = [&](const Unit &unit) { return unit.communicator == one.communicator; };
    auto unit = std::find_if(units.begin(), units.end(), is_its);
    if (unit == units.end()) unit = units.insert(unit, Unit{one.communicator, {}});
    const ncclResult_t code = add_call(&*unit, std::move(one.operation), one.stream);
    if (code == ncclSuccess) continue;
    return refuse(code, "rank " + std::to_string(one.communicator->rank) + ": " + own_last_words());
  }
  ncclResult_t first = ncclSuccess;
  std::string text;
  std::shared_future<void> before;
  for (Unit &unit : units) {
    const bool is_later = launches_later(*unit.communicator);
    const ncclResult_t result = is_later ? launch_later(std::move(unit), &before) : launch(unit, units.size() == 1);
    if (first != ncclSuccess || result == ncclSuccess) continue;
    first = result;
    text = own_last_words();
  }
  return first == ncclSuccess || first == ncclInProgress ? first : refuse(first, text);
}

// What a job came to.
struct Outcome {
  ncclResult_t code = ncclSuccess;
  std::string text;
};

Outcome run_job(const Job &job) {
  Outcome outcome;
  outcome.code = rccl_call(job.run);
  rccl_call([&] {
    outcome.text = own_last_words();
    return ncclSuccess;
  });
  return outcome;
}

// Jobs that may go on at the same time, each list in its order. Those of one communicator are one list: its ranks know
// by the order of their calls which of them belong together.
std::vector<std::vector<size_t>> find_lists(const std::vector<Job> &jobs) {
  std::vector<std::vector<size_t>> lists;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto is_its = [&](const std::vector<size_t> &list) {
      return jobs[i].parent != nullptr && jobs[list.front()].parent == jobs[i].parent;
    };
    auto list = std::find_if(lists.begin(), lists.end(), is_its);
    if (list == lists.end()) list = lists.emplace(list);
    list->push_back(i);
  }
  return lists;
}

ncclResult_t run_jobs(const std::vector<Job> &jobs) {
  if (jobs.size() == 1) return jobs.front().run();
  // Each list waits for the others, so each has a thread.
  const std::vector<std::vector<size_t>> lists = find_lists(jobs);
  std::vector<Outcome> outcomes(jobs.size());
  std::vector<std::thread> threads;
  threads.reserve(lists.size());
  std::mutex mutex;
  std::condition_variable changed;
  size_t running = lists.size();
  std::atomic<bool> is_interrupted{false};
  const auto is_stopped = [](void *flag) { return static_cast<std::atomic<bool> *>(flag)->load() ? 1 : 0; };
  try {
    for (const std::vector<size_t> &list : lists) {
      threads.emplace_back([&] {
        set_interrupt(is_stopped, &is_interrupted);
        for (const size_t i : list) outcomes[i] = run_job(jobs[i]);
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
  for (const auto &[code, text] : outcomes) {
    is_in_progress = is_in_progress || code == ncclInProgress;
    if (code != ncclSuccess && code != ncclInProgress) return refuse(code, text);
  }
  return is_in_progress ? ncclInProgress : ncclSuccess;
}

// The communicators that a group was to create say why there are none.
ncclResult_t drop_jobs(const std::vector<Job> &jobs, ncclResult_t code, const std::string &text) {
  for (const Job &job : jobs) {
    if (job.created != nullptr) job.created->fail({"init", code, text, Kind::none, 0, {}, {}});
  }
  begin_call();
  return refuse(code, text);
}

ncclResult_t end_group(bool is_simulated, const ncclSimInfo_t *info = nullptr) {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  Group ended;
  std::swap(ended, group);
  if (ended.failure != ncclSuccess) return drop_jobs(ended.jobs, ended.failure, ended.text);
  if (info != nullptr && info->magic != NCCL_SIM_INFO_MAGIC) {
    return drop_jobs(ended.jobs, ncclInvalidArgument, "simInfo is not initialised");
  }
  if (!ended.jobs.empty() && !ended.pending.empty()) {
    return drop_jobs(ended.jobs, ncclInvalidUsage, "a group either creates communicators or communicates, not both");
  }
  if (!ended.jobs.empty()) return run_jobs(ended.jobs);
  return is_simulated ? ncclSuccess : launch_all(ended.pending);
}

}  // namespace

bool in_group() { return group.depth > 0; }

ncclResult_t submit(const std::shared_ptr<Communicator> &communicator, Operation operation, hipStream_t stream) {
  operation.number = ++communicator->submitted;
  operation.is_awaited = communicator->patience_ns.load() != 0;
  operation.patience_ns = communicator->patience();
  operation.signature.description = communicator->description;
  if (in_group()) {
    group.pending.push_back({communicator, std::move(operation), stream});
    return ncclSuccess;
  }
  Unit unit{communicator, {}, nullptr, {}};
  const ncclResult_t code = add_call(&unit, std::move(operation), stream);
  if (code != ncclSuccess) {
    --communicator->submitted;  // its caller does not count it either
    return code;
  }
  std::shared_future<void> nothing;
  return launches_later(*communicator) ? launch_later(std::move(unit), &nothing) : launch(unit, true);
}

ncclResult_t submit_job(Job job) {
  if (!in_group()) return job.run();
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
      operation.begin_ns = communicator.note_begin(operation.number);
      is_good = carry_out_put(communicator, operation);
      if (is_good) communicator.note_end(operation.number);
      continue;
    }
    communicator.show_begin(operation.signature);
    operation.begin_ns = communicator.note_begin(operation.number);
    if (operation.device_scalar != nullptr) {
      std::memcpy(operation.signature.scale.bytes, operation.device_scalar, bytes_of_type(operation.signature.type));
    }
    is_good = carry_out_collective(communicator, operation);
    if (!is_good) break;
    communicator.note_end(operation.number);
    communicator.show_end(operation.signature);
  }
  if (is_good && !transfers.empty()) {
    communicator.show_begin(transfers.front()->signature);
    for (Operation *operation : transfers) operation->begin_ns = communicator.note_begin(operation->number);
    is_good = carry_out_transfers(communicator, transfers);
    for (const Operation *operation : transfers) {
      if (is_good) communicator.note_end(operation->number);
    }
    if (is_good) communicator.show_end(transfers.front()->signature);
  }
  // Last of a group: what they wait for may hang on its other calls.
  for (Operation *operation : waits) {
    if (!is_good) break;
    communicator.show_begin(operation->signature);
    operation->begin_ns = communicator.note_begin(operation->number);
    is_good = carry_out_wait(communicator, *operation);
    if (!is_good) break;
    communicator.note_end(operation->number);
    communicator.show_end(operation->signature);
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

// What communicates is dropped, and what creates communicators is carried out, as RCCL does. How long it would have
// taken nobody knows here, so the estimate stays unset.
ncclResult_t rocpy_host_ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  return rccl_call([=] { return end_group(true, info); });
}
