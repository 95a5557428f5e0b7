// SPDX-License-Identifier: MIT
// A stack of one's own and the switch between two of them; the sanitizers are told of each.
#pragma once

#include <cstddef>

// ROCPY_SIMT_UCONTEXT forces the portable form, which takes a system call at each switch.
#if !defined(ROCPY_SIMT_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define ROCPY_SIMT_UCONTEXT 1
#endif

#ifdef ROCPY_SIMT_UCONTEXT
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define ROCPY_SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROCPY_SIMT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define ROCPY_SIMT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ROCPY_SIMT_TSAN 1
#endif
#endif

namespace rocpy::simt {

// One flow of control. A default-made one stands for the OS thread's own stack.
class Context {
 public:
  Context() = default;
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;
  ~Context();

  // Lets the next switch to this context call `entry` on an empty stack; `entry` must not return.
  void prepare(char *bottom, std::size_t bytes, std::size_t colour, void (*entry)());

  // Goes on where `to` left off. `last`: this context is never resumed, though it may be prepared again.
  void switch_to(Context &to, bool last = false);

  // The first act of an entry function.
  static void entered();

 private:
#ifdef ROCPY_SIMT_UCONTEXT
  ucontext_t place_;
#else
  void *stack_pointer_ = nullptr;
#endif
#ifdef ROCPY_SIMT_ASAN
  const void *bottom_ = nullptr;
  std::size_t bytes_ = 0;
  void *fake_stack_ = nullptr;
#endif
#ifdef ROCPY_SIMT_TSAN
  void *fiber_ = nullptr;
  bool owned_ = false;
  unsigned prepared_ = 0;
#endif
};

// Memory for one fiber, with a page below it that no one may touch; only what is used is ever backed by memory.
class Stack {
 public:
  explicit Stack(std::size_t bytes);
  Stack(Stack &&other) noexcept;
  Stack &operator=(Stack &&) = delete;
  ~Stack();

  char *bottom() const { return bottom_; }
  std::size_t bytes() const { return bytes_; }

 private:
  char *mapping_;
  std::size_t mapped_;
  char *bottom_;
  std::size_t bytes_;
};

}  // namespace rocpy::simt
