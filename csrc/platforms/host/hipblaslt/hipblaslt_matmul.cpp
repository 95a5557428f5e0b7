// SPDX-License-Identifier: MIT
// hipblasLtMatmul of the host platform: at once when the stream is idle, else queued with copies of all it needs.
#include <algorithm>
#include <new>

#include "exports.h"
#include "fp_environment.h"
#include "gemm.hpp"
#include "hipblaslt_objects.hpp"
#include "hipblaslt_problem.hpp"
#include "queue.hpp"
#include "window.hpp"

namespace rocpy_host::lt {

namespace {

struct Launch {
  Call call;
  int32_t algorithm = 0;
  void *workspace = nullptr;   // aligned
  size_t workspace_bytes = 0;  // from there on
};

bool run_pointer_array(const Launch &launch) {
  gemm::Problem entry = launch.call.problem;
  auto a = static_cast<const void *const *>(entry.a.data), b = static_cast<const void *const *>(entry.b.data);
  auto c = static_cast<const void *const *>(entry.c);
  auto d = static_cast<void *const *>(entry.d);
  for (int32_t i = 0; i < launch.call.batch; ++i) {
    if (entry.k != 0) {
      entry.a.data = a[i];
      entry.b.data = b[i];
    }
    entry.c = entry.beta != 0.0 || entry.beta_imaginary != 0.0 ? c[i] : d[i];
    entry.d = d[i];
    if (!gemm::run(launch.algorithm, entry, launch.workspace, launch.workspace_bytes)) return false;
  }
  return true;
}

// A product of no elements, which has nothing but its sums.
bool run_sums(const Launch &launch) {
  gemm::Problem sums = launch.call.problem;
  sums.reduction = launch.call.sums;
  sums.k = launch.call.sums_k;
  (sums.reduction == gemm::Reduction::a_rows ? sums.n : sums.m) = 0;
  return gemm::run(launch.algorithm, sums, launch.workspace, launch.workspace_bytes);
}

inline bool run(const Launch &launch) {
  if (launch.call.pointer_array) return run_pointer_array(launch);
  if (launch.call.sums != gemm::Reduction::none && !run_sums(launch)) return false;
  return gemm::run(launch.algorithm, launch.call.problem, launch.workspace, launch.workspace_bytes);
}

// After a run: has the thread's notes of such calls say which algorithm takes them without a workspace.
void note_taken(const Launch &launch) {
  const Call &call = launch.call;
  if (!call.noted || call.skips_product || call.problem.taken_by == launch.algorithm) return;
  size_t needed = 0;
  gemm::supports(launch.algorithm, call.problem, &needed);
  if (needed == 0) call.noted->taken_by = launch.algorithm;
}

// Why the engine would not run it.
hipblasStatus_t refusal(const Launch &launch) {
  size_t needed = 0;
  if (!gemm::supports(launch.algorithm, launch.call.problem, &needed)) return HIPBLAS_STATUS_INTERNAL_ERROR;
  if (needed <= launch.workspace_bytes) return HIPBLAS_STATUS_SUCCESS;
  // An error from 1.1 on; before, the library read and wrote beyond its workspace.
  if (window().hipblaslt < 100100) report("hipblasLtMatmul", "the workspace is smaller than the algorithm needs");
  return HIPBLAS_STATUS_INVALID_VALUE;
}

struct MatmulWork final : Work {
  Launch launch;
  void run() override;
};

Pool<MatmulWork> works;

void MatmulWork::run() {
  // Whether the algorithm takes the problem was asked before it was queued.
  lt::run(launch);
  works.release(this);
}

hipblasStatus_t queue_launch(Stream *stream, const Launch &launch) {
  hipblasStatus_t status = refusal(launch);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  MatmulWork *work = works.allocate();
  if (!work) return HIPBLAS_STATUS_ALLOC_FAILED;
  work->launch = launch;
  try {
    enqueue(stream, work);
  } catch (const std::bad_alloc &) {
    works.release(work);
    return HIPBLAS_STATUS_ALLOC_FAILED;
  }
  return HIPBLAS_STATUS_SUCCESS;
}

// What a capture of the stream says; without an answer the launch goes on.
std::optional<hipblasStatus_t> capture_launch(Stream *stream, const Launch &launch) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) return std::nullopt;
  const hipblasStatus_t status = refusal(launch);
  if (status != HIPBLAS_STATUS_SUCCESS) return status;
  return captured_status(offer_to_capture(stream, hipGraphNodeTypeKernel, [launch] { lt::run(launch); }));
}

// The implicit search of a call without an algorithm, and of one whose product is skipped: the algorithm was chosen for
// another k.
bool choose_algorithm(Launch *launch) {
  gemm::Candidate candidate;
  if (gemm::rank(launch->call.problem, launch->workspace_bytes, 1, &candidate) != 1) return false;
  launch->algorithm = candidate.id;
  return true;
}

}  // namespace
}  // namespace rocpy_host::lt

using namespace rocpy_host::lt;

hipblasStatus_t rocpy_host_hipblasLtMatmul(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t desc, const void *alpha,
                                           const void *a, hipblasLtMatrixLayout_t a_layout, const void *b,
                                           hipblasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                           hipblasLtMatrixLayout_t c_layout, void *d, hipblasLtMatrixLayout_t d_layout,
                                           const hipblasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                                           hipStream_t stream) {
  const MatmulDesc *resolved_desc = matmul_descs.find(desc);
  Layouts resolved = {layouts.find(a_layout), layouts.find(b_layout), layouts.find(c_layout), layouts.find(d_layout)};
  if (!handles.find(handle) || !resolved_desc || !resolved.a || !resolved.b || !resolved.c || !resolved.d) {
    return HIPBLAS_STATUS_NOT_INITIALIZED;
  }
  if (!workspace && workspace_bytes != 0) return HIPBLAS_STATUS_INVALID_VALUE;

  const rocpy::DefaultVectorEnvironment environment;
  Launch launch;
  Operands operands = {alpha, a, b, beta, c, d};
  hipblasStatus_t status = translate_pooled("hipblasLtMatmul", *resolved_desc, resolved, operands, &launch.call);
  if (status != HIPBLAS_STATUS_SUCCESS || launch.call.empty) return status;

  launch.workspace = align_workspace(workspace);
  if (algo) {
    launch.algorithm = algo_index(algo);
    launch.workspace_bytes = engine_workspace(std::min<uint64_t>(workspace_bytes, algo_max_workspace_bytes(algo)));
  } else {
    launch.workspace_bytes = engine_workspace(workspace_bytes);
  }
  if ((!algo || launch.call.skips_product) && !choose_algorithm(&launch)) return HIPBLAS_STATUS_INTERNAL_ERROR;

  rocpy_host::Stream *queue = rocpy_host::resolve(stream);
  if (!queue) {
    report("hipblasLtMatmul", "%p is not a live stream", static_cast<const void *>(stream));
    return HIPBLAS_STATUS_INTERNAL_ERROR;
  }
  if (const auto answer = capture_launch(queue, launch)) return *answer;
  if (!rocpy_host::enter_inline(queue)) return queue_launch(queue, launch);
  bool done = run(launch);
  rocpy_host::leave_inline(queue);
  if (done) {
    note_taken(launch);
    return HIPBLAS_STATUS_SUCCESS;
  }
  status = refusal(launch);
  return status == HIPBLAS_STATUS_SUCCESS ? HIPBLAS_STATUS_INTERNAL_ERROR : status;
}
