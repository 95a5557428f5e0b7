// SPDX-License-Identifier: MIT
// Epilogues by release, from the headers and sources that AMD published for each; never from what the binding believes,
// which a test compares with this.
#include "hipblaslt_releases.hpp"

#include "window.hpp"

namespace rocpy_host::lt {

namespace {

using gemm::Activation;
using gemm::Aux;
using gemm::Reduction;

constexpr int in_every = 0, to_date = INT32_MAX;
constexpr int rocm_7_0 = 100000, rocm_7_1 = 100100, rocm_7_2_1 = 100202, after_7_2 = 100300, rocm_10_0 = 100401;

struct Row {
  uint32_t number;
  int since, until;  // versions of hipBLASLt: the first that acts on the number, and the first that does no more
  Epilogue epilogue;
};

// hipblasLtEpilogue_t in hipblaslt.h of 6.0.2 to 6.4.3, of 7.0.2, 7.1.1, 7.2.1 and 10.0, each of which is in the next
// but for sigmoid. The numbers that 7.2.0 and the versions between 7.2 and 10.0 have for sigmoid are in no published
// header.
constexpr Row rows[] = {
    {2, in_every, to_date, {Activation::relu, Aux::none, Reduction::none, false}},
    {4, in_every, to_date, {Activation::none, Aux::none, Reduction::none, true}},
    {6, in_every, to_date, {Activation::relu, Aux::none, Reduction::none, true}},
    {32, in_every, to_date, {Activation::gelu, Aux::none, Reduction::none, false}},
    {36, in_every, to_date, {Activation::gelu, Aux::none, Reduction::none, true}},
    {160, in_every, to_date, {Activation::gelu, Aux::store, Reduction::none, false}},
    {164, in_every, to_date, {Activation::gelu, Aux::store, Reduction::none, true}},
    {192, in_every, to_date, {Activation::dgelu, Aux::load, Reduction::none, false}},
    {208, in_every, to_date, {Activation::dgelu, Aux::load, Reduction::result_columns, false}},
    {256, in_every, to_date, {Activation::none, Aux::none, Reduction::a_rows, false}},
    {512, in_every, to_date, {Activation::none, Aux::none, Reduction::b_columns, false}},
    {65536, rocm_7_0, to_date, {Activation::silu, Aux::none, Reduction::none, false}},
    {65540, rocm_7_0, to_date, {Activation::silu, Aux::none, Reduction::none, true}},
    {130, rocm_7_1, to_date, {Activation::relu, Aux::store, Reduction::none, false}},
    {134, rocm_7_1, to_date, {Activation::relu, Aux::store, Reduction::none, true}},
    {131072, rocm_7_1, to_date, {Activation::clamp, Aux::none, Reduction::none, false}},
    {131076, rocm_7_1, to_date, {Activation::clamp, Aux::none, Reduction::none, true}},
    {131200, rocm_7_1, to_date, {Activation::clamp, Aux::store, Reduction::none, false}},
    {131204, rocm_7_1, to_date, {Activation::clamp, Aux::store, Reduction::none, true}},
    {262144, rocm_7_2_1, after_7_2, {Activation::sigmoid, Aux::none, Reduction::none, false}},
    {262148, rocm_7_2_1, after_7_2, {Activation::sigmoid, Aux::none, Reduction::none, true}},
    {1024, rocm_10_0, to_date, {Activation::sigmoid, Aux::none, Reduction::none, false}},
    {136, rocm_10_0, to_date, {Activation::drelu, Aux::load, Reduction::none, false}},
    {152, rocm_10_0, to_date, {Activation::drelu, Aux::load, Reduction::result_columns, false}},
};

bool is_fnuz(int32_t type) { return type == HIP_R_8F_E4M3_FNUZ || type == HIP_R_8F_E5M2_FNUZ; }
bool is_ocp(int32_t type) { return type == HIP_R_8F_E4M3 || type == HIP_R_8F_E5M2; }

// Strict mode's card: that which a release was made for, gfx942 before ROCm 7 and gfx950 since.
bool is_of_other_card(const Layouts &l) {
  const bool ocp = window().hipblaslt >= rocm_7_0;
  auto other = [ocp](int32_t type) { return ocp ? is_fnuz(type) : is_ocp(type); };
  return other(l.a->type) || other(l.b->type) || other(l.d->type);
}

}  // namespace

Epilogue find_epilogue(uint32_t number) {
  for (const Row &row : rows) {
    if (row.number == number && window().hipblaslt >= row.since && window().hipblaslt < row.until) return row.epilogue;
  }
  return {};
}

bool is_extension(const MatmulDesc &desc, const Layouts &l, const ProductTypes &types, const Epilogue &epilogue) {
  const bool plain = epilogue.activation == Activation::none && epilogue.aux == Aux::none &&
                     epilogue.reduction == Reduction::none && !epilogue.bias;
  // matmul_gtest.yaml: float64 with the default epilogue and its own compute type.
  if (l.a->type == HIP_R_64F && (!plain || desc.compute != HIPBLAS_COMPUTE_64F)) return true;
  // testing_matmul.hpp refuses sums of more than one entry.
  if (epilogue.reduction != Reduction::none && l.d->batch_count > 1) return true;
  // Integers give integers.
  if (l.a->type == HIP_R_8I && !types.integer) return true;
  // RELU_AUX and CLAMP_AUX: 16 and 32-bit floats.
  const bool stores = epilogue.aux == Aux::store && epilogue.activation != Activation::gelu;
  if (stores && (types.scaled || types.blocks)) return true;
  // The matmul path never looks at row order.
  for (const Layout *layout : {l.a, l.b, l.c, l.d}) {
    if (layout->order == HIPBLASLT_ORDER_ROW) return true;
  }
  return is_of_other_card(l);
}

}  // namespace rocpy_host::lt
