// SPDX-License-Identifier: MIT
// How a rank joins a communicator: it opens the memory of all ranks, claims its own part there and waits for the
// others.
#include "rccl_comm.hpp"

#include <cstring>
#include "environment.h"
#include "thread_budget.hpp"

namespace rocpy_host {

ncclResult_t Communicator::join() {
  ncclResult_t code;
  do {
    begin_attempt();
    code = join_memory();
    end_attempt();
  } while (code == ncclInProgress);
  origin.reset();
  // Last: other threads use it from here on, and its parent for the next.
  if (code == ncclSuccess) state.store(ncclSuccess);
  return code;
}

ncclResult_t Communicator::join_memory() {
  WhyNot problem;
  const std::shared_ptr<Segment> opened = open_segment(&problem);
  if (opened == nullptr) return fail_join(problem);
  if (const ncclResult_t code = claim_rank(opened); code != ncclSuccess) return code;
  introduce_rank(opened);
  if (!wait_for_ranks()) {
    take_over_problem(*opened);
    return give_up(opened);
  }
  opened->close_entrance();
  if (const ncclResult_t code = survey_ranks(); code != ncclSuccess) return code;
  reads_processes = std::strcmp(rocpy_environment(ROCPY_RCCL_PROCESS_READS), "0") != 0;
  return ncclSuccess;
}

std::shared_ptr<Segment> Communicator::open_segment(WhyNot *problem) {
  constexpr uint64_t answer_ns = 50000000;
  while (true) {
    std::shared_ptr<Segment> opened = Segment::join(key, rank, count, answer_ns, problem);
    if (opened != nullptr || !problem->text.empty()) return opened;
    if (!is_taken_back()) continue;
    *problem = {ncclInvalidUsage, {}, "the communicator was aborted during creation"};
    return nullptr;
  }
}

ncclResult_t Communicator::claim_rank(const std::shared_ptr<Segment> &opened) {
  int its_pid = pid;
  const bool is_first = opened->claim(rank, &its_pid);
  if (take_over_problem(*opened)) return give_up(opened);
  if (!is_first) {
    const int shown = shown_rank(rank);
    const WhyNot taken{ncclInvalidUsage,
                       {shown},
                       "rank " + std::to_string(shown) + " is taken: another caller has it already (process " +
                           std::to_string(its_pid) + ", and now process " + std::to_string(pid) + ")"};
    // Once all ranks are here, they have nothing to do with one too many.
    opened->report_init_problem(taken);
    return take_over_problem(*opened) ? give_up(opened) : fail_join(taken);
  }
  if (opened->block().mark(static_cast<unsigned>(rank))) return ncclSuccess;
  return fail_join({ncclSystemError, {}, "cannot lock shared memory"});
}

void Communicator::introduce_rank(const std::shared_ptr<Segment> &opened) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    segment = opened;
  }
  opened->describe(rank == 0 ? name : "");
  RankState &mine = self();
  mine.process.store(process);
  mine.space.store(process_space());
  mine.device.store(device);
  mine.cpus.store(usable_cpus());
  mine.presence.store(Presence::present);
}

bool Communicator::wait_for_ranks() {
  Operation operation = make_operation(Kind::none);
  if (origin) operation.begin_ns = origin->begin_ns;
  Header &header = segment->header();
  bool is_good = segment->attach();
  uint64_t last_look = 0;
  const auto ready = [&] { return segment->is_complete(); };
  while (is_good && !ready()) {
    const uint32_t seen = header.attached.load();
    if (segment->block().is_maker()) {
      segment->block().serve(5000000);
    } else {
      wait_on_word(&header.attached, seen, 20000000);
    }
    if (ready()) break;
    std::vector<int> missing;
    for (int r = 0; r < count; ++r) {
      if (other(r).presence.load() != Presence::present) missing.push_back(r);
    }
    // Bindings set it once they have the communicator.
    operation.patience_ns = patience();
    is_taken_back();
    is_good = (header.attached.load() & is_void) == 0 && look_after(operation, missing, &last_look, ready);
  }
  return is_good;
}

ncclResult_t Communicator::survey_ranks() {
  is_one_process = true;
  may_spin = true;
  signals_used.assign(static_cast<size_t>(count), 0);
  for (int r = 0; r < count; ++r) {
    is_one_process = is_one_process && other(r).process.load() == process;
    may_spin = may_spin && count <= other(r).cpus.load();
    for (int s = 0; s < r; ++s) {
      if (other(r).device.load() != other(s).device.load()) continue;
      const std::vector<int> both = shown_ranks({s, r});
      return fail_join({ncclInvalidUsage, both,
                        text_of_ranks(both) + " both use device " + std::to_string(other(r).device.load()) +
                            "; each needs its own (ROCPY_HOST_DEVICES sets how many devices the host platform has)"});
    }
  }
  return ncclSuccess;
}

ncclResult_t Communicator::fail_join(const WhyNot &why) {
  fail(init_failure(why));
  return why.code;
}

bool Communicator::take_over_problem(const Segment &opened) {
  WhyNot problem;
  if (!opened.find_init_problem(&problem)) return false;
  if (!is_overtaken(problem)) fail_join(problem);
  return true;
}

ncclResult_t Communicator::give_up(const std::shared_ptr<Segment> &opened) {
  Segment::keep_for_latecomers(opened);
  return static_cast<ncclResult_t>(state.load());
}

}  // namespace rocpy_host
