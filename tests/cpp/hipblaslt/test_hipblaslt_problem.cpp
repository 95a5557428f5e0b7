// SPDX-License-Identifier: MIT
// From hipBLASLt's descriptors to the engine's problem, type by type: what reaches the engine, and which status says
// no. No product is run.
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "check.hpp"
#include "hipblaslt_problem.hpp"
#include "hipblaslt_types.hpp"
#include "isa.hpp"

namespace {

using namespace rocpy_host::lt;
namespace gemm = rocpy_host::gemm;
using gemm::ScaleKind;

constexpr hipblasStatus_t success = HIPBLAS_STATUS_SUCCESS, invalid = HIPBLAS_STATUS_INVALID_VALUE,
                          refused = HIPBLAS_STATUS_INTERNAL_ERROR;

alignas(64) char memory[4096];

// A product of 8 x 6 x 64, both operands along k: what each test changes.
struct Sample {
  MatmulDesc desc;
  Layout a, b, c, d;
  Call call;
  float one = 1.0f, zero = 0.0f;
  const void *alpha = &one, *beta = &zero;

  Sample(int32_t type_a, int32_t type_b, int32_t type_d, int32_t compute = HIPBLAS_COMPUTE_32F,
         int32_t scale = HIP_R_32F) {
    desc.compute = compute;
    desc.scale_type = scale;
    desc.trans_a = HIPBLAS_OP_T;
    a = layout(type_a, 64, 8);
    b = layout(type_b, 64, 6);
    c = d = layout(type_d, 8, 6);
  }
  static Layout layout(int32_t type, uint64_t rows, uint64_t columns) {
    Layout made;
    made.type = type;
    made.rows = rows;
    made.columns = columns;
    made.ld = int64_t(rows);
    return made;
  }
  hipblasStatus_t search() {
    call = Call{};
    return translate("search", desc, {&a, &b, &c, &d}, nullptr, &call);
  }
  hipblasStatus_t run() {
    call = Call{};
    Operands operands = {alpha, memory, memory, beta, memory, memory};
    return translate("run", desc, {&a, &b, &c, &d}, &operands, &call);
  }
  // The same answer to both questions.
  hipblasStatus_t both() {
    hipblasStatus_t searched = search(), ran = run();
    CHECK_EQUAL(searched, ran);
    return ran;
  }
};

void float8() {
  const int32_t ocp[] = {HIP_R_8F_E4M3, HIP_R_8F_E5M2}, fnuz[] = {HIP_R_8F_E4M3_FNUZ, HIP_R_8F_E5M2_FNUZ};
  const int32_t wide[] = {HIP_R_32F, HIP_R_16F, HIP_R_16BF};
  for (const int32_t *dialect : {ocp, fnuz}) {
    const int32_t *other = dialect == ocp ? fnuz : ocp;
    for (int i = 0; i < 2; i++) {
      for (int j = 0; j < 2; j++) {
        for (int32_t d : wide) CHECK_EQUAL(Sample(dialect[i], dialect[j], d).both(), success);
        for (int o = 0; o < 2; o++) {
          CHECK_EQUAL(Sample(dialect[i], dialect[j], dialect[o]).both(), success);
          CHECK_EQUAL(Sample(dialect[i], dialect[j], other[o]).both(), refused);
          CHECK_EQUAL(Sample(dialect[i], other[j], wide[o]).both(), refused);
        }
      }
    }
  }
  CHECK_EQUAL(Sample(HIP_R_8F_E4M3, HIP_R_8F_E4M3, HIP_R_64F).both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8F_E4M3, HIP_R_8F_E4M3, HIP_R_8I).both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8F_E4M3, HIP_R_32F, HIP_R_32F).both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8F_E4M3, HIP_R_8F_E4M3, HIP_R_32F, HIPBLAS_COMPUTE_16F).both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8F_E4M3, HIP_R_16F, HIP_R_16F, HIPBLAS_COMPUTE_32F_FAST_16F).both(), success);
  CHECK_EQUAL(Sample(HIP_R_16F, HIP_R_8F_E4M3_FNUZ, HIP_R_32F, HIPBLAS_COMPUTE_32F_FAST_16F).both(), success);
  CHECK_EQUAL(Sample(HIP_R_8F_E4M3, HIP_R_16F, HIP_R_16F).both(), refused);

  // The engine's operands are swapped: its b is hipBLASLt's A.
  Sample mix(HIP_R_8F_E4M3, HIP_R_8F_E5M2, HIP_R_16BF);
  CHECK_EQUAL(mix.both(), success);
  CHECK(mix.call.problem.b.type == gemm::Type::e4m3 && mix.call.problem.a.type == gemm::Type::e5m2);
  CHECK(mix.call.problem.d_type == gemm::Type::bf16 && mix.call.problem.compute == gemm::Type::f32);
}

