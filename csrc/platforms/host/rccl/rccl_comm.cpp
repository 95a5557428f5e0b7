// SPDX-License-Identifier: MIT
// How a rank waits for the others, notices that one is gone or late, and remembers what went wrong.
#include "rccl_comm.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <unordered_map>
#include "environment.h"
#include "exports.h"
#include "lazy.h"
#include "thread_budget.hpp"

namespace rocpy_host {

namespace {

constexpr uint64_t look_interval_ns = 100000000;

struct Table {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Communicator>> communicators;
  uint64_t next = 1;
};
Table &table() {
  static rocpy::Lazy<Table> instance;
  return instance.get();
}

// A handle is a number, not an address, so that a wrong one is noticed and not followed.
constexpr uint64_t handle_kind = uint64_t{'R'} << 56;

// Asked while this thread waits; null for the platform's own threads.
thread_local rocpyExtInterrupt_t is_interrupted = nullptr;
thread_local void *interrupt_context = nullptr;

std::string seconds(uint64_t nanoseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", static_cast<double>(nanoseconds) * 1e-9);
  return text;
}

}  // namespace

void set_interrupt(rocpyExtInterrupt_t asked, void *context) {
  is_interrupted = asked;
  interrupt_context = context;
}

bool is_thread_interrupted() { return is_interrupted != nullptr && is_interrupted(interrupt_context) != 0; }

Failure init_failure(const WhyNot &why) {
  return {why.code == ncclTimeout ? "timeout" : "init", why.code, why.text, Kind::none, 0, why.ranks, {}};
}

std::shared_ptr<Communicator> find_communicator(ncclComm_t handle) {
  begin_call(handle);
  Table &all = table();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto match = all.communicators.find(reinterpret_cast<uint64_t>(handle));
  return match == all.communicators.end() ? nullptr : match->second;
}

ncclComm_t publish_communicator(const std::shared_ptr<Communicator> &communicator) {
  Table &all = table();
  std::lock_guard<std::mutex> lock(all.mutex);
  communicator->serial = static_cast<uint32_t>(all.next);
  communicator->handle = reinterpret_cast<ncclComm_t>(handle_kind | all.next++ << 4);
  all.communicators[reinterpret_cast<uint64_t>(communicator->handle)] = communicator;
  return communicator->handle;
}

void retire_communicator(ncclComm_t handle) {
  std::shared_ptr<Communicator> last_use;
  Table &all = table();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto match = all.communicators.find(reinterpret_cast<uint64_t>(handle));
  if (match == all.communicators.end()) return;
  last_use = match->second;
  all.communicators.erase(match);
}

std::shared_ptr<Communicator> usable_communicator(ncclComm_t handle, ncclResult_t *code) {
  auto communicator = find_communicator(handle);
  *code = ncclSuccess;
  if (communicator == nullptr) {
    *code = refuse(ncclInvalidArgument, "comm is not a communicator of this process, or was destroyed");
  } else if (communicator->pid != process_id()) {
    *code = refuse(ncclInvalidUsage, "the communicator was created before a fork and belongs to the parent process");
  } else if (communicator->is_revoked.load()) {
    *code =
        refuse(ncclInvalidUsage, "the communicator was revoked: others can be made from it, and it can be destroyed");
  } else if (communicator->is_aborting.load()) {
    *code = refuse(ncclInvalidUsage, "the communicator was aborted");
  } else if (const int state = communicator->state.load();
             state == ncclInProgress || (state == ncclSuccess && communicator->is_launching.load())) {
    *code = refuse(ncclInvalidArgument,
                   "the communicator is still at its last call: poll ncclCommGetAsyncError until that is over");
  } else if (state != ncclSuccess) {
    *code = refuse(static_cast<ncclResult_t>(state), communicator->failure().text);
  } else if (communicator->is_finalizing.load()) {
    *code = refuse(ncclInvalidUsage, "the communicator was finalized");
  } else if (communicator->is_suspended.load()) {
    *code = refuse(ncclInvalidUsage, "the communicator is suspended: resume it first");
  }
  return *code == ncclSuccess ? communicator : nullptr;
}

std::shared_ptr<Communicator> find_parent(ncclComm_t handle, ncclResult_t *code) {
  const auto communicator = find_communicator(handle);
  const bool is_parent = communicator != nullptr && communicator->is_revoked.load() &&
                         communicator->pid == process_id() && !communicator->is_finalizing.load();
  *code = ncclSuccess;
  return is_parent ? communicator : usable_communicator(handle, code);
}

void Background::start(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread(std::move(work));
}

void Background::wait() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (thread_.joinable()) thread_.join();
}

