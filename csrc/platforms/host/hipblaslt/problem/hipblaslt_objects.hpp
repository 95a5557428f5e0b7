// SPDX-License-Identifier: MIT
// What lies behind hipBLASLt's opaque pointers on the host platform, and the packing of its algorithm structure.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "expression.hpp"
#include "hipblaslt_pool.hpp"
#include "types.h"

namespace rocpy_host::lt {

// Of attributes that were never set.
constexpr int32_t type_unset = 255;
constexpr int32_t scale_mode_unset = -1;

struct Handle {
  int device = 0;
  std::atomic<int32_t> sm_count_target{0};
};

struct Layout {
  int32_t type = HIP_R_32F;
  int32_t order = HIPBLASLT_ORDER_COL;
  uint64_t rows = 0, columns = 0;
  int64_t ld = 0, batch_stride = 0;
  int32_t batch_count = 1;
  int32_t batch_mode = HIPBLASLT_BATCH_MODE_STRIDED;
};

// A tile program with its pointers, as a product that may still be queued needs it: never changed, only replaced.
struct ProgramBinding {
  std::shared_ptr<const gemm::Program> program;
  gemm::BoundProgram bound{};
};

struct MatmulDesc {
  int32_t compute = HIPBLAS_COMPUTE_32F;
  int32_t scale_type = HIP_R_32F;
  int32_t trans_a = HIPBLAS_OP_N, trans_b = HIPBLAS_OP_N;
  uint32_t epilogue = HIPBLASLT_EPILOGUE_DEFAULT;
  int32_t pointer_mode = HIPBLASLT_POINTER_MODE_HOST;
  void *bias = nullptr;
  int32_t bias_type = type_unset;
  int32_t bias_batch_stride = 0;
  void *aux = nullptr;
  int64_t aux_ld = 0, aux_batch_stride = 0;
  int32_t aux_type = type_unset;
  float argument_low = 0, argument_high = 0;
  const void *a_scale = nullptr, *b_scale = nullptr, *c_scale = nullptr, *d_scale = nullptr, *aux_scale = nullptr;
  void *amax = nullptr;
  int32_t a_scale_mode = scale_mode_unset, b_scale_mode = scale_mode_unset;
  int32_t sm_count_target = 0;
  int32_t a_input_type = type_unset, b_input_type = type_unset;
  int32_t streamk_scheduling = HIPBLASLT_STREAMK_TILE_SCHEDULING_OFF;
  std::shared_ptr<const ProgramBinding> program;
};

struct Preference {
  uint32_t search_mode = 0;
  int32_t sm_count_target = 0;
  uint64_t max_workspace_bytes = 0;
};

struct TransformDesc {
  int32_t scale_type = HIP_R_32F;
  int32_t pointer_mode = HIPBLASLT_POINTER_MODE_HOST;
  int32_t trans_a = HIPBLAS_OP_N, trans_b = HIPBLAS_OP_N;
};

extern Pool<Handle> handles;
extern Pool<Layout> layouts;
extern Pool<MatmulDesc> matmul_descs;
extern Pool<Preference> preferences;
extern Pool<TransformDesc> transform_descs;

// The 24 bytes as the library itself writes them, which is not how the header declares them: solution index at 0, a
// fallback flag at 8, and the workspace cap, unaligned, at 9.
inline void write_algo(hipblasLtMatmulAlgo_t *algo, int32_t index, uint64_t max_workspace_bytes) {
  auto *bytes = reinterpret_cast<unsigned char *>(algo);
  std::memset(bytes, 0, sizeof(*algo));
  std::memcpy(bytes, &index, sizeof(index));
  std::memcpy(bytes + 9, &max_workspace_bytes, sizeof(max_workspace_bytes));
}

inline int32_t algo_index(const hipblasLtMatmulAlgo_t *algo) {
  int32_t index;
  std::memcpy(&index, algo, sizeof(index));
  return index;
}

inline uint64_t algo_max_workspace_bytes(const hipblasLtMatmulAlgo_t *algo) {
  uint64_t bytes;
  std::memcpy(&bytes, reinterpret_cast<const unsigned char *>(algo) + 9, sizeof(bytes));
  return bytes;
}

// One line on stderr, for what the real library would answer with a wrong result, a fault or nothing at all.
__attribute__((format(printf, 2, 3))) void report(const char *function, const char *format, ...);

// HIP's answer of a capture as hipBLASLt's, which has no numbers of its own for captures: HIP's last error tells.
std::optional<hipblasStatus_t> captured_status(std::optional<hipError_t> answer);

}  // namespace rocpy_host::lt
