// SPDX-License-Identifier: MIT
// Makes plans (descriptors, layouts, heuristic query) and launches them.
#include "matmul.hpp"

#include <mutex>
#include <new>

#include "algo_extension.hpp"
#include "fork_locks.hpp"
#include "guarded.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

std::atomic<int64_t> live_plans{0};

Status lt(hipblasStatus_t status, const char *function) { return Status{Library::hipblaslt, status, function}; }

template <class T>
Status set(hipblasLtMatmulDesc_t desc, hipblasLtMatmulDescAttributes_t attribute, T value) {
  return lt(table.hipblasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
            "hipblasLtMatmulDescSetAttribute");
}

template <class T>
Status set(hipblasLtMatrixLayout_t layout, hipblasLtMatrixLayoutAttribute_t attribute, T value) {
  return lt(table.hipblasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
            "hipblasLtMatrixLayoutSetAttribute");
}

Status make_layout(const LayoutSpec &spec, int32_t batch_count, hipblasLtMatrixLayout_t *out) {
  Status status =
      lt(table.hipblasLtMatrixLayoutCreate(out, static_cast<hipDataType>(spec.type), static_cast<uint64_t>(spec.rows),
                                           static_cast<uint64_t>(spec.columns), spec.ld),
         "hipblasLtMatrixLayoutCreate");
  if (!status.ok()) return status;
  if (spec.order != HIPBLASLT_ORDER_COL) {
    status = set(*out, HIPBLASLT_MATRIX_LAYOUT_ORDER, static_cast<int32_t>(spec.order));
    if (!status.ok()) return status;
  }
  if (batch_count == 1) return Status{};
  status = set(*out, HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch_count);
  if (!status.ok()) return status;
  return set(*out, HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, spec.batch_stride);
}

constexpr hipblasLtMatmulDescAttributes_t scale_attributes[scale_count] = {
    HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER,
    HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER,
    HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER,
    HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER,
    HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER,
    HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER,
};

// A factor in the type that hipBLASLt reads it in.
union Factor {
  float real32;
  double real64;
  int32_t integer;
  float complex64[2];
  double complex128[2];
};

Factor factor_of(int32_t scale_type, double real, double imaginary) {
  Factor factor;
  switch (scale_type) {
    case HIP_R_64F:
      factor.real64 = real;
      break;
    case HIP_R_32I:
      factor.integer = static_cast<int32_t>(real);
      break;
    case HIP_C_32F:
      factor.complex64[0] = static_cast<float>(real);
      factor.complex64[1] = static_cast<float>(imaginary);
      break;
    case HIP_C_64F:
      factor.complex128[0] = real;
      factor.complex128[1] = imaginary;
      break;
    default:
      factor.real32 = static_cast<float>(real);
  }
  return factor;
}

char *advance(const void *pointer, int64_t bytes) {
  // A null operand (not given, or nothing in it) stays null.
  return pointer ? const_cast<char *>(static_cast<const char *>(pointer)) + bytes : nullptr;
}

// An operand of which the library reads nothing, since nothing lies along k, may have no memory, and the library takes
// no null pointer: an address within D's memory then, aligned for elements of any type.
const void *operand_or(const void *operand, const void *d) {
  constexpr uintptr_t alignment = 16;
  return operand ? operand : reinterpret_cast<const void *>(reinterpret_cast<uintptr_t>(d) & ~(alignment - 1));
}

}  // namespace

MatmulPlan::MatmulPlan(const MatmulSpec &spec) : spec_(spec) { live_plans.fetch_add(1, std::memory_order_relaxed); }

MatmulPlan::~MatmulPlan() {
  // Nothing can be raised from here, and nothing of this can be given back twice: a failure leaks.
  for (Descriptor &descriptor : descriptors_) table.hipblasLtMatmulDescDestroy(descriptor.handle);
  for (hipblasLtMatrixLayout_t layout : {layout_a_, layout_b_, layout_c_, layout_d_}) {
    if (layout) table.hipblasLtMatrixLayoutDestroy(layout);
  }
  live_plans.fetch_sub(1, std::memory_order_relaxed);
}

int64_t MatmulPlan::live() { return live_plans.load(std::memory_order_relaxed); }

double MatmulPlan::flops() const {
  double outer = 1;
  for (int i = 0; i < spec_.outer_ndim; ++i) outer *= static_cast<double>(spec_.outer_shape[i]);
  const int64_t k = spec_.op_a == HIPBLAS_OP_N ? spec_.a.columns : spec_.a.rows;
  const double each = spec_.d.type == HIP_C_32F || spec_.d.type == HIP_C_64F ? 8.0 : 2.0;
  return each * outer * spec_.batch_count * static_cast<double>(spec_.d.rows) * static_cast<double>(spec_.d.columns) *
         static_cast<double>(k);
}

