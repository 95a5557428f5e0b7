// SPDX-License-Identifier: MIT
// Blocks of kernels that run all their threads themselves, and the memory that they and resumable ones ask for.
#include <new>

#include "block.hpp"

namespace rocpy::simt {

char *Scratch::reserve(std::size_t bytes) {
  if (!memory_ || bytes_ < bytes) {
    bytes_ = 0;
    memory_.reset(new (std::nothrow) char[bytes + line_bytes]);
    if (!memory_) return nullptr;
    bytes_ = bytes;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_.get());
  return memory_.get() + (line_bytes - begin % line_bytes) % line_bytes;
}

char *BlockRunner::reserve(Scratch &scratch, rocpy_simt_state *state, std::size_t bytes, const char *what) {
  char *memory = scratch.reserve(bytes);
  if (!memory) {
    fail(Fault::out_of_memory, state,
         "no memory for " + std::to_string(bytes) + " bytes of " + what + "; use smaller blocks");
  }
  return memory;
}

void BlockRunner::run_loops() {
  start_thread(*current_);
  kernel_.function(arguments_, &current_->state);
  drop_fibers();
}

void *BlockRunner::block_memory(rocpy_simt_state *state, int64_t bytes) {
  return reserve(memory_of_loops_, state, static_cast<std::size_t>(bytes), "values of the threads");
}

void *BlockRunner::block_slots(rocpy_simt_state *state, int32_t collective, int64_t bytes) {
  return reserve(slots_of_loops_[collective & 1], state,
                 static_cast<std::size_t>(bytes) * static_cast<std::size_t>(size_), "slots");
}

rocpy_simt_state *BlockRunner::stand_for(rocpy_simt_state *state, int32_t rank, const char *site) {
  state->rank = rank;
  for (int axis = 0; axis < 3; ++axis) state->thread_index[axis] = indices_[rank][axis];
  state->site = site;
  return state;
}

}  // namespace rocpy::simt

using rocpy::simt::BlockRunner;

void *rocpy_simt_block_memory(rocpy_simt_state *state, int64_t bytes) {
  return BlockRunner::running->block_memory(state, bytes);
}

void *rocpy_simt_block_slots(rocpy_simt_state *state, int32_t collective, int64_t bytes) {
  return BlockRunner::running->block_slots(state, collective, bytes);
}

void rocpy_simt_block_reserve(rocpy_simt_state *state, const char *site, const void *key, int64_t bytes) {
  rocpy_simt_shared_in(state, 0, site, key, bytes);
}

void *rocpy_simt_block_shared(rocpy_simt_state *state, const void *key, int64_t bytes) {
  return BlockRunner::running->shared(state, key, bytes);
}

void *rocpy_simt_shared_in(rocpy_simt_state *state, int32_t rank, const char *site, const void *key, int64_t bytes) {
  BlockRunner *runner = BlockRunner::running;
  return runner->shared(runner->stand_for(state, rank, site), key, bytes);
}

void rocpy_simt_raise_in(rocpy_simt_state *state, int32_t rank, const char *site, int32_t code,
                         const void *information) {
  BlockRunner *runner = BlockRunner::running;
  runner->raise(runner->stand_for(state, rank, site), code, information);
}
