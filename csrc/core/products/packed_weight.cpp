// SPDX-License-Identifier: MIT
// Packs weights by the platform's own functions, and frees them with their last reader.
#include "packed_weight.hpp"

#include <pthread.h>

#include <mutex>
#include <new>

#include "capture_relaxed.hpp"
#include "device_resources.hpp"
#include "table.hpp"

namespace rocpy {
namespace {

std::atomic<int64_t> live_weights{0};

hipblasComputeType_t compute_of(int32_t type) {
  if (type == HIP_R_64F || type == HIP_C_64F) return HIPBLAS_COMPUTE_64F;
  return type == HIP_R_8I ? HIPBLAS_COMPUTE_32I : HIPBLAS_COMPUTE_32F;
}

hipblasStatus_t query_bytes(hipblasLtHandle_t handle, int32_t type, int64_t m, int64_t k, bool blocks, size_t *bytes) {
  const auto element = static_cast<hipDataType>(type);
  const auto height = static_cast<uint64_t>(m), depth = static_cast<uint64_t>(k);
  return blocks ? table.rocpyExtPackBlocksBytes(handle, element, height, depth, bytes)
                : table.rocpyExtPackBytes(handle, element, compute_of(type), height, depth, bytes);
}

// One stream of each device for memory of the process: the null stream may not be used while another thread captures a
// stream that waits for it, and using it would end that capture.
constexpr int most_devices = 64;
struct PackingStream {
  hipStream_t stream = nullptr;
  int resets = 0;  // of its device, before it was made
};
std::mutex streams_mutex;
PackingStream streams[most_devices] = {};

// A child of fork() has none of its parent's streams.
void forget_in_child() {
  new (&streams_mutex) std::mutex;
  for (PackingStream &own : streams) own = {};
}
const int at_fork = pthread_atfork(nullptr, nullptr, forget_in_child);

bool is_of_the_process(const void *data) {
  hipPointerAttribute_t attributes{};
  if (table.hipPointerGetAttributes(&attributes, data) == hipSuccess) {
    return attributes.type == hipMemoryTypeUnregistered;
  }
  clear_last_error(Library::hip);
  return true;
}

// The stream to pack on: that of the source, or one of our own where the source is in memory of the process.
Status stream_for(const StreamContext *context, const PackSpec &spec, hipStream_t *out) {
  *out = context->stream;
  const bool own = !context->stream && context->device < most_devices && is_of_the_process(spec.data) &&
                   (!spec.scales || is_of_the_process(spec.scales));
  if (!own) return {};
  std::lock_guard<std::mutex> lock(streams_mutex);
  PackingStream &packing = streams[context->device];
  const int resets = device_resets(context->device);
  if (packing.resets != resets) packing = {nullptr, resets};
  if (!packing.stream) {
    const hipError_t error = table.hipStreamCreateWithFlags(&packing.stream, hipStreamNonBlocking);
    if (error != hipSuccess) return {Library::hip, error, "hipStreamCreateWithFlags"};
  }
  *out = packing.stream;
  return {};
}

// One launch at a time on a handle; the wait for it is left to the caller.
Status pack(StreamContext *context, hipStream_t stream, const PackSpec &spec, void *packed, size_t bytes) {
  hipblasLtMatrixLayout_t layout = nullptr;
  hipblasStatus_t status =
      table.hipblasLtMatrixLayoutCreate(&layout, static_cast<hipDataType>(spec.type), static_cast<uint64_t>(spec.rows),
                                        static_cast<uint64_t>(spec.columns), spec.ld);
  if (status != HIPBLAS_STATUS_SUCCESS) return {Library::hipblaslt, status, "hipblasLtMatrixLayoutCreate"};
  const auto op = static_cast<hipblasOperation_t>(spec.op);
  {
    std::lock_guard<std::mutex> lock(context->launch_lock());
    status =
        spec.scales
            ? table.rocpyExtPackBlocks(context->handle, op, spec.data, layout, spec.scales, packed, bytes, stream)
            : table.rocpyExtPack(context->handle, op, compute_of(spec.type), spec.data, layout, packed, bytes, stream);
  }
  table.hipblasLtMatrixLayoutDestroy(layout);
  if (status == HIPBLAS_STATUS_SUCCESS) return {};
  return failed_launch(status, spec.scales ? "rocpyExtPackBlocks" : "rocpyExtPack", stream);
}

}  // namespace

bool packs_type(hipblasLtHandle_t handle, int32_t type) {
  size_t bytes = 0;
  return query_bytes(handle, type, 32, 32, false, &bytes) == HIPBLAS_STATUS_SUCCESS;
}

bool packs_blocks(hipblasLtHandle_t handle, int32_t type, int64_t m, int64_t k) {
  size_t bytes = 0;
  return query_bytes(handle, type, m, k, true, &bytes) == HIPBLAS_STATUS_SUCCESS;
}

PackedWeight::PackedWeight() { live_weights.fetch_add(1, std::memory_order_relaxed); }
PackedWeight::~PackedWeight() { live_weights.fetch_sub(1, std::memory_order_relaxed); }

int64_t PackedWeight::live() { return live_weights.load(std::memory_order_relaxed); }

Status PackedWeight::create(StreamContext *context, const PackSpec &spec, PackedWeight **out) {
  size_t bytes = 0;
  const hipblasStatus_t asked = query_bytes(context->handle, spec.type, spec.m, spec.k, spec.scales != nullptr, &bytes);
  if (asked != HIPBLAS_STATUS_SUCCESS) {
    return {Library::hipblaslt, asked, spec.scales ? "rocpyExtPackBlocksBytes" : "rocpyExtPackBytes"};
  }
  DeviceScope scope(context->device);
  if (!scope.status().ok()) return scope.status();
  CaptureRelaxed relaxed;
  auto *weight = new (std::nothrow) PackedWeight;
  if (!weight) return {Library::hip, hipErrorOutOfMemory, "PackedWeight"};
  weight->device_ = context->device;
  weight->resets_ = device_resets(context->device);
  hipStream_t stream = nullptr;
  Status status = stream_for(context, spec, &stream);
  if (status.ok()) status = {Library::hip, table.hipMalloc(&weight->data_, bytes), "hipMalloc"};
  if (status.ok()) {
    status = pack(context, stream, spec, weight->data_, bytes);
    // Waits after a failure too: what was queued before it may still write there.
    const hipError_t waited = table.hipStreamSynchronize(stream);
    if (status.ok()) status = {Library::hip, waited, "hipStreamSynchronize"};
  } else {
    weight->data_ = nullptr;
  }
  if (!status.ok()) {
    weight->release();
    return status;
  }
  *out = weight;
  return {};
}

Status PackedWeight::release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return {};
  const DeviceResource memory{ResourceKind::device_memory, device_, resets_, data_};
  delete this;
  return memory.address ? release_resource(memory) : Status{};
}

}  // namespace rocpy
