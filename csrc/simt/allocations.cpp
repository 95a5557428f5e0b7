// SPDX-License-Identifier: MIT
// Arrays that threads allocate: those of a block that fails are freed, since its other threads end where they wait.
#include <new>

#include "block.hpp"

namespace rocpy::simt {

void BlockRunner::own(void *memory, void (*release)(void *)) {
  try {
    allocated_[memory] = release;
  } catch (const std::bad_alloc &) {
    return;  // its thread frees it, if the block does not fail
  }
}

void BlockRunner::abandon_allocations() {
  if (error_) error_->abandoned.allocations.assign(allocated_.begin(), allocated_.end());
  allocated_.clear();
}

Abandoned::~Abandoned() {
  for (const auto &[memory, release] : allocations) release(memory);
}

}  // namespace rocpy::simt

using rocpy::simt::BlockRunner;

void rocpy_kernel_allocated(void *memory, void (*release)(void *)) {
  if (memory) BlockRunner::running->own(memory, release);
}

void rocpy_kernel_freed(void *memory) { BlockRunner::running->disown(memory); }
