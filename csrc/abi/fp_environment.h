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
// that is the default already is only read, which takes a few nanoseconds. The x87 unit is left alone: nothing is
// computed in it.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept { enter(); }
  ~DefaultFpEnvironment() { leave(); }
  DefaultFpEnvironment(const DefaultFpEnvironment &) = delete;
  DefaultFpEnvironment &operator=(const DefaultFpEnvironment &) = delete;
  // For Cython, which leaves out a variable that nothing uses.
  void hold() const noexcept {}

 private:
#if defined(__x86_64__)
  // Rounding in bits 13 and 14, masks in 7 to 12, "flush to zero" in 15, "subnormals are zero" in 6, flags below.
  static constexpr uint32_t kDefault = 0x1f80, kFlags = 0x3f;
  static uint32_t read() noexcept {
    uint32_t value;
    __asm__ __volatile__("stmxcsr %0" : "=m"(value)::"memory");
    return value;
  }
  static void write(uint32_t value) noexcept { __asm__ __volatile__("ldmxcsr %0" ::"m"(value) : "memory"); }
  void enter() noexcept {
    saved_ = read();
    if ((saved_ & ~kFlags) != kDefault) write(kDefault);
  }
  void leave() const noexcept {
    if (read() != saved_) write(saved_);
  }
  uint32_t saved_;
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