void operand_scales() {
  for (int32_t mode : {HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F}) {
    Sample s(HIP_R_8F_E4M3, HIP_R_8F_E4M3, HIP_R_32F);
    s.desc.a_scale = memory + 64;
    s.desc.b_scale = memory + 128;
    s.desc.a_scale_mode = s.desc.b_scale_mode = mode;
    CHECK_EQUAL(s.both(), success);
    const ScaleKind kind = mode == HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ? ScaleKind::scalar : ScaleKind::vector;
    CHECK(s.call.problem.b.scale.kind == kind && s.call.problem.b.scale.data == memory + 64);
    CHECK(s.call.problem.a.scale.kind == kind && s.call.problem.a.scale.data == memory + 128);
    CHECK_EQUAL(s.call.problem.a.scale.batch_stride, 0);
    // D in rows needs no swap.
    s.c.order = s.d.order = HIPBLASLT_ORDER_ROW;
    s.c.ld = s.d.ld = 6;
    CHECK_EQUAL(s.both(), success);
    CHECK(s.call.problem.a.scale.data == memory + 64 && s.call.problem.b.scale.data == memory + 128);
    // One side alone.
    s.desc.b_scale = nullptr;
    s.desc.b_scale_mode = scale_mode_unset;
    CHECK_EQUAL(s.both(), success);
    CHECK(s.call.problem.b.scale.kind == ScaleKind::none);
    s.desc.a_scale = memory + 2;
    CHECK_EQUAL(s.both(), invalid);
  }
  Sample s(HIP_R_8F_E4M3, HIP_R_8F_E4M3, HIP_R_32F);
  s.desc.a_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  s.desc.b_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  CHECK_EQUAL(s.both(), invalid);
  // A mode whose pointer is to come is searched for, and scales nothing if it never comes.
  s.desc.a_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  CHECK_EQUAL(s.search(), success);
  CHECK(s.call.problem.b.scale.kind == ScaleKind::vector);
  CHECK_EQUAL(s.run(), success);
  CHECK(s.call.problem.b.scale.kind == ScaleKind::none);
  for (int32_t mode : {HIPBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, HIPBLASLT_MATMUL_MATRIX_SCALE_BLK32_UE8M0_32_8_EXT,
                       HIPBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE8M0_EXT}) {
    s.desc.a_scale = s.desc.b_scale = memory;
    s.desc.a_scale_mode = s.desc.b_scale_mode = mode;
    CHECK_EQUAL(s.both(), refused);
  }
  for (int32_t type : {HIP_R_32F, HIP_R_16F, HIP_R_16BF}) {
    Sample plain(type, type, type);
    plain.desc.a_scale = memory;
    plain.desc.a_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    CHECK_EQUAL(plain.both(), refused);
  }
}

