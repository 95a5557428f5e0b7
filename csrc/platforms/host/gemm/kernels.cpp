// SPDX-License-Identifier: MIT
// The kernel set of one instruction set. Built once per set, with that set's flags and ROCPY_KERNEL_ISA naming its
// namespace; everything but the table has internal linkage.
#include "kernels.hpp"

#include "kernels_epilogue.hpp"
#include "kernels_pack.hpp"
#include "kernels_skinny.hpp"
#include "kernels_tile.hpp"

#define ROCPY_NAME_OF(isa) ROCPY_QUOTE(isa)
#define ROCPY_QUOTE(isa) #isa

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {
namespace {

template <class T, class E>
constexpr void fill_element(Kernels<T> &set, int element) {
  fill_element_tiles<T, E>(set.tile[element]);
  fill_skinny<T, E, kMaxSkinnyRows>(set, element);
  set.pack[element] = pack<T, E>;
  set.pack_same[element] = pack_same<T, E>;
  set.sum[element] = sum<T, E>;
}

template <class T>
constexpr Kernels<T> make_kernels() {
  Kernels<T> set{};
  set.name = ROCPY_NAME_OF(ROCPY_KERNEL_ISA);
  set.tile_rows = kTileRows;
  set.tile_columns = kTileVectors * kLanes<T>;
  fill_element<T, T>(set, 0);
  if constexpr (sizeof(T) == 4) {
    fill_element<T, F16>(set, 1);
    fill_element<T, Bf16>(set, 2);
  }
  set.epilogue = choose_epilogue<T>;
  set.write = write_values<T>;
  return set;
}

constexpr Kernels<float> kernels_f32 = make_kernels<float>();
constexpr Kernels<double> kernels_f64 = make_kernels<double>();

}  // namespace

extern const KernelSet set;
const KernelSet set = {ROCPY_NAME_OF(ROCPY_KERNEL_ISA), &kernels_f32, &kernels_f64};

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
