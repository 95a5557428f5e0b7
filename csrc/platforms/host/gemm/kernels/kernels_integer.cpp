// SPDX-License-Identifier: MIT
// The kernels of one instruction set for sums of 8-bit integers, built as kernels.cpp is.
#include "kernels_integer_skinny.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {
namespace {

constexpr Elements<int32_t> make_elements() {
  Elements<int32_t> elements{};
  elements.pack = pack_integers<false>;
  elements.pack_left = pack_integers<true>;
  fill_integer_skinny<max_skinny_rows>(elements);
  fill_integer_strips<int32_t, max_strip_rows>(elements.strips);
  return elements;
}
constexpr Elements<int32_t> elements_i8 = make_elements();

#if !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
constexpr Elements<int32_t> make_packed_bytes() {
  Elements<int32_t> elements{};
  elements.pack_same = pack_byte_pairs;
  fill_integer_strips<BytePair, max_strip_rows>(elements.strips);
  return elements;
}
constexpr Elements<int32_t> packed_bytes_i8 = make_packed_bytes();
#endif

Kernels<int32_t>::Epilogue epilogue_i32(const Problem &p) {
  return p.program ? ROCPY_KERNEL_BASE::programs.i32 : choose_integer_epilogue(p);
}

constexpr Kernels<int32_t> make_kernels() {
  Kernels<int32_t> set{};
  set.tile_rows = tile_rows;
  set.tile_columns = tile_vectors * vector_lanes<int32_t>;
  set.group = group_size;
  fill_integer_tiles<int32_t, 1, tile_rows>(set.tile[0][0][1]);
  fill_integer_tiles<int32_t, 2, tile_rows>(set.tile[0][1][1]);
  set.elements[0] = &elements_i8;
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
  set.correct = correct_offset;
#else
  fill_integer_tiles<BytePair, 1, tile_rows>(set.tile[integer_bytes_index][0][1]);
  fill_integer_tiles<BytePair, 2, tile_rows>(set.tile[integer_bytes_index][1][1]);
  set.elements[integer_bytes_index] = &packed_bytes_i8;
#endif
  set.epilogue = epilogue_i32;
  return set;
}

}  // namespace

extern const Kernels<int32_t> kernels_i32;
const Kernels<int32_t> kernels_i32 = make_kernels();

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