void result_scales() {
  Sample s(HIP_R_8F_E4M3, HIP_R_8F_E4M3, HIP_R_8F_E4M3);
  s.desc.c_scale = memory + 64;
  s.desc.d_scale = memory + 128;
  s.desc.amax = memory + 192;
  CHECK_EQUAL(s.both(), success);
  CHECK(static_cast<const void *>(s.call.problem.c_scale) == memory + 64);
  CHECK(static_cast<const void *>(s.call.problem.d_scale) == memory + 128);
  CHECK(static_cast<void *>(s.call.problem.amax) == memory + 192);
  s.desc.amax = memory + 193;
  CHECK_EQUAL(s.both(), invalid);
  s.desc.amax = memory + 192;
  s.c.type = s.d.type = HIP_R_32F;
  CHECK_EQUAL(s.both(), refused);
  s.desc.c_scale = s.desc.d_scale = nullptr;
  CHECK_EQUAL(s.both(), success);
  // Of what is stored in aux, only 8-bit values are scaled.
  s.desc.epilogue = HIPBLASLT_EPILOGUE_GELU_AUX;
  s.desc.aux = memory;
  s.desc.aux_ld = 8;
  s.desc.aux_scale = memory + 64;
  CHECK_EQUAL(s.both(), refused);
  s.c.type = s.d.type = HIP_R_8F_E4M3;
  CHECK_EQUAL(s.both(), success);
  CHECK(s.call.problem.aux_type == gemm::Type::e4m3);
  CHECK(static_cast<const void *>(s.call.problem.aux_scale) == memory + 64);
  Sample plain(HIP_R_32F, HIP_R_32F, HIP_R_32F);
  plain.desc.amax = memory;
  CHECK_EQUAL(plain.both(), refused);
}

void bias_types() {
  struct {
    int32_t in, out, compute, scale;
    gemm::Type wanted;
  } rows[] = {
      {HIP_R_8F_E4M3, HIP_R_32F, HIPBLAS_COMPUTE_32F, HIP_R_32F, gemm::Type::bf16},
      {HIP_R_8F_E4M3, HIP_R_16BF, HIPBLAS_COMPUTE_32F, HIP_R_32F, gemm::Type::bf16},
      {HIP_R_8F_E4M3, HIP_R_16F, HIPBLAS_COMPUTE_32F, HIP_R_32F, gemm::Type::f16},
      {HIP_R_8F_E4M3, HIP_R_8F_E4M3, HIPBLAS_COMPUTE_32F, HIP_R_32F, gemm::Type::f16},
      {HIP_R_8F_E5M2_FNUZ, HIP_R_8F_E5M2_FNUZ, HIPBLAS_COMPUTE_32F, HIP_R_32F, gemm::Type::f16},
      {HIP_R_8I, HIP_R_32I, HIPBLAS_COMPUTE_32I, HIP_R_32I, gemm::Type::i32},
      {HIP_R_8I, HIP_R_8I, HIPBLAS_COMPUTE_32I, HIP_R_32I, gemm::Type::i32},
      {HIP_R_8I, HIP_R_16BF, HIPBLAS_COMPUTE_32I, HIP_R_32F, gemm::Type::bf16},
      {HIP_R_32F, HIP_R_32F, HIPBLAS_COMPUTE_32F_FAST_TF32, HIP_R_32F, gemm::Type::f32},
      {HIP_R_16F, HIP_R_32F, HIPBLAS_COMPUTE_32F, HIP_R_32F, gemm::Type::f32},
      {HIP_R_16BF, HIP_R_16BF, HIPBLAS_COMPUTE_32F, HIP_R_32F, gemm::Type::bf16},
      {HIP_C_32F, HIP_C_32F, HIPBLAS_COMPUTE_32F, HIP_C_32F, gemm::Type::c32},
  };
  for (const auto &row : rows) {
    Sample s(row.in, row.in, row.out, row.compute, row.scale);
    s.alpha = s.beta = memory;
    s.desc.epilogue = HIPBLASLT_EPILOGUE_BIAS;
    s.desc.bias = memory;
    CHECK_EQUAL(s.both(), success);
    CHECK_EQUAL(s.call.problem.bias_type, row.wanted);
  }
  Sample s(HIP_R_8I, HIP_R_8I, HIP_R_32I, HIPBLAS_COMPUTE_32I, HIP_R_32I);
  s.alpha = s.beta = memory;
  s.desc.epilogue = HIPBLASLT_EPILOGUE_BIAS;
  s.desc.bias = memory;
  s.desc.bias_type = HIP_R_32F;
  CHECK_EQUAL(s.both(), refused);
}