Background::~Background() {
  // Its own work may hold the communicator last: then it is at its end, and cannot wait for itself.
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
  wait();
}

bool Communicator::tell_failure() {
  const Failure known = failure();
  begin_call(handle);
  refuse(known.code, known.text);
  return false;
}

Failure Communicator::failure() {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

bool Communicator::fail(Failure failure) {
  ncclResult_t code;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.kind == nullptr) {
      begin_call(handle);
      refuse(failure.code, failure.text);
      failure_ = failure;
    }
    code = failure_.code;
  }
  // The others know before a caller of this rank does: then its operands are its own again.
  if (segment != nullptr && self().pid.load() == pid) withdraw();
  state.store(code);
  return false;
}

void Communicator::withdraw() {
  RankState &mine = self();
  Presence present = Presence::present;
  mine.presence.compare_exchange_strong(present, is_revoked.load()    ? Presence::revoked
                                                 : is_aborting.load() ? Presence::aborted
                                                                      : Presence::failed);
  rouse();
  // Those who read this rank's memory, or write there, notice before their next part, and are waited for until then.
  // One of another process that was stopped or killed just then is not: it notices before what it has read counts.
  const uint64_t start = now_ns();
  for (int r = 0; r < count; ++r) {
    const auto may_read = [&] {
      constexpr uint64_t longest_ns = 100000000;
      return r != rank && other(r).is_reading.load() != 0 &&
             (other(r).process.load() == process || now_ns() - start < longest_ns);
    };
    while (may_read()) yield_processor();
  }
}

Operation Communicator::make_operation(Kind kind) const {
  Operation operation;
  operation.signature.kind = kind;
  operation.patience_ns = patience();
  operation.begin_ns = now_ns();
  return operation;
}

bool Communicator::goes_on(int owner) {
  const auto is_there = [this](int r) { return r == rank || !is_gone(other(r).presence.load()); };
  if (is_aborting.load()) return false;
  if (owner >= 0) return is_there(owner);
  for (int r = 0; r < count; ++r) {
    if (!is_there(r)) return false;
  }
  return true;
}

bool Communicator::begin_reading(const Operation &operation, int owner) {
  self().is_reading.store(1);
  return goes_on(owner) || end_reading(operation, owner);
}

// Whoever gives up says so, and looks then who reads. That and this are in one order: it has seen that the reading is
// over, or it is seen here to have given up.
bool Communicator::end_reading(const Operation &operation, int owner) {
  self().is_reading.store(0);
  if (goes_on(owner)) return true;
  std::vector<int> owners;
  for (int r = 0; r < count; ++r) {
    if (r != rank && (owner < 0 || r == owner)) owners.push_back(r);
  }
  uint64_t last_look = 0;
  return look_after(operation, owners, &last_look, [] { return false; });
}

bool Communicator::can_take(const Operation &operation, int peer) {
  const RankState &state = other(peer);
  const bool is_here = is_one_process || state.process.load() == process ||
                       segment->block().is_marked_elsewhere(static_cast<unsigned>(peer));
  if (is_here && !is_gone(state.presence.load())) return true;
  uint64_t last_look = 0;
  return look_after(operation, {peer}, &last_look, [] { return false; });
}

bool Communicator::is_dead(int index) {
  RankState &state = other(index);
  const Presence presence = state.presence.load();
  if (state.pid.load() == 0 || state.has_left.load() || state.process.load() == process) return false;
  // It may have left between the two.
  return !segment->block().is_marked_elsewhere(static_cast<unsigned>(index)) && !state.has_left.load() &&
         state.presence.load() == presence;
}

int Communicator::find_dead() {
  if (is_one_process) return -1;
  for (int r = 0; r < count; ++r) {
    const Presence presence = other(r).presence.load();
    if ((presence == Presence::present || presence == Presence::finalized) && is_dead(r)) return r;
  }
  return -1;
}

int Communicator::find_gone(std::vector<int> *missing, Needed needed) {
  std::vector<int> gone;
  for (int r = 0; r < count; ++r) {
    const bool is_needed = needed == Needed::all || std::find(missing->begin(), missing->end(), r) != missing->end();
    if (r != rank && is_needed && is_gone(other(r).presence.load())) gone.push_back(r);
  }
  if (gone.empty()) return -1;
  if (needed == Needed::all) *missing = missing_at_step();  // where one of them arrived last, that is seen now
  const auto first = std::find_first_of(gone.begin(), gone.end(), missing->begin(), missing->end());
  return first == gone.end() ? gone.front() : *first;
}

int Communicator::cause_of(int index) {
  for (int i = 0; i < count; ++i) {
    const int cause = other(index).cause.load() - 1;
    if (cause < 0) break;
    index = cause;
  }
  return index;
}

