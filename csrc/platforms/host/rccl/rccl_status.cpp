// SPDX-License-Identifier: MIT
// What a communicator tells about itself and its ranks, as JSON, and of its calls: when they ran.
#include "rccl_comm.hpp"

#include <cstdio>
#include <cstring>
#include "exports.h"

namespace rocpy_host {

namespace {

std::string quoted(const std::string &text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(c));
      result += code;
    } else {
      result += c;
    }
  }
  return result + '"';
}

template <class List, class Show>
std::string list_of(const List &list, Show show) {
  std::string text = "[";
  for (const auto &element : list) text += (text.size() > 1 ? "," : "") + show(element);
  return text + "]";
}

std::string of_failure(const Failure &failure) {
  if (failure.kind == nullptr) return "null";
  return "{\"kind\":" + quoted(failure.kind) + ",\"code\":" + std::to_string(static_cast<int>(failure.code)) +
         ",\"text\":" + quoted(failure.text) + ",\"op\":" + quoted(name_of(failure.operation)) +
         ",\"seq\":" + std::to_string(failure.sequence) +
         ",\"ranks\":" + list_of(failure.ranks, [](int rank) { return std::to_string(rank); }) +
         ",\"signatures\":" + list_of(failure.signatures, quoted) + "}";
}

std::string of_rank(Segment &segment, int rank, uint64_t own_process) {
  RankState &state = segment.rank(rank);
  const int pid = state.pid.load();
  const uint64_t entered = state.entered.load(), finished = state.finished.load();
  const bool is_busy = entered > finished;
  std::string process = "null";
  if (pid != 0) {
    const bool is_ours = state.process.load() == own_process;
    const bool is_alive = is_ours || segment.block().is_marked_elsewhere(static_cast<unsigned>(rank));
    const char now = is_ours || state.space.load() != process_space() ? 'R' : process_state(pid);
    process = is_alive ? now == 'T' ? "\"stopped\"" : "\"alive\"" : "\"dead\"";
  }
  std::string calls;
  for (size_t kind = 1; kind < kind_count; ++kind) {
    const uint64_t count = state.calls[kind].load(std::memory_order_relaxed);
    if (count == 0) continue;
    calls += (calls.empty() ? "" : ",") + quoted(name_of(static_cast<Kind>(kind))) + ":" + std::to_string(count);
  }
  return "{\"rank\":" + std::to_string(rank) + ",\"pid\":" + std::to_string(pid) + ",\"process\":" + process +
         ",\"device\":" + std::to_string(state.device.load()) + ",\"state\":" + quoted(name_of(state.presence.load())) +
         ",\"op\":" + quoted(name_of(state.kind.load())) + ",\"seq\":" + std::to_string(entered) +
         ",\"busy\":" + (is_busy ? "true" : "false") + ",\"count\":" + std::to_string(state.count.load()) +
         ",\"dtype\":" + quoted(name_of_type(state.type.load())) +
         ",\"step\":" + std::to_string(state.step.word.load()) + ",\"calls\":{" + calls + "}}";
}

std::string of_ranks(Segment &segment, uint64_t own_process) {
  std::string text = "[";
  for (int r = 0; r < segment.rank_count(); ++r) text += (r == 0 ? "" : ",") + of_rank(segment, r, own_process);
  return text + "]";
}

std::string describe(Communicator &communicator) {
  const int state = communicator.state.load();
  const char *shown = state == ncclInProgress             ? "initializing"
                      : communicator.is_revoked.load()    ? "revoked"
                      : communicator.is_aborting.load()   ? "aborted"
                      : state != ncclSuccess              ? "failed"
                      : communicator.is_finalizing.load() ? "finalized"
                                                          : "ready";
  const auto segment = communicator.joined();
  const std::string ranks = segment == nullptr ? "[]" : of_ranks(*segment, communicator.process);
  return "{\"name\":" + quoted(communicator.name) + ",\"rank\":" + std::to_string(communicator.rank) +
         ",\"nranks\":" + std::to_string(communicator.count) + ",\"device\":" + std::to_string(communicator.device) +
         ",\"state\":" + quoted(shown) + ",\"failure\":" + of_failure(communicator.failure()) +
         ",\"waiting_for\":" + list_of(communicator.awaited(), [](int rank) { return std::to_string(rank); }) +
         ",\"ranks\":" + ranks + "}";
}