void integers() {
  const int32_t ones[2] = {1065353216, -3};  // the first has the bits of 1.0f
  Sample s(HIP_R_8I, HIP_R_8I, HIP_R_32I, HIPBLAS_COMPUTE_32I, HIP_R_32I);
  s.alpha = ones;
  s.beta = ones + 1;
  CHECK_EQUAL(s.both(), success);
  CHECK(s.call.problem.compute == gemm::Type::i32 && s.call.problem.d_type == gemm::Type::i32);
  CHECK(s.call.problem.alpha == 1065353216.0 && s.call.problem.beta == -3.0);
  s.desc.pointer_mode = HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
  CHECK_EQUAL(s.both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8I, HIP_R_8I, HIP_R_32F, HIPBLAS_COMPUTE_32I, HIP_R_32I).both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8I, HIP_R_8I, HIP_R_32I, HIPBLAS_COMPUTE_32F, HIP_R_32F).both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8I, HIP_R_8I, HIP_R_32I, HIPBLAS_COMPUTE_32I, HIP_R_32F).both(), refused);
  CHECK_EQUAL(Sample(HIP_R_8I, HIP_R_32I, HIP_R_32I, HIPBLAS_COMPUTE_32I, HIP_R_32I).both(), refused);
  // This platform's own: float results, scaled.
  for (int32_t d : {HIP_R_32F, HIP_R_16F, HIP_R_16BF}) {
    Sample own(HIP_R_8I, HIP_R_8I, d, HIPBLAS_COMPUTE_32I, HIP_R_32F);
    own.desc.a_scale = own.desc.b_scale = memory;
    own.desc.a_scale_mode = own.desc.b_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    CHECK_EQUAL(own.both(), success);
    CHECK(own.call.problem.compute == gemm::Type::i32 && own.call.problem.a.scale.kind == ScaleKind::vector);
    own.desc.amax = memory;
    CHECK_EQUAL(own.both(), refused);
  }
}

void complex_numbers() {
  const float alpha[] = {0.0f, 2.0f}, beta[] = {0.0f, -1.0f};
  Sample s(HIP_C_32F, HIP_C_32F, HIP_C_32F, HIPBLAS_COMPUTE_32F, HIP_C_32F);
  s.alpha = alpha;
  s.beta = beta;
  s.desc.trans_a = HIPBLAS_OP_C;
  CHECK_EQUAL(s.both(), success);
  const gemm::Problem &p = s.call.problem;
  CHECK(p.compute == gemm::Type::c32 && p.b.conjugated && !p.a.conjugated && !s.call.skips_product && p.k == 64);
  CHECK(p.alpha == 0.0 && p.alpha_imaginary == 2.0 && p.beta == 0.0 && p.beta_imaginary == -1.0);
  // C is read for its imaginary beta, so D over it needs its layout.
  s.d.ld = 16;
  CHECK_EQUAL(s.run(), invalid);
  s.d.ld = 8;
  s.desc.epilogue = HIPBLASLT_EPILOGUE_RELU;
  CHECK_EQUAL(s.both(), refused);
  CHECK_EQUAL(Sample(HIP_C_32F, HIP_C_32F, HIP_C_32F).both(), refused);
  CHECK_EQUAL(Sample(HIP_C_32F, HIP_C_64F, HIP_C_64F, HIPBLAS_COMPUTE_64F, HIP_C_64F).both(), refused);
  const double wide[] = {1.0, 0.5};
  Sample d(HIP_C_64F, HIP_C_64F, HIP_C_64F, HIPBLAS_COMPUTE_64F, HIP_C_64F);
  d.alpha = d.beta = wide;
  CHECK_EQUAL(d.both(), success);
  CHECK(d.call.problem.compute == gemm::Type::c64 && d.call.problem.alpha_imaginary == 0.5);
  // On real types C is T.
  Sample real(HIP_R_32F, HIP_R_32F, HIP_R_32F);
  real.desc.trans_a = HIPBLAS_OP_C;
  CHECK_EQUAL(real.both(), success);
  CHECK(!real.call.problem.b.conjugated && real.call.problem.b.row_stride == 1);
}

