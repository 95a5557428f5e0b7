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

#if defined(__x86_64__) && !defined(ROCPY_SIMT_UCONTEXT)
// In line: the processor keeps a stack of return addresses, which a switch that is called and returned from would leave
// out of step, so that each return after it is predicted wrongly. What is not pushed here the compiler saves itself.
inline __attribute__((always_inline)) void switch_stacks(void **save, void *load) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"  // below the red zone
      "pushq %%rbp\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%0)\n\t"
      "movq %1, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmpq *%%rax\n"
      "1:\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "cc", "memory", "xmm0",
        "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
        "xmm14", "xmm15");
}
#elif !defined(ROCPY_SIMT_UCONTEXT)
extern "C" void rocpy_simt_switch(void **save, void *load);
inline void switch_stacks(void **save, void *load) { rocpy_simt_switch(save, load); }
#endif

#if !defined(ROCPY_SIMT_UCONTEXT) && !defined(ROCPY_SIMT_ASAN) && !defined(ROCPY_SIMT_TSAN)
#define ROCPY_SIMT_PLAIN 1
#endif

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
#ifdef ROCPY_SIMT_PLAIN
  __attribute__((always_inline)) void switch_to(Context &to, bool = false) {
    switch_stacks(&stack_pointer_, to.stack_pointer_);
  }
#else
  void switch_to(Context &to, bool last = false);
#endif

  // The first act of an entry function.
#ifdef ROCPY_SIMT_PLAIN
  static void entered() {}
#else
  static void entered();
#endif

  // Asks for the memory that the next switch to this context will need.
  void fetch() const {
#ifndef ROCPY_SIMT_UCONTEXT
    const auto *frame = static_cast<const char *>(stack_pointer_);
    for (int line = 0; line < 4; ++line) __builtin_prefetch(frame + 64 * line, 1);
#endif
  }

 private:
#ifdef ROCPY_SIMT_UCONTEXT
  ucontext_t context_;
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
