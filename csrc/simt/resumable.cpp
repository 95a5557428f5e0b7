// SPDX-License-Identifier: MIT
// Blocks of resumable kernels: their threads take turns on one stack, each leaving where it waits, with what it needs
// afterwards in a frame of its own.
#include "block.hpp"

namespace rocpy::simt {

void BlockRunner::make_threads() {
  if (threads_created_ < size_) {
    threads_.reset(new Thread[static_cast<std::size_t>(size_)]);
    threads_created_ = size_;
  }
  for (int32_t rank = 0; rank < size_; ++rank) describe_launch(threads_[rank].state);
  frame_stride_ = 0;
}

void *BlockRunner::frame(rocpy_simt_state *state, int64_t bytes) {
  if (frame_stride_ == 0) {  // the first thread of a launch; the others' frames are as large
    std::size_t lines = (static_cast<std::size_t>(bytes) + Scratch::line_bytes - 1) / Scratch::line_bytes;
    lines += lines % 2 == 0;  // so that frames do not compete for the same sets of the cache
    frame_stride_ = lines * Scratch::line_bytes;
    first_frame_ = reserve(frames_, state, frame_stride_ * static_cast<std::size_t>(size_), "frames");
  }
  return first_frame_ + frame_stride_ * static_cast<std::size_t>(state->rank);
}

bool BlockRunner::begin_arrive(rocpy_simt_state *state, int32_t width) {
  Group &all = group(state, width);
  if (all.exited) fail_diverged(all, std::to_string(all.exited) + " threads have left the kernel");
  if (++all.arrived == all.size) return true;
  leave_waiting(all);
  return false;
}

bool BlockRunner::begin_barrier(rocpy_simt_state *state, int32_t width) {
  Group &all = group(state, width);
  enter(all, state, false);
  if (++all.arrived < all.size - all.exited) {
    leave_waiting(all);
    return false;
  }
  free_waiting(all);
  return true;
}

void BlockRunner::leave_waiting(Group &group) {
  group.waiting.push(current_);
  left_waiting_ = true;
}

void BlockRunner::take_turns() {
  for (;;) {
    left_waiting_ = false;
    Fiber *next = ready_.head;
    if (next) {  // those who waited go on before others begin: their frames are warm
      ready_.head = next->next;
      if (!ready_.head) ready_.tail = nullptr;
      current_ = next;
      ++switches_;
      auto *frame = static_cast<Frame *>(next->state.frame);
      frame->go_on(frame);
    } else if (started_ < size_) {
      current_ = &threads_[started_];
      start_thread(*current_);
      kernel_.function(arguments_, &current_->state);
    } else {
      return;
    }
    if (!left_waiting_) finish_thread(*current_);
  }
}

}  // namespace rocpy::simt

using rocpy::simt::BlockRunner;

int32_t rocpy_simt_begin_arrive(rocpy_simt_state *state, int32_t width) {
  return BlockRunner::running->begin_arrive(state, width) ? 1 : 0;
}

int32_t rocpy_simt_begin_barrier(rocpy_simt_state *state, int32_t width) {
  return BlockRunner::running->begin_barrier(state, width) ? 1 : 0;
}

void *rocpy_simt_frame(rocpy_simt_state *state, int64_t bytes) { return BlockRunner::running->frame(state, bytes); }