Status MatmulPlan::make_layouts() {
  Status status = make_layout(spec_.a, spec_.batch_count, &layout_a_);
  if (status.ok()) status = make_layout(spec_.b, spec_.batch_count, &layout_b_);
  if (status.ok()) status = make_layout(spec_.c, spec_.batch_count, &layout_c_);
  if (status.ok()) status = make_layout(spec_.d, spec_.batch_count, &layout_d_);
  return status;
}

// Before there were scale modes, factors by row or column had attributes of their own.
hipblasLtMatmulDescAttributes_t MatmulPlan::scale_attribute(int scale) const {
  int32_t own = scale == scale_a ? spec_.vector_attribute_a : scale == scale_b ? spec_.vector_attribute_b : 0;
  return own ? static_cast<hipblasLtMatmulDescAttributes_t>(own) : scale_attributes[scale];
}

Status MatmulPlan::make_descriptor(const MatmulPointers &pointers, Descriptor *out) const {
  hipblasLtMatmulDesc_t desc = nullptr;
  Status status = lt(table.hipblasLtMatmulDescCreate(&desc, static_cast<hipblasComputeType_t>(spec_.compute),
                                                     static_cast<hipDataType>(spec_.scale_type)),
                     "hipblasLtMatmulDescCreate");
  if (!status.ok()) return status;
  auto apply = [&](auto attribute, auto value) {
    if (status.ok()) status = set(desc, attribute, value);
  };
  apply(HIPBLASLT_MATMUL_DESC_TRANSA, spec_.op_a);
  apply(HIPBLASLT_MATMUL_DESC_TRANSB, spec_.op_b);
  if (spec_.epilogue != HIPBLASLT_EPILOGUE_DEFAULT) apply(HIPBLASLT_MATMUL_DESC_EPILOGUE, spec_.epilogue);
  if (spec_.uses_bias) {
    // Always set: the default is not D's type everywhere.
    apply(HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, spec_.bias_type);
    apply(HIPBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
    if (spec_.bias_batch_stride) {
      apply(HIPBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, static_cast<int32_t>(spec_.bias_batch_stride));
    }
  }
  if (spec_.uses_aux) {
    // Pointer, ld and stride before the heuristic runs: without them it finds nothing, and says nothing.
    apply(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointers.aux);
    apply(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, spec_.aux_ld);
    apply(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, spec_.aux_batch_stride);
    if (spec_.aux_type != spec_.d.type) apply(HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, spec_.aux_type);
  }
  if (spec_.has_activation_arguments) {
    apply(HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG0_EXT, spec_.activation_low);
    apply(HIPBLASLT_MATMUL_DESC_EPILOGUE_ACT_ARG1_EXT, spec_.activation_high);
  }
  // A pointer without a mode is a scalar in every release; the attribute itself is not in every one.
  if (spec_.scale_mode_a && !spec_.vector_attribute_a) apply(HIPBLASLT_MATMUL_DESC_A_SCALE_MODE, spec_.scale_mode_a);
  if (spec_.scale_mode_b && !spec_.vector_attribute_b) apply(HIPBLASLT_MATMUL_DESC_B_SCALE_MODE, spec_.scale_mode_b);
  for (int i = 0; i < scale_count; ++i) {
    if (spec_.scales[i]) apply(scale_attribute(i), pointers.scales[i]);
    out->scales[i] = pointers.scales[i];
  }
  if (status.ok() && spec_.program) status = set_program(desc);
  if (!status.ok()) {
    table.hipblasLtMatmulDescDestroy(desc);
    return status;
  }
  out->handle = desc;
  out->bias = pointers.bias;
  out->aux = pointers.aux;
  return Status{};
}

Status MatmulPlan::set_program(hipblasLtMatmulDesc_t desc) const {
  const TileProgram &program = *spec_.program;
  rocpyExtProgram_t ext_program{};
  ext_program.instruction_count = static_cast<uint32_t>(program.code.size());
  ext_program.register_count = program.register_count;
  ext_program.input_count = program.input_count;
  ext_program.output_count = program.output_count;
  ext_program.result = program.result;
  ext_program.flags = program.flags;
  ext_program.instructions = program.code.data();
  ext_program.inputs = spec_.program_operands.data();
  ext_program.outputs = ext_program.inputs + program.input_count;
  return lt(table.rocpyExtMatmulDescSetProgram(desc, &ext_program), "rocpyExtMatmulDescSetProgram");
}

Status MatmulPlan::take_descriptor(const MatmulPointers &pointers, Descriptor *out) {
  {
    std::lock_guard<SpinLock> lock(lock_over_forks(this));
    if (!descriptors_.empty()) {
      *out = descriptors_.back();
      descriptors_.pop_back();
    }
  }
  return out->handle ? Status{} : make_descriptor(pointers, out);
}

void MatmulPlan::give_descriptor(const Descriptor &descriptor) {
  const Status retained = guarded("hipblasLtMatmulDescCreate", [&] {
    std::lock_guard<SpinLock> lock(lock_over_forks(this));
    descriptors_.push_back(descriptor);
    return Status{};
  });
  if (!retained.ok()) table.hipblasLtMatmulDescDestroy(descriptor.handle);
}

Status MatmulPlan::keep_algorithm(StreamContext *context, hipblasLtMatmulDesc_t desc,
                                  const hipblasLtMatmulHeuristicResult_t &result) {
  AlgoTraits traits;
  if (spec_.required_traits.any()) {
    const Status status =
        algo_traits(context->handle, result.algo, desc, layout_a_, layout_b_, layout_c_, layout_d_, &traits);
    if (!status.ok()) return status;
  }
  if (!traits.include(spec_.required_traits)) return Status{};
  std::string name;  // stays empty where nobody tells it
  algo_name(context->handle, result.algo, &name);
  algorithms_.push_back({result.algo, result.workspaceSize, result.wavesCount, name});
  return Status{};
}

Status MatmulPlan::query(StreamContext *context, size_t max_workspace_bytes, int requested) {
  // The heuristic asks only whether pointers are there; the launch sets the real ones. 64 is aligned as any operand may
  // be.
  void *const somewhere = reinterpret_cast<void *>(uintptr_t{64});
  MatmulPointers pointers;
  pointers.bias = spec_.uses_bias ? somewhere : nullptr;
  pointers.aux = spec_.uses_aux ? somewhere : nullptr;
  for (int i = 0; i < scale_count; ++i) pointers.scales[i] = spec_.scales[i] ? somewhere : nullptr;
  Descriptor descriptor;
  Status status = take_descriptor(pointers, &descriptor);
  if (!status.ok()) return status;
  std::vector<hipblasLtMatmulHeuristicResult_t> results;
  hipblasLtMatmulPreference_t preference = nullptr;
  status = guarded("hipblasLtMatmulAlgoGetHeuristic", [&] {
    results.resize(static_cast<size_t>(requested));
    return Status{};
  });
  if (status.ok()) status = lt(table.hipblasLtMatmulPreferenceCreate(&preference), "hipblasLtMatmulPreferenceCreate");
  if (status.ok()) {
    uint64_t limit = max_workspace_bytes;
    status = lt(table.hipblasLtMatmulPreferenceSetAttribute(preference, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                            &limit, sizeof limit),
                "hipblasLtMatmulPreferenceSetAttribute");
    int returned = 0;
    if (status.ok()) {
      std::lock_guard<std::mutex> lock(context->launch_lock());
      status =
          lt(table.hipblasLtMatmulAlgoGetHeuristic(context->handle, descriptor.handle, layout_a_, layout_b_, layout_c_,
                                                   layout_d_, preference, requested, results.data(), &returned),
             "hipblasLtMatmulAlgoGetHeuristic");
    }
    for (int i = 0; status.ok() && i < returned; ++i) {
      status = guarded("hipblasLtMatmulAlgoGetHeuristic",
                       [&] { return keep_algorithm(context, descriptor.handle, results[static_cast<size_t>(i)]); });
    }
    table.hipblasLtMatmulPreferenceDestroy(preference);
  }
  give_descriptor(descriptor);
  return status;
}

Status MatmulPlan::create(const MatmulSpec &spec, StreamContext *context, size_t max_workspace_bytes, int requested,
                          MatmulPlan **out) {
  MatmulPlan *plan = nullptr;
  try {
    plan = new MatmulPlan(spec);
    DeviceScope scope(context->device);
    Status status = scope.status();
    if (status.ok()) status = plan->make_layouts();
    if (status.ok()) status = plan->query(context, max_workspace_bytes, requested);
    if (status.ok()) {
      *out = plan;
      return status;
    }
    plan->release();
    return status;
  } catch (const std::bad_alloc &) {
    if (plan) plan->release();
    return lt(HIPBLAS_STATUS_ALLOC_FAILED, "hipblasLtMatmulDescCreate");
  }
}

void MatmulPlan::step(MatmulPointers *at, void **program, int axis, int64_t steps) const {
  auto move = [&](auto *pointer, OperandIndex operand) {
    *pointer = advance(*pointer, steps * spec_.outer_stride_bytes[operand][axis]);
  };
  move(&at->a, operand_a);
  move(&at->b, operand_b);
  move(&at->c, operand_c);
  move(&at->d, operand_d);
  move(&at->bias, operand_bias);
  move(&at->aux, operand_aux);
  move(&at->scales[scale_a], operand_scale_a);
  move(&at->scales[scale_b], operand_scale_b);
  for (size_t i = 0; i < spec_.program_operands.size(); ++i) {
    const size_t index = i * static_cast<size_t>(spec_.outer_ndim) + static_cast<size_t>(axis);
    program[i] = advance(program[i], steps * spec_.program_outer_bytes[index]);
  }
}

Status MatmulPlan::launch_once(StreamContext *context, const MatmulAlgorithm &chosen, Descriptor *descriptor,
                               const MatmulPointers &pointers, const void *alpha, const void *beta) {
  if (spec_.uses_bias && descriptor->bias != pointers.bias) {
    Status status = set(descriptor->handle, HIPBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.bias);
    if (!status.ok()) return status;
    descriptor->bias = pointers.bias;
  }
  if (spec_.uses_aux && descriptor->aux != pointers.aux) {
    Status status = set(descriptor->handle, HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointers.aux);
    if (!status.ok()) return status;
    descriptor->aux = pointers.aux;
  }
  for (int i = 0; spec_.scales.any() && i < scale_count; ++i) {
    if (!spec_.scales[i]) continue;
    // Scales of no blocks may have no memory either.
    void *scale = pointers.scales[i] ? pointers.scales[i] : pointers.d;
    if (descriptor->scales[i] == scale) continue;
    Status status = set(descriptor->handle, scale_attribute(i), scale);
    if (!status.ok()) return status;
    descriptor->scales[i] = scale;
  }
  if (!spec_.program_operands.empty()) {
    // Inputs and outputs change with every call, and setting them is no more than comparing them first.
    Status status = lt(table.rocpyExtMatmulDescSetProgramPointers(descriptor->handle, pointers.program,
                                                                  pointers.program + spec_.program->input_count),
                       "rocpyExtMatmulDescSetProgramPointers");
    if (!status.ok()) return status;
  }
  // C must be a pointer even where beta is 0 and it is not read. A workspace of no bytes is passed as none: a size
  // without a pointer is refused, a pointer without a size is not.
  const hipblasStatus_t status = table.hipblasLtMatmul(
      context->handle, descriptor->handle, alpha, operand_or(pointers.a, pointers.d), layout_a_,
      operand_or(pointers.b, pointers.d), layout_b_, beta, pointers.c ? pointers.c : pointers.d, layout_c_, pointers.d,
      layout_d_, &chosen.algo, chosen.workspace_bytes ? context->workspace : nullptr, chosen.workspace_bytes,
      context->stream);
  return status == HIPBLAS_STATUS_SUCCESS ? Status{} : failed_launch(status, "hipblasLtMatmul", context->stream);
}

Status MatmulPlan::launch(StreamContext *context, const MatmulPointers &pointers, const MatmulFactors &factors,
                          size_t algorithm) {
  const MatmulAlgorithm &chosen = algorithms_[algorithm];
  DeviceScope scope(context->device);
  if (!scope.status().ok()) return scope.status();
  Descriptor descriptor;
  Status status = take_descriptor(pointers, &descriptor);
  if (!status.ok()) return status;

  const Factor alpha = factor_of(spec_.scale_type, factors.alpha, factors.alpha_imaginary);
  const Factor beta = factor_of(spec_.scale_type, factors.beta, factors.beta_imaginary);

  std::unique_lock<std::mutex> lock(context->launch_lock());
  context->launching.store(true, std::memory_order_relaxed);
  if (chosen.workspace_bytes > context->workspace_bytes) status = reserve_workspace(context, chosen.workspace_bytes);
  if (spec_.outer_ndim == 0) {
    if (status.ok()) status = launch_once(context, chosen, &descriptor, pointers, &alpha, &beta);
  } else {
    int64_t position[max_outer] = {};
    MatmulPointers at = pointers;
    void *program[ROCPY_EXT_PROGRAM_MOST_INPUTS + ROCPY_EXT_PROGRAM_MOST_OUTPUTS] = {};
    for (size_t i = 0; i < spec_.program_operands.size(); ++i) program[i] = pointers.program[i];
    at.program = program;
    while (status.ok()) {
      status = launch_once(context, chosen, &descriptor, at, &alpha, &beta);
      int axis = spec_.outer_ndim - 1;
      for (; axis >= 0; --axis) {
        step(&at, program, axis, 1);
        if (++position[axis] < spec_.outer_shape[axis]) break;
        step(&at, program, axis, -spec_.outer_shape[axis]);
        position[axis] = 0;
      }
      if (axis < 0) break;
    }
  }
  context->launching.store(false, std::memory_order_relaxed);
  lock.unlock();
  give_descriptor(descriptor);
  return status;
}

}  // namespace rocpy
