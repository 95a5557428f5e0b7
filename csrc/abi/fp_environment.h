// SPDX-License-Identifier: MIT
// The floating-point environment that rocpy computes in, whatever its caller's is: rounding to nearest even, subnormal
// numbers kept, exceptions masked. It belongs to a thread, and a new thread has that of the thread which made it.
#pragma once

#include <cstdint>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <cfenv>
#endif

namespace rocpy {

#if defined(__x86_64__)
// The part of the environment that vector instructions compute in: all that arithmetic needs which is compiled here.
// An environment that is the default already is only read, which takes a few nanoseconds.
class DefaultVectorEnvironment {
 public:
  DefaultVectorEnvironment() noexcept : saved_(read()) {
    if (!is_default(saved_)) write(default_word);
  }
  ~DefaultVectorEnvironment() {
    if (read() != saved_) write(saved_);
  }
  DefaultVectorEnvironment(const DefaultVectorEnvironment &) = delete;
  DefaultVectorEnvironment &operator=(const DefaultVectorEnvironment &) = delete;
  // For Cython, which leaves out a variable that nothing uses.
  void hold() const noexcept {}
  static bool is_set() noexcept { return is_default(read()); }

 private:
  // Rounding in bits 13 and 14, masks in 7 to 12, "flush to zero" in 15, "subnormals are zero" in 6, flags below.
  static constexpr uint32_t default_word = 0x1f80, flag_bits = 0x3f;
  static bool is_default(uint32_t value) noexcept { return (value & ~flag_bits) == default_word; }
  static uint32_t read() noexcept {
    uint32_t value;
    __asm__ __volatile__("stmxcsr %0" : "=m"(value)::"memory");
    return value;
  }
  static void write(uint32_t value) noexcept { __asm__ __volatile__("ldmxcsr %0" ::"m"(value) : "memory"); }
  const uint32_t saved_;
};

// The x87 unit's part. Nothing is computed in it here, but the C library's feraiseexcept, which numpy calls for casts
// to float16, raises overflow, underflow and inexact there, which ends a program by SIGFPE that has them unmasked.
class DefaultX87Environment {
 public:
  DefaultX87Environment() noexcept : control_(read_control()), flags_(read_flags()) {
    if (control_ == default_word) return;
    State state = read();
    state.control = default_word;
    write(state);
  }
  ~DefaultX87Environment() {
    // Flags that stay behind would trap as soon as the caller unmasks exceptions.
    if (control_ == default_word && read_flags() == flags_) return;
    State state = read();
    state.control = control_;
    state.status = (state.status & ~uint32_t{status_bits}) | flags_;
    write(state);
  }
  DefaultX87Environment(const DefaultX87Environment &) = delete;
  DefaultX87Environment &operator=(const DefaultX87Environment &) = delete;
  static bool is_set() noexcept { return read_control() == default_word; }

 private:
  // Masks in bits 0 to 5, 64 bits of significand in 8 and 9, rounding in 10 and 11.
  static constexpr uint16_t default_word = 0x037f, status_bits = 0x80ff;
  struct State {
    uint32_t control, status, rest[5];
  };
  static State read() noexcept {  // as a side effect it masks all exceptions
    State state;
    __asm__ __volatile__("fnstenv %0" : "=m"(state)::"memory");
    return state;
  }
  static void write(const State &state) noexcept { __asm__ __volatile__("fldenv %0" ::"m"(state) : "memory"); }
  static uint16_t read_control() noexcept {
    uint16_t value;
    __asm__ __volatile__("fnstcw %0" : "=m"(value)::"memory");
    return value;
  }
  static uint16_t read_flags() noexcept {
    uint16_t value;
    __asm__ __volatile__("fnstsw %0" : "=m"(value)::"memory");
    return value & status_bits;
  }
  const uint16_t control_, flags_;
};

// Makes the thread's environment the default one, and puts back the caller's, status flags included.
class DefaultFpEnvironment {
 public:
  void hold() const noexcept {}  // for Cython
  // Whether the calling thread's environment is the default one, whatever its status flags say.
  static bool is_set() noexcept { return DefaultVectorEnvironment::is_set() && DefaultX87Environment::is_set(); }

 private:
  DefaultVectorEnvironment vector_;
  DefaultX87Environment x87_;
};
#else
// Makes the thread's environment the default one, and puts back the caller's, status flags included.
class DefaultFpEnvironment {
 public:
  DefaultFpEnvironment() noexcept { enter(); }
  ~DefaultFpEnvironment() { leave(); }
  DefaultFpEnvironment(const DefaultFpEnvironment &) = delete;
  DefaultFpEnvironment &operator=(const DefaultFpEnvironment &) = delete;
  void hold() const noexcept {}  // for Cython, which leaves out a variable that nothing uses
  // Whether the calling thread's environment is the default one, whatever its status flags say.
  static bool is_set() noexcept {
#if defined(__aarch64__)
    uint64_t control;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control)::"memory");
    return control == 0;
#else
    return std::fegetround() == FE_TONEAREST;
#endif
  }

 private:
#if defined(__aarch64__)
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

using DefaultVectorEnvironment = DefaultFpEnvironment;  // there is no other unit
#endif

}  // namespace rocpy
