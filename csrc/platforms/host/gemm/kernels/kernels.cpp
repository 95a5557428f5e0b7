// SPDX-License-Identifier: MIT
// The kernels of one instruction set for sums in float and double. Built once per set, with that set's flags and
// ROCPY_KERNEL_ISA naming its namespace; everything but the table has internal linkage.
#include "kernels.hpp"

#include "kernels_blocks.hpp"
#include "kernels_elements.hpp"
#include "kernels_epilogue.hpp"
#include "kernels_tile.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {
namespace {

constexpr Elements<float> elements_f32 = make_elements<float, float>();
constexpr Elements<float> elements_f16 = make_elements<float, F16>();
constexpr Elements<float> elements_bf16 = make_elements<float, Bf16>();
constexpr Elements<double> elements_f64 = make_elements<double, double>();

Kernels<float>::Epilogue epilogue_f32(const Problem &p) { return p.program ? programs.f32 : choose_epilogue<float>(p); }
Kernels<double>::Epilogue epilogue_f64(const Problem &p) {
  return p.program ? programs.f64 : choose_epilogue<double>(p);
}

template <class T>
constexpr Kernels<T> make_kernels() {
  Kernels<T> set{};
  set.tile_rows = tile_rows;
  set.tile_columns = tile_vectors * vector_lanes<T>;
  set.group = 1;
  set.masks = has_masks;
  fill_element_tiles<T, T>(set.tile[0]);
  fill_copying_tiles<T, T>(set.copying[0]);
  fill_small<T, 1, tile_rows>(set.small[0]);
  fill_small<T, 2, tile_rows>(set.small[1]);
  fill_small<T, 4, most_wide_rows>(set.small[2]);
  if constexpr (sizeof(T) == 4) {
    set.elements[0] = &elements_f32;
    set.elements[1] = &elements_f16;
    set.elements[2] = &elements_bf16;
    set.elements[3] = &elements_e4m3;
    set.elements[4] = &elements_e5m2;
    set.elements[5] = &elements_e4m3_fnuz;
    set.elements[6] = &elements_e5m2_fnuz;
    fill_element_tiles<T, F16>(set.tile[1]);
    fill_element_tiles<T, Bf16>(set.tile[2]);
    fill_copying_tiles<T, F16>(set.copying[1]);
    fill_copying_tiles<T, Bf16>(set.copying[2]);
    set.decode = decode_packed;
    set.blocks = elements_blocks;
  } else {
    set.elements[0] = &elements_f64;
  }
  if constexpr (sizeof(T) == 4) {
    set.epilogue = epilogue_f32;
  } else {
    set.epilogue = epilogue_f64;
  }
  set.write = write_values<T>;
  return set;
}

}  // namespace

// Other tables are copies of it, made when the library is loaded: nothing but the loader may fill it in.
constexpr Kernels<float> kernels_f32 = make_kernels<float>();
constexpr Kernels<double> kernels_f64 = make_kernels<double>();

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
