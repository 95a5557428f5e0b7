// SPDX-License-Identifier: MIT
// The kernels of one instruction set for sums in float and double. Built once per set, with that set's flags and
// ROCPY_KERNEL_ISA naming its namespace; everything but the table has internal linkage.
#include "kernels.hpp"

#include "kernels_epilogue.hpp"
#include "kernels_pack.hpp"
#include "kernels_skinny.hpp"
#include "kernels_tile.hpp"

namespace rocpy_host::gemm::ROCPY_KERNEL_ISA {
namespace {

template <class T, class E>
constexpr void fill_element(Kernels<T> &set, int element) {
  fill_skinny<T, E, kMaxSkinnyRows>(set, element);
  set.pack[element] = pack<T, E>;
  set.pack_same[element] = pack_same<T, E>;
  set.sum[element] = sum<T, E>;
}

template <class T>
constexpr Kernels<T> make_kernels() {
  Kernels<T> set{};
  set.tile_rows = kTileRows;
  set.tile_columns = kTileVectors * kLanes<T>;
  set.group = 1;
  fill_element<T, T>(set, 0);
  fill_element_tiles<T, T>(set.tile[0]);
  if constexpr (sizeof(T) == 4) {
    fill_element<T, F16>(set, 1);
    fill_element<T, Bf16>(set, 2);
    fill_element<T, Byte<E4m3>>(set, 3);
    fill_element<T, Byte<E5m2>>(set, 4);
    fill_element<T, Byte<E4m3Fnuz>>(set, 5);
    fill_element<T, Byte<E5m2Fnuz>>(set, 6);
    fill_element_tiles<T, F16>(set.tile[1]);
    fill_element_tiles<T, Bf16>(set.tile[2]);
    set.decode = decode_stream;
  }
  set.epilogue = choose_epilogue<T>;
  set.write = write_values<T>;
  return set;
}

}  // namespace

const Kernels<float> kernels_f32 = make_kernels<float>();
const Kernels<double> kernels_f64 = make_kernels<double>();

}  // namespace rocpy_host::gemm::ROCPY_KERNEL_ISA
