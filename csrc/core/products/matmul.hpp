// SPDX-License-Identifier: MIT
// A planned matrix product: descriptors, layouts and algorithms of one problem, ready to launch on any stream of its
// device.
//
// hipBLASLt is column-major and takes its bias along the rows of D. A row-major product d = a @ b is therefore planned
// as the transposed one, D' = B' A': operand A of the library is the user's b, its m is the user's n, and its bias runs
// along the user's last axis. The caller (rocpy/blaslt/model) decides that; here everything is in the library's
// own terms.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "algo_extension.hpp"
#include "context.hpp"
#include "status.hpp"
#include "tile_program.hpp"
#include "types.h"

namespace rocpy {

struct LayoutSpec {
  int32_t type = 0;   // hipDataType
  int32_t order = 0;  // hipblasLtOrder_t or ROCPY_EXT_ORDER_PACKED
  int64_t rows = 0, columns = 0, ld = 0;
  int64_t batch_stride = 0;  // elements
};

// Where one operand's pointer stands for each step of an outer batch loop, in bytes.
constexpr int max_outer = 32;

enum OperandIndex {
  operand_a,
  operand_b,
  operand_c,
  operand_d,
  operand_bias,
  operand_aux,
  operand_scale_a,
  operand_scale_b,
  operand_count
};

// What a descriptor points to beside the bias and the auxiliary matrix: scales in device memory, and where the largest
// magnitude of D goes. The scales of A and B have a mode; the others are one float each.
enum ScaleIndex { scale_a, scale_b, scale_c, scale_d, scale_aux, scale_amax, scale_count };
using ScaleSet = std::bitset<scale_count>;

struct MatmulSpec {
  int32_t compute = 0, scale_type = 0;  // hipblasComputeType_t, hipDataType
  int32_t op_a = HIPBLAS_OP_N, op_b = HIPBLAS_OP_N;
  LayoutSpec a, b, c, d;
  int32_t batch_count = 1;
  uint32_t epilogue = HIPBLASLT_EPILOGUE_DEFAULT;
  bool uses_bias = false;  // read or written
  bool uses_aux = false;
  int32_t bias_type = 0, aux_type = 0;
  int64_t bias_batch_stride = 0;  // elements
  bool strides_bias = true;       // whether the release has a stride from one entry's bias to the next
  int64_t aux_ld = 0, aux_batch_stride = 0;
  float activation_low = 0.0f, activation_high = 0.0f;
  bool has_activation_arguments = false;
  AlgoTraits required_traits;                  // algorithms that do not promise them are left out
  ScaleSet scales;                             // those that the descriptor has
  int32_t scale_mode_a = 0, scale_mode_b = 0;  // hipblasLtMatmulMatrixScale_t; 0 is a scalar
  // Of a release without scale modes: the attributes that take the pointers of factors by row or column; 0 where modes
  // are set.
  int32_t vector_attribute_a = 0, vector_attribute_b = 0;
  // In place of the epilogue's activation: a program and how its inputs, then its outputs lie. `program_outer_bytes`
  // has outer_ndim steps for each of them.
  const TileProgram *program = nullptr;
  std::vector<rocpyExtProgramOperand_t> program_operands;
  std::vector<int64_t> program_outer_bytes;
  // Batch axes that no single stride describes: the library is called once for each of their positions.
  int32_t outer_ndim = 0;
  int64_t outer_shape[max_outer] = {};
  int64_t outer_stride_bytes[operand_count][max_outer] = {};
};

struct MatmulPointers {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void *d = nullptr, *bias = nullptr, *aux = nullptr;
  void *scales[scale_count] = {};
  void *const *program = nullptr;  // the program's inputs, then its outputs
};

// alpha and beta as the caller has them; launch() hands them over in the plan's scale type.
struct MatmulFactors {
  double alpha = 1.0, beta = 0.0;
  double alpha_imaginary = 0.0, beta_imaginary = 0.0;
};

struct MatmulAlgorithm {
  hipblasLtMatmulAlgo_t algo;
  size_t workspace_bytes;
  float waves;
  std::string name;  // empty where the platform does not tell
};

class MatmulPlan {
 public:
  // Plans on the context's device. No algorithm found is a success with algorithms().empty().
  static Status create(const MatmulSpec &spec, StreamContext *context, size_t max_workspace_bytes, int requested,
                       MatmulPlan **out);

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // Enqueues the product on the context's stream. Reads alpha and beta at once; needs nothing of the caller's
  // afterwards but the operands.
  Status launch(StreamContext *context, const MatmulPointers &pointers, const MatmulFactors &factors, size_t algorithm);

  const MatmulSpec &spec() const { return spec_; }
  const std::vector<MatmulAlgorithm> &algorithms() const { return algorithms_; }
  double flops() const;

  // Live plans, for the tests that look for leaks.
  static int64_t live();

 private:
  // A descriptor holds the pointers of a call, so no two threads may use one at the same time.
  struct Descriptor {
    hipblasLtMatmulDesc_t handle = nullptr;
    void *bias = nullptr, *aux = nullptr;
    void *scales[scale_count] = {};
  };

  explicit MatmulPlan(const MatmulSpec &spec);
  ~MatmulPlan();
  MatmulPlan(const MatmulPlan &) = delete;
  MatmulPlan &operator=(const MatmulPlan &) = delete;

  Status make_layouts();
  Status make_descriptor(const MatmulPointers &pointers, Descriptor *out) const;
  Status take_descriptor(const MatmulPointers &pointers, Descriptor *out);
  void give_descriptor(const Descriptor &descriptor);
  Status set_program(hipblasLtMatmulDesc_t desc) const;
  void step(MatmulPointers *at, void **program, int axis, int64_t steps) const;
  Status launch_once(StreamContext *context, const MatmulAlgorithm &chosen, Descriptor *descriptor,
                     const MatmulPointers &pointers, const void *alpha, const void *beta);
  Status keep_algorithm(StreamContext *context, hipblasLtMatmulDesc_t desc,
                        const hipblasLtMatmulHeuristicResult_t &result);
  hipblasLtMatmulDescAttributes_t scale_attribute(int scale) const;
  Status query(StreamContext *context, size_t max_workspace_bytes, int requested);

  const MatmulSpec spec_;
  hipblasLtMatrixLayout_t layout_a_ = nullptr, layout_b_ = nullptr, layout_c_ = nullptr, layout_d_ = nullptr;
  std::vector<MatmulAlgorithm> algorithms_;
  std::vector<Descriptor> descriptors_;  // those no call uses now; under the plan's lock over forks
  std::atomic<int> references_{1};
};

}  // namespace rocpy