std::vector<int> Communicator::missing_at_step() {
  std::vector<int> missing;
  for (int r = 0; r < count; ++r) {
    if (static_cast<int32_t>(other(r).step.word.load() - step) < 0) missing.push_back(r);
  }
  return missing;
}

// What an operation is, for people.
std::string Communicator::name_of_operation(const Operation &operation) {
  const auto numbered = [](Kind kind, uint64_t number) {
    return std::string(name_of(kind)) + (number == 0 ? "" : " number " + std::to_string(number));
  };
  const Signature &signature = operation.signature;
  if (signature.kind == Kind::none) return origin ? name_of(origin->call) : "init";
  std::string text = numbered(shown_kind(signature), signature.sequence);
  if (!operation.is_behind) return text;
  const uint64_t entered = self().entered.load(std::memory_order_relaxed);
  const bool is_busy = entered > self().finished.load(std::memory_order_relaxed);
  return text + " (behind " + (is_busy ? numbered(self().kind.load(), entered) : "work that has not begun") + ")";
}

bool Communicator::look_after(const Operation &operation, std::vector<int> missing, uint64_t *last_look,
                              const std::function<bool()> &ready, Needed needed) {
  // Another thread of this rank has given up, and with it whatever waits.
  if (const int now = state.load(); now != ncclSuccess && now != ncclInProgress) return tell_failure();
  const Signature &signature = operation.signature;
  const std::string where = name_of_operation(operation);
  Failure cause{"remote", ncclRemoteError, "", shown_kind(signature), signature.sequence, {}, {}};
  if (is_aborting.load()) {
    cause.kind = is_revoked.load() ? "revoked" : "aborted";
    cause.code = ncclInvalidUsage;
    cause.text = std::string("the communicator was ") + cause.kind + " in " + where;
    return fail(cause);
  }
  if (is_thread_interrupted()) {
    cause.kind = "aborted";
    cause.code = ncclInvalidUsage;
    cause.text = "the program was interrupted in " + where;
    return fail(cause);
  }
  const uint64_t now = now_ns();
  // Looked at once: who gives up a moment later may do so because of one that died, which is looked for before.
  const int gone = find_gone(&missing, needed);
  if (gone >= 0 || now - *last_look > look_interval_ns) {
    *last_look = now;
    const int dead = find_dead();
    if (dead >= 0) {
      if (ready()) return true;
      cause.ranks = {shown_rank(dead)};
      cause.text = text_of_ranks(cause.ranks) + " (process " + std::to_string(other(dead).pid.load()) +
                   ") is dead; this rank waits in " + where;
      self().cause = 1 + dead;
      return signature.kind == Kind::none ? fail_init(&cause, ready) : fail(cause);
    }
  }
  if (origin && !look_at_origin(operation, missing, ready)) return false;
  if (gone >= 0 && ready()) return true;
  int r = gone;
  if (gone >= 0 && needed == Needed::all) {
    const int before = cause_of(gone);
    const bool is_missing = std::find(missing.begin(), missing.end(), gone) != missing.end();
    if (!is_missing || is_gone(other(before).presence.load())) r = before;
  }
  // A rank that is only late is missed by all others: none waits longer than the first of them that gave up.
  const bool is_only_late = r >= 0 && !is_gone(other(r).presence.load());
  if (r >= 0 && !is_only_late) {
    const Presence presence = other(r).presence.load();
    cause.ranks = {shown_rank(r)};
    cause.text = text_of_ranks(cause.ranks) + name_of_leaving(presence) + "; this rank waits for it in " + where;
    self().cause = 1 + r;
    return signature.kind == Kind::none ? fail_init(&cause, ready) : fail(cause);
  }
  if (now < operation.deadline_ns() && !is_only_late) return true;
  cause.kind = "timeout";
  cause.code = ncclTimeout;
  cause.ranks = shown_ranks(missing);
  cause.text = "timeout after " + seconds(std::min(operation.patience_ns, now - operation.begin_ns)) + " in " + where;
  if (is_only_late) cause.text += ", when " + text_of_ranks({shown_rank(gone)}) + " gave up";
  if (!missing.empty()) cause.text += ": waiting for " + text_of_ranks(cause.ranks);
  if (!missing.empty()) self().cause = 1 + missing.front();
  bool has_absent = false;
  for (int late : missing) {
    has_absent = has_absent || (other(late).pid.load() == 0 && (!origin || origin->is_newcomer(late)));
    cause.text += "; " + deed_of(late);
  }
  if (signature.kind == Kind::none) {
    if (has_absent) {
      cause.text +=
          " (ranks on other machines, or in containers with networks of their own, cannot join: they share no memory)";
    }
    return fail_init(&cause, ready);
  }
  return fail(cause);
}

