// SPDX-License-Identifier: MIT
// Stacks, and the switches that are not in line.
#include "context.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

#ifdef ROCPY_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef ROCPY_SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace rocpy::simt {

namespace {

#ifdef ROCPY_SIMT_ASAN
// Whom the context that is now entered was reached from: its bounds become known at that moment.
thread_local const void **left_bottom = nullptr;
thread_local std::size_t *left_bytes = nullptr;
#endif

std::size_t page_bytes() {
  static std::atomic<std::size_t> known{0};
  std::size_t bytes = known.load(std::memory_order_relaxed);
  if (bytes == 0) known.store(bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), std::memory_order_relaxed);
  return bytes;
}

}  // namespace

Context::~Context() {
#ifdef ROCPY_SIMT_TSAN
  if (owned_) __tsan_destroy_fiber(fiber_);
#endif
}

void Context::prepare(char *bottom, std::size_t bytes, std::size_t colour, void (*entry)()) {
#ifdef ROCPY_SIMT_ASAN
  __asan_unpoison_memory_region(bottom, bytes);  // a fiber that was left for good cleaned nothing up
  bottom_ = bottom;
  bytes_ = bytes;
  fake_stack_ = nullptr;
#endif
#ifdef ROCPY_SIMT_TSAN
  // A context that is prepared again leaves its last calls on the sanitizer's own stack, which has room for some
  // thousands.
  if (++prepared_ % 1024 == 1) {
    if (owned_) __tsan_destroy_fiber(fiber_);
    fiber_ = __tsan_create_fiber(0);
    owned_ = true;
  }
#endif
#ifdef ROCPY_SIMT_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = bottom;
  context_.uc_stack.ss_size = bytes - colour;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#else
  auto top = (reinterpret_cast<std::uintptr_t>(bottom) + bytes - colour) & ~std::uintptr_t{63};
  auto *word = reinterpret_cast<std::uintptr_t *>(top);
#if defined(__x86_64__)
  *--word = 0;  // where a return address would be: ends a debugger's walk, and aligns the stack as a call does
  *--word = reinterpret_cast<std::uintptr_t>(entry);
#else
  word -= 20;  // 160 bytes of registers, as the switch lays them out; x30 is the twelfth
  for (int i = 0; i < 20; ++i) word[i] = 0;
  word[11] = reinterpret_cast<std::uintptr_t>(entry);
#endif
  stack_pointer_ = word;
#endif
}

#ifndef ROCPY_SIMT_PLAIN
void Context::switch_to(Context &to, [[maybe_unused]] bool last) {
#ifdef ROCPY_SIMT_ASAN
  left_bottom = &bottom_;
  left_bytes = &bytes_;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, to.bottom_, to.bytes_);
#endif
#ifdef ROCPY_SIMT_TSAN
  if (!owned_) fiber_ = __tsan_get_current_fiber();  // a runner moves between OS threads from launch to launch
  __tsan_switch_to_fiber(to.fiber_, 0);
#endif
#ifdef ROCPY_SIMT_UCONTEXT
  swapcontext(&context_, &to.context_);
#else
  switch_stacks(&stack_pointer_, to.stack_pointer_);
#endif
#ifdef ROCPY_SIMT_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}
#endif

#ifndef ROCPY_SIMT_PLAIN
void Context::entered() {
#ifdef ROCPY_SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, left_bottom, left_bytes);
#endif
}
#endif

Stack::Stack(std::size_t bytes) {
  const std::size_t page = page_bytes();
  bytes_ = (bytes + page - 1) / page * page;
  mapped_ = bytes_ + page;
  void *mapping = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<char *>(mapping);
  mprotect(mapping_, page, PROT_NONE);
  bottom_ = mapping_ + page;
}

Stack::Stack(Stack &&other) noexcept
    : mapping_(other.mapping_), mapped_(other.mapped_), bottom_(other.bottom_), bytes_(other.bytes_) {
  other.mapping_ = nullptr;
}

Stack::~Stack() {
  if (!mapping_) return;
#ifdef ROCPY_SIMT_ASAN
  __asan_unpoison_memory_region(bottom_, bytes_);
#endif
  munmap(mapping_, mapped_);
}

}  // namespace rocpy::simt
