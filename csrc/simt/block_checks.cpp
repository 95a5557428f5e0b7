// SPDX-License-Identifier: MIT
// What debug mode looks at in a block: accesses to shared memory and to arrays, what is stored, barriers left out.
#include <memory>
#include <string>

#include "block.hpp"

namespace rocpy::simt {

void BlockRunner::access(rocpy_simt_state *state, const void *address, int64_t bytes, int32_t kind) {
  const auto *byte = static_cast<const char *>(address);
  if (byte < arena_ || byte >= arena_ + arena_bytes_) {
    if (arrays_) access_array(state, address, bytes, kind);
    return;
  }
  if (kind == ROCPY_SIMT_WRITE_SAME) kind = ROCPY_SIMT_WRITE;
  const Conflict conflict =
      check_.note(static_cast<std::size_t>(byte - arena_), static_cast<std::size_t>(bytes), kind, moment(state));
  if (conflict.kind == Conflict::unwritten && !pending_) {
    // If another thread writes it before the next barrier it is a race: that is known at the block's end.
    pending_ = describe(Fault::uninitialised, state, "shared memory is read that no thread has written");
  }
  if (conflict.kind == Conflict::race) {
    const char *what = kind == ROCPY_SIMT_READ
                           ? "reads what the other writes"
                           : (conflict.both_write ? "writes what the other writes" : "writes what the other reads");
    fail(Fault::race, state, what, conflict.other.site, &indices_[conflict.other.thread()]);
  }
}

Moment BlockRunner::moment(const rocpy_simt_state *state) const {
  Moment now;
  now.access.site = state->site;
  now.access.barriers = barriers_;
  now.access.block = static_cast<uint32_t>(block_rank_);
  now.access.thread_after = static_cast<uint16_t>(state->rank + 1);
  for (uint32_t rest = levels_used_; rest; rest &= rest - 1) {
    const Level &level = levels_[__builtin_ctz(rest)];
    const Group &own = level.groups[level.width == 0 ? 0 : state->rank / level.width];
    now.passed(group_level(level.width), own.last_barrier);
  }
  return now;
}

void BlockRunner::access_array(rocpy_simt_state *state, const void *address, int64_t bytes, int32_t kind) {
  const GlobalConflict conflict = arrays_->note(address, static_cast<std::size_t>(bytes), kind, moment(state));
  if (conflict.kind == GlobalConflict::none) return;
  const char *what = conflict.kind == GlobalConflict::reads_written ? "reads what the other writes"
                     : conflict.kind == GlobalConflict::writes_both ? "writes what the other writes"
                                                                    : "writes what the other reads";
  error_ = describe(Fault::global_race, state, what);
  error_->has_other = true;
  error_->other_block = block_index(conflict.block);
  error_->other_thread = indices_[conflict.thread];
  error_->other_site = conflict.site ? conflict.site : "";
  drop_fibers();
}

void BlockRunner::stored(rocpy_simt_state *state, const void *address, uint64_t bits, int32_t bytes) {
  const bool poison = bytes == 4 ? bits == ROCPY_SIMT_POISON_FLOAT32 || bits == ROCPY_SIMT_POISON_INT32
                                 : bits == ROCPY_SIMT_POISON_FLOAT64 || bits == ROCPY_SIMT_POISON_INT64;
  if (!state->undefined && !(poison && poisoned_)) return;
  // In memory of the block or of a thread it may be overwritten before it is used.
  if (!arrays_ || !arrays_->has(address)) return;
  fail(Fault::uninitialised, state, "a result is stored that the collective leaves undefined in this thread");
}

void BlockRunner::note_skipped(const Group &group) {
  warning_ = std::make_unique<Error>();
  warning_->fault = Fault::skipped;
  warning_->block_rank = block_rank_;
  warning_->block = block_;
  warning_->thread = group.thread;
  warning_->site = group.site ? group.site : "";
  warning_->detail = std::to_string(group.exited) + " of the " + std::to_string(group.size) + " threads";
}

}  // namespace rocpy::simt
