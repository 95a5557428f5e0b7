// SPDX-License-Identifier: MIT
// The floating-point environment that rocpy computes in, whatever its caller's is: rounding to nearest even, subnormal
// numbers kept, exceptions masked. It belongs to a thread, and a new thread has that of the thread which made it.
#ifndef ROCPY_ABI_FP_ENVIRONMENT_H
#define ROCPY_ABI_FP_ENVIRONMENT_H

#include <cstdint>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace rocpy {

// Makes the thread's environment the default one, and puts back the caller's, status flags included. An environment
// that is the default already is only read, which takes a few nanoseconds. On x86 the x87 unit has one too: nothing is
// computed in it, but the C library's feraiseexcept, which numpy calls for casts to float16, raises overflow, underflow
// and inexact there, which ends a program by SIGFPE that has them unmasked.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept { enter(); }
  ~DefaultFpEnvironment() { leave(); }
  DefaultFpEnvironment(const DefaultFpEnvironment &) = delete;
  DefaultFpEnvironment &operator=(const DefaultFpEnvironment &) = delete;
  // For Cython, which leaves out a variable that nothing uses.
  void hold() const noexcept {}

  // Whether the calling thread's environment is the default one, whatever its status flags say.
  static bool is_set() noexcept {
#if defined(__x86_64__)
    return (read() & ~kFlags) == kDefault && x87_control() == kX87Default;
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control)::"memory");
    return control == 0;
#else
    return std::fegetround() == FE_TONEAREST;
#endif
  }

 private:
#if defined(__x86_64__)
  // Rounding in bits 13 and 14, masks in 7 to 12, "flush to zero" in 15, "subnormals are zero" in 6, flags below.
  static constexpr uint32_t kDefault = 0x1f80, kFlags = 0x3f;
  // Of the x87 unit: masks in bits 0 to 5, 64 bits of significand in 8 and 9, rounding in 10 and 11.
  static constexpr uint16_t kX87Default = 0x037f, kX87Status = 0x80ff;
  struct X87State {
    uint32_t control, status, rest[5];
  };
  static X87State read_x87() noexcept {  // as a side effect it masks all exceptions
    X87State state;
    __asm__ __volatile__("fnstenv %0" : "=m"(state)::"memory");
    return state;
  }
  static void write_x87(const X87State &state) noexcept { __asm__ __volatile__("fldenv %0" ::"m"(state) : "memory"); }
  static uint16_t x87_control() noexcept {
    uint16_t value;
    __asm__ __volatile__("fnstcw %0" : "=m"(value)::"memory");
    return value;
  }
  static uint16_t x87_flags() noexcept {
    uint16_t value;
    __asm__ __volatile__("fnstsw %0" : "=m"(value)::"memory");
    return value & kX87Status;
  }
  void enter_x87() noexcept {
    X87State state = read_x87();
    state.control = kX87Default;
    write_x87(state);
  }
  void leave_x87() const noexcept {
    X87State state = read_x87();
    state.control = control_;
    state.status = (state.status & ~uint32_t{kX87Status}) | flags_;
    write_x87(state);
  }
  static uint32_t read() noexcept {
    uint32_t value;
    __asm__ __volatile__("stmxcsr %0" : "=m"(value)::"memory");
    return value;
  }
  static void write(uint32_t value) noexcept { __asm__ __volatile__("ldmxcsr %0" ::"m"(value) : "memory"); }
  void enter() noexcept {
    saved_ = read();
    if ((saved_ & ~kFlags) != kDefault) write(kDefault);
    control_ = x87_control();
    flags_ = x87_flags();
    if (control_ != kX87Default) enter_x87();
  }
  void leave() const noexcept {
    if (read() != saved_) write(saved_);
    // Flags that stay behind would trap as soon as the caller unmasks exceptions.
    if (control_ != kX87Default || x87_flags() != flags_) leave_x87();
  }
  uint32_t saved_;
  uint16_t control_, flags_;  // of the x87 unit
#elif defined(__aarch64__)
  void enter() noexcept {
    __asm__ __volatile__("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(control_), "=r"(status_)::"memory");
    if (control_ != 0) __asm__ __volatile__("msr fpcr, %0" ::"r"(uint64_t{0}) : "memory");
  }
  void leave() const noexcept {
    if (control_ != 0) __asm__ __volatile__("msr fpcr, %0" ::"r"(control_) : "memory");
    __asm__ __volatile__("msr fpsr, %0" ::"r"(status_) : "memory");
  }
  uint64_t control_, status_;
#else
  void enter() noexcept {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  void leave() const noexcept { std::fesetenv(&saved_); }
  std::fenv_t saved_;
#endif
};

}  // namespace rocpy

#endif
