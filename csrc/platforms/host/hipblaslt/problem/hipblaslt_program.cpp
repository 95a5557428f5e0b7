// SPDX-License-Identifier: MIT
// rocpyExtMatmulDescSetProgram and rocpyExtMatmulDescSetProgramPointers, and the check of a program against a product.
#include "hipblaslt_program.hpp"

#include <cinttypes>
#include <new>
#include <utility>

#include "exports.h"

namespace rocpy_host::lt {

namespace {

using gemm::Aux;
using gemm::Reduction;
using gemm::Type;

bool read_type(int32_t number, Type *type) { return engine_type(number, type); }

// What a program of this type of product writes.
bool written(Type type, Type compute) {
  if (type == Type::u8) return true;
  return compute == Type::f64 ? type == Type::f64 : type != Type::f64 && type != Type::i32;
}

// Whether no two elements of an output share memory, whichever of its axes lies innermost.
bool apart(const gemm::ProgramOperand &output, int64_t rows, int64_t columns, int64_t batch) {
  std::pair<int64_t, int64_t> axes[] = {
      {output.row_stride, rows}, {output.column_stride, columns}, {output.batch_stride, batch}};
  __int128 span = 1;
  bool done[3] = {};
  for (int round = 0; round < 3; round++) {
    int least = -1;
    for (int i = 0; i < 3; i++) {
      if (!done[i] && (least < 0 || axes[i].first < axes[least].first)) least = i;
    }
    done[least] = true;
    if (axes[least].second <= 1) continue;
    if (axes[least].first < span) return false;
    span = static_cast<__int128>(axes[least].first) * axes[least].second;
  }
  return true;
}

hipblasStatus_t check_pointers(const char *function, const gemm::BoundProgram &bound) {
  const gemm::Program &program = *bound.program;
  for (int i = 0; i < program.input_count; i++) {
    if (bound.inputs[i] && !misaligned(bound.inputs[i], program.inputs[i].type)) continue;
    report(function, "input %d of the tile program is null or not aligned to its element size", i);
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  for (int i = 0; i < program.output_count; i++) {
    if (bound.outputs[i] && !misaligned(bound.outputs[i], program.outputs[i].type)) continue;
    report(function, "output %d of the tile program is null or not aligned to its element size", i);
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

}  // namespace

hipblasStatus_t translate_program(const char *function, const MatmulDesc &desc, const Layouts &l,
                                  const ProductTypes &types, bool searching, Call *call) {
  gemm::Problem &p = call->problem;
  const gemm::Program &program = *desc.program->program;
  const bool by_rows = l.d->order == HIPBLASLT_ORDER_ROW;
  if (call->pointer_array) return HIPBLAS_STATUS_INVALID_VALUE;
  if (types.complex || p.d_type == Type::i32) return HIPBLAS_STATUS_INTERNAL_ERROR;
  if (p.compute == Type::f64 && program.rounds) return HIPBLAS_STATUS_INTERNAL_ERROR;
  if (program.reads_aux && p.aux != Aux::load) {
    report(function, "the tile program reads the auxiliary matrix, epilogue %" PRIu32 " does not", desc.epilogue);
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  if (program.pairs) {
    if (by_rows) return HIPBLAS_STATUS_INTERNAL_ERROR;
    if (p.aux == Aux::load || p.reduction != Reduction::none || desc.pointer_mode != HIPBLASLT_POINTER_MODE_HOST) {
      report(function, "a tile program of pairs takes no gradient epilogue and no vector of alphas");
      return HIPBLAS_STATUS_INVALID_VALUE;
    }
  }
  for (int i = 0; i < program.output_count; i++) {
    if (!written(program.outputs[i].type, p.compute)) return HIPBLAS_STATUS_INTERNAL_ERROR;
    if (apart(program.outputs[i], int64_t(l.d->rows), int64_t(l.d->columns), call->batch)) continue;
    report(function, "elements of output %d of the tile program share memory", i);
    return HIPBLAS_STATUS_INVALID_VALUE;
  }
  if (!searching && !call->empty) {
    hipblasStatus_t status = check_pointers(function, desc.program->bound);
    if (status != HIPBLAS_STATUS_SUCCESS) return status;
  }
  call->program = desc.program;
  p.program = &call->program->bound;
  p.program_transposed = !by_rows;
  return HIPBLAS_STATUS_SUCCESS;
}

}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;
namespace gemm = rocpy_host::gemm;

hipblasStatus_t rocpy_host_rocpyExtMatmulDescSetProgram(hipblasLtMatmulDesc_t desc, const rocpyExtProgram_t *program) {
  static constexpr char function[] = "rocpyExtMatmulDescSetProgram";
  MatmulDesc *entry = matmul_descs.find_to_change(desc);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!program) {
    entry->program.reset();
    return HIPBLAS_STATUS_SUCCESS;
  }
  try {
    auto prepared = std::make_shared<gemm::Program>();
    bool known = true;
    if (const char *wrong = gemm::prepare(*program, read_type, prepared.get(), &known)) {
      report(function, "the tile program is refused: %s", wrong);
      return known ? HIPBLAS_STATUS_INVALID_VALUE : HIPBLAS_STATUS_NOT_SUPPORTED;
    }
    auto binding = std::make_shared<ProgramBinding>();
    binding->bound.program = prepared.get();
    binding->program = std::move(prepared);
    entry->program = std::move(binding);
  } catch (const std::bad_alloc &) {
    return HIPBLAS_STATUS_ALLOC_FAILED;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

hipblasStatus_t rocpy_host_rocpyExtMatmulDescSetProgramPointers(hipblasLtMatmulDesc_t desc, const void *const *inputs,
                                                                void *const *outputs) {
  MatmulDesc *entry = matmul_descs.find_to_change(desc);
  if (!entry) return HIPBLAS_STATUS_NOT_INITIALIZED;
  if (!entry->program) return HIPBLAS_STATUS_INVALID_VALUE;
  const gemm::Program &program = *entry->program->program;
  if ((program.input_count && !inputs) || (program.output_count && !outputs)) return HIPBLAS_STATUS_INVALID_VALUE;
  try {
    auto binding = std::make_shared<ProgramBinding>();
    binding->program = entry->program->program;
    binding->bound.program = &program;
    for (int i = 0; i < program.input_count; i++) binding->bound.inputs[i] = inputs[i];
    for (int i = 0; i < program.output_count; i++) binding->bound.outputs[i] = outputs[i];
    entry->program = std::move(binding);
  } catch (const std::bad_alloc &) {
    return HIPBLAS_STATUS_ALLOC_FAILED;
  }
  return HIPBLAS_STATUS_SUCCESS;
}
