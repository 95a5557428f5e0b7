// SPDX-License-Identifier: MIT
// Chooses the kernel set by what the CPU and the operating system support.
#include "isa.hpp"

#include <atomic>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "environment.h"

namespace rocpy_host::gemm {

#if defined(__x86_64__)
// Of this set only the integer kernels are its own.
namespace avx2_vnni {
extern const Kernels<int32_t> kernels_i32;
}
#endif

namespace {

struct Entry {
  KernelSet set;
  bool (*available)();
};

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
// Compilers know this feature by name since lately only.
bool has_avx2_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512_vbmi() { return has_avx512_vnni() && __builtin_cpu_supports("avx512vbmi"); }
bool has_avx512_bf16() { return has_avx512_vbmi() && __builtin_cpu_supports("avx512bf16"); }

// Of this set only the kernels that read floating-point bytes are its own.
Kernels<float> with_bytes_by_tables(Kernels<float> set) {
  set.elements[element_index(Type::e4m3)] = &avx512_vbmi::elements_e4m3;
  set.elements[element_index(Type::e5m2)] = &avx512_vbmi::elements_e5m2;
  set.elements[element_index(Type::e4m3_fnuz)] = &avx512_vbmi::elements_e4m3_fnuz;
  set.elements[element_index(Type::e5m2_fnuz)] = &avx512_vbmi::elements_e5m2_fnuz;
  return set;
}
const Kernels<float> vbmi_f32 = with_bytes_by_tables(avx512::kernels_f32);

// What follows the sums is alike.
Kernels<float> with_epilogue(Kernels<float> set) {
  set.epilogue = avx512::kernels_f32.epilogue;
  set.write = avx512::kernels_f32.write;
  return set;
}
const Kernels<float> bf16_pairs = with_epilogue(avx512_bf16::kernels_pairs);
#endif
bool always() { return true; }

// Best first, where pairs are fast.
const Entry known_sets[] = {
#if defined(__x86_64__)
    {{"avx512_bf16", &vbmi_f32, &avx512::kernels_f64, &avx512_vnni::kernels_i32, &avx512::kernels_c32,
      &avx512::kernels_c64, &bf16_pairs},
     has_avx512_bf16},
    {{"avx512_vbmi", &vbmi_f32, &avx512::kernels_f64, &avx512_vnni::kernels_i32, &avx512::kernels_c32,
      &avx512::kernels_c64},
     has_avx512_vbmi},
    {{"avx512_vnni", &avx512::kernels_f32, &avx512::kernels_f64, &avx512_vnni::kernels_i32, &avx512::kernels_c32,
      &avx512::kernels_c64},
     has_avx512_vnni},
    {{"avx512", &avx512::kernels_f32, &avx512::kernels_f64, &avx512::kernels_i32, &avx512::kernels_c32,
      &avx512::kernels_c64},
     has_avx512},
    {{"avx2_vnni", &avx2::kernels_f32, &avx2::kernels_f64, &avx2_vnni::kernels_i32, &avx2::kernels_c32,
      &avx2::kernels_c64},
     has_avx2_vnni},
    {{"avx2", &avx2::kernels_f32, &avx2::kernels_f64, &avx2::kernels_i32, &avx2::kernels_c32, &avx2::kernels_c64},
     has_avx2},
#elif defined(__aarch64__)
    {{"neon", &neon::kernels_f32, &neon::kernels_f64, &neon::kernels_i32, &neon::kernels_c32, &neon::kernels_c64},
     always},
#endif
    {{"baseline", &baseline::kernels_f32, &baseline::kernels_f64, &baseline::kernels_i32, &baseline::kernels_c32,
      &baseline::kernels_c64},
     always},
};

// Processors that costs differ for. AMD's family 19h is Zen 3 and Zen 4, of which the latter has AVX-512.
enum class Processor : int { unknown, other, zen3, zen4, intel };

Processor ask_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amdfam19h")) return __builtin_cpu_supports("avx512f") ? Processor::zen4 : Processor::zen3;
  if (__builtin_cpu_is("intel")) return Processor::intel;
#endif
  return Processor::other;
}

Processor kind_of_processor() {
  static std::atomic<Processor> known{Processor::unknown};
  Processor kind = known.load(std::memory_order_relaxed);
  if (kind == Processor::unknown) known.store(kind = ask_processor(), std::memory_order_relaxed);
  return kind;
}

// On a Xeon of 2 MiB of second cache a product of pairs takes 1.6 times as long as one of elements that are widened.
bool pairs_are_fast() { return kind_of_processor() != Processor::intel; }

// The set of that name, or without one the fastest, if the CPU has it.
const KernelSet *find(const char *name) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  for (const Entry &entry : known_sets) {
    const bool wanted = *name ? strcmp(name, entry.set.name) == 0 : !entry.set.pairs || pairs_are_fast();
    if (wanted && entry.available()) return &entry.set;
  }
  return nullptr;
}

std::atomic<const KernelSet *> chosen{nullptr}, chosen_for_brief{nullptr};

const KernelSet *choose(const char *name) {
  const KernelSet *set = find(name);
  if (!set) return nullptr;
  const bool narrower = !*name && kind_of_processor() == Processor::intel && set->f32->tile_columns == 32;
  chosen_for_brief.store(narrower ? find("avx2") : set, std::memory_order_release);
  chosen.store(set, std::memory_order_release);
  return set;
}

const KernelSet *choose() {
  const KernelSet *set = choose(rocpy_environment(ROCPY_HOST_ISA));
  return set ? set : choose("");
}

}  // namespace

const KernelSet &kernel_set() {
  const KernelSet *set = chosen.load(std::memory_order_acquire);
  return set ? *set : *choose();
}

const KernelSet &brief_kernel_set() {
  kernel_set();
  return *chosen_for_brief.load(std::memory_order_acquire);
}

bool use_kernel_set(const char *name) { return choose(name) != nullptr; }

bool vectors_take_two_cycles() {
  return kind_of_processor() == Processor::zen4 && kernel_set().f32->tile_columns == 32;
}

bool second_cache_is_small() { return kind_of_processor() == Processor::zen3; }

bool far_rows_wait() { return kind_of_processor() == Processor::intel; }

int64_t least_copying_tiles() {
  const Kernels<float> &kernels = *kernel_set().f32;
  constexpr int64_t usual = 3, many = 5;
  if (!kernels.copying[0][0][kernels.tile_rows]) return INT64_MAX;
  if (kernels.tile_columns < 32) return far_rows_wait() ? many : usual;
  return vectors_take_two_cycles() || far_rows_wait() ? usual : INT64_MAX;
}

const char *isa_name() { return kernel_set().name; }

}  // namespace rocpy_host::gemm