void blocks() {
  const int32_t types[] = {HIP_R_8F_E4M3, HIP_R_8F_E5M2, HIP_R_6F_E2M3, HIP_R_6F_E3M2, HIP_R_4F_E2M1};
  for (int32_t a : types) {
    for (int32_t b : types) {
      Sample s(a, b, HIP_R_16BF);
      s.desc.a_scale_mode = s.desc.b_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
      CHECK_EQUAL(s.search(), success);
      CHECK_EQUAL(s.run(), invalid);  // the factors are missing
      s.desc.a_scale = memory + 1;    // bytes: any address
      s.desc.b_scale = memory + 3;
      CHECK_EQUAL(s.both(), success);
      CHECK(s.call.problem.b.scale.kind == ScaleKind::block32 && s.call.problem.b.scale.data == memory + 1);
      CHECK_EQUAL(s.call.problem.b.scale.batch_stride, 16);
      CHECK_EQUAL(s.call.problem.a.scale.batch_stride, 12);
      s.desc.b_scale_mode = scale_mode_unset;
      CHECK_EQUAL(s.both(), refused);
    }
  }
  Sample s(HIP_R_4F_E2M1, HIP_R_4F_E2M1, HIP_R_32F);
  CHECK_EQUAL(s.both(), refused);  // no factors
  s.desc.a_scale = s.desc.b_scale = memory;
  s.desc.a_scale_mode = s.desc.b_scale_mode = HIPBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  s.a.ld = 65;
  CHECK_EQUAL(s.both(), invalid);
  s.a.ld = 66;
  CHECK_EQUAL(s.both(), success);
  CHECK_EQUAL(s.call.problem.b.column_stride, 66);
  s.a.ld = 64;
  s.desc.trans_a = HIPBLAS_OP_N;
  CHECK_EQUAL(s.both(), refused);
  s.desc.trans_a = HIPBLAS_OP_T;
  s.a.rows = s.b.rows = 48;
  CHECK_EQUAL(s.both(), refused);
  Sample six(HIP_R_6F_E3M2, HIP_R_6F_E3M2, HIP_R_32F);
  six.desc = s.desc;
  six.b.ld = 66;
  CHECK_EQUAL(six.both(), invalid);
  six.b.ld = 68;
  CHECK_EQUAL(six.both(), success);
  Sample dialect(HIP_R_8F_E4M3_FNUZ, HIP_R_8F_E4M3_FNUZ, HIP_R_32F);
  dialect.desc = s.desc;
  CHECK_EQUAL(dialect.both(), refused);
}

// What the binding believes of an element type, and what the platform checks as AMD's, are two tables.
void element_types_of_the_binding() {
  struct Believed {
    int32_t type;
    int64_t bits;
    const char *takes, *kind;
  };
  const Believed rows[] = {
#define ROCPY_DTYPE(name, hip, bits, kind, dlpack, nccl, torch, takes) {hip, bits, #takes, #kind},
#include "../../csrc/core/arrays/dtypes.def"
#undef ROCPY_DTYPE
  };
  for (const Believed &row : rows) {
    if (std::strcmp(row.takes, "product") != 0 || std::strcmp(row.kind, "scale") == 0) continue;
    gemm::Type type;
    bool known = engine_type(row.type, &type);
    CHECK(known);
    if (known) CHECK(gemm::element_bits[static_cast<int>(type)] == row.bits);
  }
}