bool Communicator::fail_init(Failure *cause, const std::function<bool()> &ready) {
  segment->report_init_problem({cause->code, cause->ranks, cause->text});
  if (ready()) return true;
  WhyNot known;
  if (!segment->find_init_problem(&known)) return fail(*cause);
  return !is_overtaken(known) && fail(init_failure(known));
}

void Communicator::arrive() {
  RankState &mine = self();
  mine.step.word.store(++step);
  if (may_spin) return announce(mine.step);
  Header &header = segment->header();
  if (header.arrived.fetch_add(1) + 1 != step * static_cast<uint32_t>(count)) return;
  header.released.word.store(step);
  announce(header.released);
}

bool Communicator::is_last_to_arrive() {
  for (int r = 0; r < count; ++r) {
    if (r != rank && static_cast<int32_t>(other(r).step.word.load() - step) <= 0) return false;
  }
  return true;
}

void Communicator::rouse() {
  announce(self().step);
  announce(segment->header().released);
  for (int r = 0; r < count; ++r) announce(other(r).bell);
}

bool Communicator::wait_for_step(const Operation &operation) {
  const auto missing = [this] { return missing_at_step(); };
  const auto has_come = [this](const Bell &bell) {
    return static_cast<int32_t>(bell.word.load(std::memory_order_acquire) - step) >= 0;
  };
  if (!may_spin) {
    Bell &released = segment->header().released;
    const auto ready = [&] { return has_come(released); };
    return ready() || wait(released, operation, ready, missing, Needed::all);
  }
  for (int i = 1; i < count; ++i) {
    Bell &bell = other((rank + i) % count).step;
    const auto ready = [&] { return has_come(bell); };
    if (!ready() && !wait(bell, operation, ready, missing, Needed::all)) return false;
  }
  return true;
}

bool Communicator::rendezvous(const Operation &operation) {
  arrive();
  return wait_for_step(operation);
}

void Communicator::begin_work() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++outstanding_;
}

void Communicator::end_work() {
  std::lock_guard<std::mutex> lock(mutex_);
  --outstanding_;
  changed_.notify_all();
}

void Communicator::wait_for_running() {
  while (running.load() != 0 && runner.load() != thread_id()) yield_processor();
}

void Communicator::wait_for_work() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return outstanding_ == 0; });
}

bool Communicator::finish_work(Operation *operation) {
  const int before = state.load();  // of a revoked one too its work has an end
  const auto is_done = [this] {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(20), [this] { return outstanding_ == 0; });
  };
  uint64_t last_look = 0;
  operation->is_behind = true;
  while (!is_done()) {
    if (!look_after(*operation, awaited(), &last_look, is_done)) return false;
  }
  operation->is_behind = false;
  return state.load() == before;
}

void Communicator::note_awaited(const std::vector<int> &ranks) {
  std::lock_guard<std::mutex> lock(mutex_);
  awaited_ = ranks;
}

std::vector<int> Communicator::awaited() {
  std::lock_guard<std::mutex> lock(mutex_);
  return awaited_;
}

ncclResult_t Communicator::async_error() {
  const int now = state.load();
  if (now == ncclSuccess && is_launching.load()) return ncclInProgress;
  if (now != ncclSuccess || !is_finalizing.load()) return static_cast<ncclResult_t>(now);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (outstanding_ != 0) return ncclInProgress;
  }
  // Taken before the dead are looked for, as in look_after.
  std::vector<int> waited_for, failed;
  for (int r = 0; r < count; ++r) {
    const Presence presence = other(r).presence.load();
    if (presence == Presence::finalized || presence == Presence::left) continue;
    waited_for.push_back(r);
    if (is_failed(presence)) failed.push_back(r);
  }
  if (waited_for.empty()) return ncclSuccess;
  const int dead = find_dead();
  const bool is_dead = std::find(waited_for.begin(), waited_for.end(), dead) != waited_for.end();
  if (!is_dead && failed.empty()) return ncclInProgress;
  const int r = is_dead ? dead : failed.front();
  fail({"remote",
        ncclRemoteError,
        text_of_ranks({r}) + (is_dead ? " is dead" : " has given up") + "; finalize waits for it",
        Kind::none,
        0,
        {r},
        {}});
  return ncclRemoteError;
}

}  // namespace rocpy_host

ncclResult_t rocpy_host_rocpyExtThreadSetInterrupt(rocpyExtInterrupt_t asked, void *context) {
  rocpy_host::set_interrupt(asked, context);
  return ncclSuccess;
}