std::string describe_machine() {
  std::string text = "[";
  visit_blocks_of_others([&](std::unique_ptr<SharedBlock> block) {
    const auto segment = Segment::view(std::move(block));
    if (segment == nullptr) return;
    char name[sizeof Header::name];
    std::memcpy(name, segment->header().name, sizeof name);
    name[sizeof name - 1] = '\0';
    text += text.size() > 1 ? "," : "";
    text += "{\"name\":" + quoted(name) + ",\"nranks\":" + std::to_string(segment->rank_count()) +
            ",\"ranks\":" + of_ranks(*segment, 0) + "}";
  });
  return text + "]";
}

void give(const std::string &text, char *json, size_t capacity, size_t *needed) {
  *needed = text.size() + 1;
  if (json != nullptr && capacity != 0) std::snprintf(json, capacity, "%s", text.c_str());
}

}  // namespace

void Communicator::show_begin(const Signature &signature) {
  RankState &mine = self();
  mine.kind.store(shown_kind(signature), std::memory_order_relaxed);
  mine.type.store(signature.type, std::memory_order_relaxed);
  mine.op.store(signature.op, std::memory_order_relaxed);
  mine.root.store(signature.root, std::memory_order_relaxed);
  mine.count.store(signature.count, std::memory_order_relaxed);
  mine.finished.store(signature.sequence - 1, std::memory_order_relaxed);
  mine.entered.store(signature.sequence, std::memory_order_relaxed);
}

void Communicator::show_end(const Signature &signature) {
  self().finished.store(signature.sequence, std::memory_order_relaxed);
}

void Communicator::count_call(Kind kind) {
  std::atomic<uint64_t> &calls = self().calls[static_cast<size_t>(kind)];
  calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

uint64_t Communicator::note_begin(uint64_t number) {
  Timing &timing = timings[number % timing_count];
  // Nobody takes the times of one call for those of another.
  timing.number.store(0);
  timing.end.store(0);
  const uint64_t now = now_ns();
  timing.begin.store(now);
  timing.number.store(number);
  return now;
}

void Communicator::note_end(uint64_t number) { timings[number % timing_count].end.store(now_ns()); }

}  // namespace rocpy_host

using namespace rocpy_host;

ncclResult_t rocpy_host_rocpyExtCommStatus(ncclComm_t comm, char *json, size_t capacity, size_t *needed) {
  return rccl_call([=] {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr || needed == nullptr) {
      return refuse(ncclInvalidArgument, "comm is not a communicator, or needed is NULL");
    }
    give(describe(*communicator), json, capacity, needed);
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_rocpyExtMachineStatus(char *json, size_t capacity, size_t *needed) {
  return rccl_call([=] {
    if (needed == nullptr) return refuse(ncclInvalidArgument, "needed is NULL");
    give(describe_machine(), json, capacity, needed);
    return ncclSuccess;
  });
}

ncclResult_t rocpy_host_rocpyExtCommTimes(ncclComm_t comm, uint64_t number, uint64_t *begin_ns, uint64_t *end_ns) {
  return rccl_call([=] {
    const auto communicator = find_communicator(comm);
    if (communicator == nullptr || begin_ns == nullptr || end_ns == nullptr) {
      return refuse(ncclInvalidArgument, "comm is not a communicator, or the result's address is NULL");
    }
    const Timing &timing = communicator->timings[number % Communicator::timing_count];
    const bool was_it = number != 0 && timing.number.load() == number;
    const uint64_t begin = timing.begin.load(), end = timing.end.load();
    const bool is_it = was_it && timing.number.load() == number;
    *begin_ns = is_it ? begin : 0;
    *end_ns = is_it ? end : 0;
    return ncclSuccess;
  });
}
