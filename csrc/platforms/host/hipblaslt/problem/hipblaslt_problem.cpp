// SPDX-License-Identifier: MIT
// From hipBLASLt's descriptors to the engine's problem: types, shapes, strides, epilogue and scalars, with the
// library's status codes.
//
// The engine is row-major, hipBLASLt column-major: D of m x n in columns is the engine's n x m in rows, its A becomes
// the engine's b and its B the engine's a, and what runs along m (bias, alpha vector) lies along the engine's columns.
// A D stored in rows needs no swap.
#include "hipblaslt_problem.hpp"

#include <cinttypes>
#include <cstring>

#include "hipblaslt_program.hpp"
#include "hipblaslt_releases.hpp"
#include "hipblaslt_scales.hpp"
#include "hipblaslt_types.hpp"
#include "window.hpp"

namespace rocpy_host::lt {

namespace {

using gemm::Activation;
using gemm::Aux;
using gemm::Reduction;

bool plain_order(const Layout &layout) {
  return layout.order == HIPBLASLT_ORDER_COL || layout.order == HIPBLASLT_ORDER_ROW;
}
bool swizzled(const Layout &layout) {
  return layout.order >= HIPBLASLT_ORDER_COL16_4R32 && layout.order <= HIPBLASLT_ORDER_COL16_4R2;
}

// Swizzled operands are right for one op and one order per type; right or not, no algorithm here takes them.
hipblasStatus_t check_swizzle(const Layout &layout, int32_t op, int32_t op_needed) {
  bool half = layout.type == HIP_R_16F || layout.type == HIP_R_16BF;
  bool eight = layout.type == HIP_R_8F_E4M3 || layout.type == HIP_R_8F_E4M3_FNUZ;
  bool matches = (half && layout.order == HIPBLASLT_ORDER_COL16_4R8) ||
                 (eight && layout.order == HIPBLASLT_ORDER_COL16_4R16) ||
                 (layout.type == HIP_R_4F_E2M1 && layout.order == HIPBLASLT_ORDER_COL16_4R32);
  return op != op_needed || !matches ? HIPBLAS_STATUS_INVALID_VALUE : HIPBLAS_STATUS_INTERNAL_ERROR;
}

// The library reads past a matrix that is smaller than the product needs and overlaps columns when ld is too small;
// here both are refused. A matrix larger than needed is taken, as there. `rows` and `columns` are what is needed of the
// matrix as stored.
bool matrix_fits(const char *function, char name, const Layout &layout, uint64_t rows, uint64_t columns,
                 bool broadcast) {
  if (layout.rows < rows || layout.columns < columns) {
    report(function, "%c is %" PRIu64 " x %" PRIu64 ", the product needs %" PRIu64 " x %" PRIu64, name, layout.rows,
           layout.columns, rows, columns);
    return false;
  }
  bool by_rows = layout.order == HIPBLASLT_ORDER_ROW;
  uint64_t adjacent = by_rows ? layout.columns : layout.rows, lines = by_rows ? layout.rows : layout.columns;
  if (lines > 1 && (layout.ld < 0 || (uint64_t(layout.ld) < adjacent && !(broadcast && layout.ld == 0)))) {
    report(function, "leading dimension of %c is %" PRId64 ", less than its %" PRIu64 " %s", name, layout.ld, adjacent,
           by_rows ? "columns" : "rows");
    return false;
  }
  // Elements of less than a byte: each line, and each batch entry, begins with a byte.
  gemm::Type type;
  int bits = engine_type(layout.type, &type) ? gemm::bits_of(type) : 8;
  if (bits < 8 &&
      ((lines > 1 && layout.ld * bits % 8 != 0) || (layout.batch_count > 1 && layout.batch_stride * bits % 8 != 0))) {
    report(function,
           "%c has elements of %d bits: leading dimension %" PRId64 " and batch stride %" PRId64
           " do not end on byte boundaries",
           name, bits, layout.ld, layout.batch_stride);
    return false;
  }
  // Beyond this no memory could hold it and offsets would overflow.
  if (((uint64_t(layout.ld) | lines | adjacent) >> 31) && lines > 1 &&
      (static_cast<unsigned __int128>(layout.ld) * lines) >> 58) {
    report(function, "%c spans more than 2^58 elements", name);
    return false;
  }
  return true;
}

// op(X) of a stored matrix as strides of the engine. `transposed`: the engine sees op(X) transposed.
void set_strides(const Layout &layout, int32_t op, bool transposed, gemm::Matrix *out) {
  bool down_columns = layout.order != HIPBLASLT_ORDER_ROW;  // neighbours in memory are neighbours along the row index
  bool swap = (op != HIPBLAS_OP_N) != transposed;
  bool adjacent_rows = down_columns != swap;
  out->row_stride = adjacent_rows ? 1 : layout.ld;
  out->column_stride = adjacent_rows ? layout.ld : 1;
  out->batch_stride = layout.batch_stride;
}

hipblasStatus_t translate_epilogue(const char *function, const MatmulDesc &desc, const Layouts &l,
                                   const ProductTypes &types, bool searching, Call *call) {
  gemm::Problem &p = call->problem;
  bool by_rows = l.d->order == HIPBLASLT_ORDER_ROW;
  Epilogue epilogue = find_epilogue(desc.epilogue);
  if (is_strict() && is_extension(desc, l, types, epilogue)) return HIPBLAS_STATUS_INTERNAL_ERROR;
  p.activation = epilogue.activation;
  p.aux = epilogue.aux;
  p.has_bias = epilogue.bias;
  p.bias_type = p.aux_type = p.d_type;
  bool plain = p.activation == Activation::none && p.aux == Aux::none && epilogue.reduction == Reduction::none;
  if (types.complex && !plain) return HIPBLAS_STATUS_INTERNAL_ERROR;
  if (epilogue.bias || epilogue.reduction != Reduction::none) {
    if (!desc.bias && !searching) return HIPBLAS_STATUS_INVALID_VALUE;
    if (!bias_type(desc, l, types, &p.bias_type)) return HIPBLAS_STATUS_INTERNAL_ERROR;
    if (misaligned(desc.bias, p.bias_type)) {
      report(function, "the bias is not aligned to its element size");
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
    p.bias = desc.bias;
    p.bias_batch_stride = desc.bias_batch_stride;
    p.bias_per_row = by_rows && epilogue.bias;
  }
  if (epilogue.reduction != Reduction::none) {
    if (p.batch > 1 && p.bias_batch_stride == 0) {
      report(function, "every batch entry would write the same bias gradient: BIAS_BATCH_STRIDE is 0");
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
    if (epilogue.reduction == Reduction::result_columns) {
      if (by_rows) return HIPBLAS_STATUS_INTERNAL_ERROR;
      p.reduction = Reduction::result_columns;
    } else {
      bool of_a = epilogue.reduction == Reduction::a_rows;
      p.reduction = of_a == by_rows ? Reduction::a_rows : Reduction::b_columns;
    }
  }
  if (epilogue.aux != Aux::none) {
    if (!desc.aux) return HIPBLAS_STATUS_INVALID_VALUE;
    // The default stride comes from the ld as set, not as defaulted: with neither set the check below fails, as it does
    // in the library.
    int64_t rows = by_rows ? int64_t(l.d->rows) : p.n, columns = int64_t(l.d->columns);
    int64_t ld = desc.aux_ld > 0 ? desc.aux_ld : rows;
    __int128 stride = desc.aux_batch_stride > 0 ? desc.aux_batch_stride : static_cast<__int128>(desc.aux_ld) * columns;
    if (ld < rows || stride < static_cast<__int128>(rows) * columns || stride >> 58) {
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
    // The library takes a batch stride between m * n and ld * n, where entries overlap.
    if (columns > 1 && l.d->batch_count > 1 && stride < static_cast<__int128>(ld) * (columns - 1) + rows) {
      report(function, "entries of the aux matrix overlap: batch stride %" PRId64 ", ld %" PRId64, int64_t(stride), ld);
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
    if (by_rows || !aux_type(desc, l, types, &p.aux_type)) return HIPBLAS_STATUS_INTERNAL_ERROR;
    if (misaligned(desc.aux, p.aux_type)) {
      report(function, "the aux matrix is not aligned to its element size");
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
    p.aux_data = desc.aux;
    p.aux_row_stride = ld;
    p.aux_batch_stride = int64_t(stride);
  }
  if (p.activation == Activation::clamp) {
    p.low = desc.argument_low;
    p.high = desc.argument_high;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

// Everything after the shapes are known to be sound: scalars and pointers.
hipblasStatus_t translate_operands(const char *function, const MatmulDesc &desc, const Layouts &l,
                                   const Operands &operands, Call *call) {
  gemm::Problem &p = call->problem;
  if (!operands.alpha || !operands.beta || !operands.c || !operands.d) return HIPBLAS_STATUS_INVALID_VALUE;
  Scalar beta = read_scalar(operands.beta, desc.scale_type);
  p.beta = beta.real;
  p.beta_imaginary = beta.imaginary;
  if (has_pairs(desc) && (p.beta != 0.0 || p.beta_imaginary != 0.0)) {
    report(function, "a tile program of pairs takes no C: beta is not 0");
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  if (desc.pointer_mode != HIPBLASLT_POINTER_MODE_HOST) {
    if (l.d->order == HIPBLASLT_ORDER_ROW) return HIPBLAS_STATUS_INTERNAL_ERROR;
    if (misaligned(operands.alpha, p.compute)) {
      report(function, "the alpha vector is not aligned to its element size");
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
    p.alpha_vector = operands.alpha;
  } else {
    Scalar alpha = read_scalar(operands.alpha, desc.scale_type);
    p.alpha = alpha.real;
    p.alpha_imaginary = alpha.imaginary;
    call->skips_product = p.alpha == 0.0 && p.alpha_imaginary == 0.0;
  }
  const bool sums_operand = p.reduction == Reduction::a_rows || p.reduction == Reduction::b_columns;
  if (call->skips_product && sums_operand) {
    call->sums = p.reduction;
    call->sums_k = p.k;
    p.reduction = Reduction::none;
  }
  const bool reads_operands = !call->skips_product || (sums_operand && p.k != 0);
  if (reads_operands && (!operands.a || !operands.b)) {
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  const bool has_elements = p.k != 0;  // of A and B: the address of memory without any is never read
  if (call->skips_product) {
    p.k = 0;
    p.taken_by = 0;
  }
  bool by_rows = l.d->order == HIPBLASLT_ORDER_ROW;
  p.a.data = by_rows ? operands.a : operands.b;
  p.b.data = by_rows ? operands.b : operands.a;
  if (!call->pointer_array && ((has_elements && (misaligned(p.a.data, p.a.type) || misaligned(p.b.data, p.b.type))) ||
                               misaligned(operands.c, p.d_type) || misaligned(operands.d, p.d_type))) {
    report(function, "a matrix is not aligned to its element size");
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  bool reads_c = p.beta != 0.0 || p.beta_imaginary != 0.0;
  if (operands.c == operands.d && reads_c &&
      ((p.c_row_stride != p.d_row_stride && p.m > 1) || (p.c_batch_stride != p.d_batch_stride && p.batch > 1))) {
    report(function, "C and D are the same memory with different layouts");
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  p.c = operands.c;
  p.d = operands.d;
  return HIPBLAS_STATUS_SUCCESS;
}

// The problem of a plain product that this thread has translated: right as long as its descriptor and its layouts have
// the revisions of then.
struct Translated {
  uint64_t revisions[5];
  gemm::Problem problem;
  int32_t batch;
};

void read_revisions(const MatmulDesc &desc, const Layouts &l, uint64_t *out) {
  out[0] = matmul_descs.revision_of(&desc);
  int next = 1;
  for (const Layout *layout : {l.a, l.b, l.c, l.d}) out[next++] = layouts.revision_of(layout);
}

// Where this thread notes the translation of a descriptor, by its revision.
Translated *translated_of(const MatmulDesc &desc) {
  constexpr uint64_t most = 16;
  static thread_local Translated noted[most];
  return noted + matmul_descs.revision_of(&desc) % most;
}

// Scales, programs and pointers to pointers are read anew at each call.
bool is_noted(const MatmulDesc &desc, const Call &call) {
  return !call.empty && !call.pointer_array && !has_scales(desc) && !desc.program &&
         desc.pointer_mode == HIPBLASLT_POINTER_MODE_HOST;
}

bool find_translated(const MatmulDesc &desc, const Layouts &l, Call *call) {
  Translated *noted = translated_of(desc);
  uint64_t revisions[5];
  read_revisions(desc, l, revisions);
  if (std::memcmp(noted->revisions, revisions, sizeof revisions) != 0) return false;
  call->problem = noted->problem;
  call->batch = noted->batch;
  call->noted = &noted->problem;
  return true;
}

void note_translated(const MatmulDesc &desc, const Layouts &l, const Call &call) {
  Translated *noted = translated_of(desc);
  read_revisions(desc, l, noted->revisions);
  noted->problem = call.problem;
  noted->batch = call.batch;
}

// Of D, and of the product's rows and k: D may have half of these rows.
struct Sizes {
  uint64_t m, n, rows, k;
};

bool packed(const Layouts &l) { return l.a->order == ROCPY_EXT_ORDER_PACKED; }

bool batches_agree(const char *function, const Layouts &l) {
  if (l.a->batch_stride < 0 || l.b->batch_stride < 0 || l.c->batch_stride < 0 || l.d->batch_stride < 0) {
    report(function, "a batch stride is negative");
    return false;
  }
  int32_t batch = l.d->batch_count;
  bool a_counts = l.a->batch_count == batch || (packed(l) && l.a->batch_count == 1);
  if (batch < 1 || !a_counts || l.b->batch_count != batch || l.c->batch_count != batch) {
    report(function, "batch counts of A, B, C and D are %d, %d, %d and %d: they must be equal and positive",
           l.a->batch_count, l.b->batch_count, l.c->batch_count, batch);
    return false;
  }
  return true;
}

// How the matrices lie in memory, and which operations and types of the input that allows.
hipblasStatus_t check_orders(const MatmulDesc &desc, const Layouts &l, const ProductTypes &types, uint64_t k) {
  int32_t op_a = desc.trans_a, op_b = desc.trans_b;
  if (swizzled(*l.a)) return check_swizzle(*l.a, op_a, HIPBLAS_OP_T);
  if (swizzled(*l.b)) return check_swizzle(*l.b, op_b, HIPBLAS_OP_N);
  if ((!packed(l) && !plain_order(*l.a)) || !plain_order(*l.b) || !plain_order(*l.d) || l.c->order != l.d->order) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  // AMD's kernels of block-scaled operands read both along k; a packed one is read as it was packed.
  if (types.blocks && ((op_a == HIPBLAS_OP_N && !packed(l)) || op_b != HIPBLAS_OP_N || k % 32 != 0)) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  if ((desc.a_input_type != type_unset && desc.a_input_type != l.a->type) ||
      (desc.b_input_type != type_unset && desc.b_input_type != l.b->type)) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

// Whether each matrix has the elements that the product reads or writes.
bool matrices_fit(const char *function, const MatmulDesc &desc, const Layouts &l, const Sizes &sizes,
                  bool pointer_array) {
  bool a_plain = desc.trans_a == HIPBLAS_OP_N, b_plain = desc.trans_b == HIPBLAS_OP_N;
  if (packed(l)) {
    if (l.d->order == HIPBLASLT_ORDER_ROW || !a_plain || l.a->batch_stride != 0 || l.a->rows != sizes.rows) {
      report(function, "a packed A needs op N, batch stride 0, D in columns and as many rows as D");
      return false;
    }
  } else if (!matrix_fits(function, 'A', *l.a, a_plain ? sizes.rows : sizes.k, a_plain ? sizes.k : sizes.rows, false)) {
    return false;
  }
  if (!matrix_fits(function, 'B', *l.b, b_plain ? sizes.k : sizes.n, b_plain ? sizes.n : sizes.k, false) ||
      !matrix_fits(function, 'C', *l.c, sizes.m, sizes.n, true) ||
      !matrix_fits(function, 'D', *l.d, sizes.m, sizes.n, false)) {
    return false;
  }
  if (l.d->batch_count > 1 && l.d->batch_stride == 0 && !pointer_array && sizes.n != 0) {
    report(function, "every batch entry would write the same D: its batch stride is 0");
    return false;
  }
  return true;
}

// Shapes, types and strides, all known to be sound.
void set_matrices(const MatmulDesc &desc, const Layouts &l, const ProductTypes &types, const Sizes &sizes, Call *call) {
  gemm::Problem &p = call->problem;
  int32_t op_a = desc.trans_a, op_b = desc.trans_b;
  bool by_rows = l.d->order == HIPBLASLT_ORDER_ROW;
  p.m = int64_t(by_rows ? sizes.m : sizes.n);
  p.n = int64_t(by_rows ? sizes.n : sizes.rows);
  p.k = int64_t(sizes.k);
  call->batch = l.d->batch_count;
  p.batch = call->pointer_array ? 1 : call->batch;
  p.compute = types.compute;
  engine_type(by_rows ? l.a->type : l.b->type, &p.a.type);
  engine_type(by_rows ? l.b->type : l.a->type, &p.b.type);
  engine_type(l.d->type, &p.d_type);
  p.a.conjugated = types.complex && (by_rows ? op_a : op_b) == HIPBLAS_OP_C;
  p.b.conjugated = types.complex && (by_rows ? op_b : op_a) == HIPBLAS_OP_C;
  set_strides(by_rows ? *l.a : *l.b, by_rows ? op_a : op_b, !by_rows, &p.a);
  set_strides(by_rows ? *l.b : *l.a, by_rows ? op_b : op_a, !by_rows, &p.b);
  p.b.packed = packed(l);
  p.c_row_stride = l.c->ld;
  p.c_batch_stride = l.c->batch_stride;
  p.d_row_stride = l.d->ld;
  p.d_batch_stride = l.d->batch_stride;
}

}  // namespace

bool pointer_array_conflict(const MatmulDesc &desc) {
  return desc.epilogue != HIPBLASLT_EPILOGUE_DEFAULT || desc.pointer_mode != HIPBLASLT_POINTER_MODE_HOST ||
         desc.bias_batch_stride > 0 || desc.program ||
         (desc.a_scale && desc.a_scale_mode != HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) ||
         (desc.b_scale && desc.b_scale_mode != HIPBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
}

namespace {

// Everything but what an Operands holds.
hipblasStatus_t translate_descriptors(const char *function, const MatmulDesc &desc, const Layouts &l, bool searching,
                                      Call *call) {
  gemm::Problem &p = call->problem;
  if (l.c->type != l.d->type) return HIPBLAS_STATUS_INVALID_ENUM;
  ProductTypes types;
  if (!product_types(desc, l, &types)) return HIPBLAS_STATUS_INTERNAL_ERROR;
  int32_t op_a = desc.trans_a, op_b = desc.trans_b;
  if (op_a < HIPBLAS_OP_N || op_a > HIPBLAS_OP_C || op_b < HIPBLAS_OP_N || op_b > HIPBLAS_OP_C) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  if (!batches_agree(function, l)) return HIPBLAS_STATUS_INVALID_VALUE;
  Sizes sizes{l.d->rows, l.d->columns, l.d->rows, op_a == HIPBLAS_OP_N ? l.a->columns : l.a->rows};
  call->empty = sizes.m == 0 || sizes.n == 0;
  if (sizes.m == 0) return HIPBLAS_STATUS_SUCCESS;
  if (has_pairs(desc)) sizes.rows *= 2;
  // The library's kernels count in 32 bits.
  if ((sizes.rows | sizes.n | sizes.k) >> 31) return HIPBLAS_STATUS_INTERNAL_ERROR;

  if (scale_modes_differ(desc)) return HIPBLAS_STATUS_INVALID_VALUE;
  call->pointer_array = l.a->batch_mode == HIPBLASLT_BATCH_MODE_POINTER_ARRAY;
  if (call->pointer_array && pointer_array_conflict(desc)) return HIPBLAS_STATUS_INVALID_VALUE;
  hipblasStatus_t status = check_orders(desc, l, types, sizes.k);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  if (!matrices_fit(function, desc, l, sizes, call->pointer_array)) return HIPBLAS_STATUS_INVALID_VALUE;
  set_matrices(desc, l, types, sizes, call);

  status = translate_epilogue(function, desc, l, types, searching, call);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  if (has_scales(desc)) {
    status = translate_scales(function, desc, l, types, searching, call);
    if (status != HIPBLAS_STATUS_SUCCESS) return status;
  }
  if (desc.program) {
    status = translate_program(function, desc, l, types, searching, call);
    if (status != HIPBLAS_STATUS_SUCCESS) return status;
  }
  // Real factors by position are in the compute type; of complex and integer products there are none.
  if (desc.pointer_mode != HIPBLASLT_POINTER_MODE_HOST && p.compute != gemm::Type::f32 &&
      p.compute != gemm::Type::f64) {
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

// While algorithms are searched, alpha and beta count as 1.
hipblasStatus_t assume_factors(const MatmulDesc &desc, const Layouts &l, Call *call) {
  call->problem.beta = has_pairs(desc) ? 0.0 : 1.0;
  const bool vector_by_rows = desc.pointer_mode != HIPBLASLT_POINTER_MODE_HOST && l.d->order == HIPBLASLT_ORDER_ROW;
  return vector_by_rows ? HIPBLAS_STATUS_INTERNAL_ERROR : HIPBLAS_STATUS_SUCCESS;
}

}  // namespace

hipblasStatus_t translate(const char *function, const MatmulDesc &desc, const Layouts &l, const Operands *operands,
                          Call *call) {
  const hipblasStatus_t status = translate_descriptors(function, desc, l, operands == nullptr, call);
  if (status != HIPBLAS_STATUS_SUCCESS || l.d->rows == 0) return status;
  if (!operands) return assume_factors(desc, l, call);
  if (call->empty) return HIPBLAS_STATUS_SUCCESS;
  return translate_operands(function, desc, l, *operands, call);
}

hipblasStatus_t translate_pooled(const char *function, const MatmulDesc &desc, const Layouts &l,
                                 const Operands &operands, Call *call) {
  if (!find_translated(desc, l, call)) {
    const hipblasStatus_t status = translate_descriptors(function, desc, l, false, call);
    if (status != HIPBLAS_STATUS_SUCCESS || call->empty) return status;
    if (is_noted(desc, *call)) note_translated(desc, l, *call);
  }
  return translate_operands(function, desc, l, operands, call);
}

}  // namespace rocpy_host::lt