// What a thread remembers of objects is forgotten when one of them changes, and when another takes its slot.
void remembered() {
  MatmulDesc *desc = matmul_descs.allocate();
  Layout *l[4];
  const auto make = [](uint64_t rows, uint64_t columns, int64_t ld) {
    Layout *made = layouts.allocate();
    *made = Sample::layout(HIP_R_32F, rows, columns);
    made->ld = ld;
    return made;
  };
  l[0] = make(8, 64, 8);
  l[1] = make(64, 6, 64);
  l[2] = make(8, 6, 8);
  l[3] = make(8, 6, 8);
  const float one = 1.0f, zero = 0.0f;
  Call call;
  const auto run = [&](const void *beta) {
    call = Call{};
    return translate_pooled("run", *desc, {l[0], l[1], l[2], l[3]}, {&one, memory, memory, beta, memory, memory},
                            &call);
  };
  for (int turn = 0; turn < 2; turn++) {
    CHECK_EQUAL(run(&zero), success);
    CHECK_EQUAL(call.problem.k, 64);
    CHECK_EQUAL(call.problem.beta, 0.0);
  }
  CHECK_EQUAL(run(&one), success);  // factors are of each call
  CHECK_EQUAL(call.problem.beta, 1.0);
  matmul_descs.find_to_change(desc)->trans_a = HIPBLAS_OP_T;
  CHECK_EQUAL(run(&zero), success);  // larger matrices than needed are taken
  CHECK_EQUAL(call.problem.k, 8);
  matmul_descs.find_to_change(desc)->trans_a = HIPBLAS_OP_N;
  layouts.find_to_change(l[0])->ld = 16;
  CHECK_EQUAL(run(&zero), success);
  CHECK_EQUAL(call.problem.b.row_stride, 16);
  // The slot of a layout that is destroyed is the next one's.
  CHECK(layouts.release(l[1]));
  Layout *other = make(64, 5, 64);
  CHECK(other == l[1]);
  CHECK_EQUAL(run(&zero), invalid);  // D has six columns
  layouts.find_to_change(l[2])->columns = 5;
  layouts.find_to_change(l[3])->columns = 5;
  CHECK_EQUAL(run(&zero), success);
  CHECK_EQUAL(call.problem.m, 5);
  matmul_descs.find_to_change(desc)->epilogue = HIPBLASLT_EPILOGUE_BIAS;
  CHECK_EQUAL(run(&zero), invalid);  // no bias yet
  matmul_descs.find_to_change(desc)->bias = memory;
  CHECK_EQUAL(run(&zero), success);
  CHECK(call.problem.bias == memory);
  matmul_descs.find_to_change(desc)->bias = memory + 64;
  CHECK_EQUAL(run(&zero), success);
  CHECK(call.problem.bias == memory + 64);
  // Descriptors of which two share what a thread has for one.
  MatmulDesc *many[40];
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < 40; i++) {
      if (turn == 0) {
        many[i] = matmul_descs.allocate();
        many[i]->epilogue = i % 2 ? HIPBLASLT_EPILOGUE_RELU : HIPBLASLT_EPILOGUE_DEFAULT;
      }
      desc = many[i];
      CHECK_EQUAL(run(&zero), success);
      CHECK((call.problem.activation == gemm::Activation::relu) == (i % 2 == 1));
    }
  }
}

}  // namespace

int main() {
  element_types_of_the_binding();
  const float one = 1.0f;
  for (int i = 0; i < 64; i++) std::memcpy(memory + 4 * i, &one, sizeof one);
  float8();
  operand_scales();
  result_scales();
  bias_types();
  integers();
  complex_numbers();
  blocks();
  remembered();
  if (failures) std::fprintf(stderr, "%d checks failed\n", failures.load());
  return failures ? 1 : 0;
}
