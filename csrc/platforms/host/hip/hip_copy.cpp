// SPDX-License-Identifier: MIT
// HIP rows that copy and fill memory.
#include "graph.hpp"
#include "hip_call.hpp"
#include "hip_memory.hpp"

#include <algorithm>
#include <cstring>

namespace rocpy_host {

namespace {

enum class Waiting { until_done, no };

// The stream in whose order a copy happens, as HIP has it (ihipMemcpyCommand of hipamd): that of the call, but the null
// stream of the device that owns the memory if all of it is another device's. Memory of the host that HIP gave out
// counts as its device's where there is no other. A copy between two devices stays in the stream of the call.
Stream *stream_of_copy(Stream *stream, const void *dst, const void *src) {
  Allocation to, from;
  const bool is_to_known = find_allocation(dst, &to), is_from_known = find_allocation(src, &from);
  if (!is_to_known && !is_from_known) {
    return stream;
  }
  const bool is_to_device = is_to_known && to.kind == MemoryKind::device;
  const bool is_from_device = is_from_known && from.kind == MemoryKind::device;
  if (is_to_device && is_from_device && to.device != from.device) {
    return stream;
  }
  const int owner = is_from_device   ? from.device
                    : is_to_device   ? to.device
                    : !is_to_known   ? from.device
                    : !is_from_known ? to.device
                                     : (stream->device == to.device ? to : from).device;
  return owner == stream->device ? stream : &runtime().devices[owner].null_stream;
}

// Runs the function in the order of `executor`, after what `stream` has to do by now and before what it does later.
template <class Function>
hipError_t submit_elsewhere(Stream *stream, Stream *executor, Waiting waiting, Function function) {
  if (const auto answer = capture_forbids_work(executor)) {
    return *answer;
  }
  const Point before{stream, enqueue_function_item(stream, [] {}, ItemKind::mark, nullptr)};
  const Point copied{executor, enqueue_function_item(executor, std::move(function), ItemKind::work, &before)};
  if (waiting == Waiting::until_done) {
    return wait(executor, copied.ticket) ? hipSuccess : hipErrorDeinitialized;
  }
  enqueue_function_item(stream, [] {}, ItemKind::mark, &copied);
  return hipSuccess;
}

// As a node of a graph. No kind: the function fills.
template <class Function>
std::optional<hipError_t> capture(Stream *stream, std::optional<hipMemcpyKind> kind, const Function &function) {
  if (captures_in_progress.load(std::memory_order_relaxed) == 0) return std::nullopt;
  Node node;
  node.type = kind.has_value() ? hipGraphNodeTypeMemcpy : hipGraphNodeTypeMemset;
  node.kind = kind.value_or(node.kind);
  node.work = function;
  return capture_node(stream, std::move(node));
}

// Hands the function over in the order of `executor`; with Waiting::until_done it has run on return. A capture of the
// call's stream takes it if the caller did not ask to wait: `wanted`.
template <class Function>
hipError_t submit(Stream *stream, Stream *executor, std::optional<hipMemcpyKind> kind, Waiting wanted, Waiting waiting,
                  Function function) {
  if (const auto answer =
          wanted == Waiting::until_done ? capture_forbids_wait(stream, false) : capture(stream, kind, function)) {
    return *answer;
  }
  if (executor != stream) {
    return submit_elsewhere(stream, executor, waiting, std::move(function));
  }
  if (waiting == Waiting::no) {
    in_order(stream, function);
    return hipSuccess;
  }
  return in_order_and_wait(stream, function) ? hipSuccess : hipErrorDeinitialized;
}

hipError_t check_kind(hipMemcpyKind kind) {
  const auto number = static_cast<unsigned>(kind);
  return number <= hipMemcpyDefault || number == hipMemcpyDeviceToDeviceNoCU ? hipSuccess
                                                                             : hipErrorInvalidMemcpyDirection;
}

// Where host memory is foreign, a copy that claims a device side must have one.
bool is_direction_possible(const void *dst, const void *src, hipMemcpyKind kind) {
  if (kind == hipMemcpyHostToHost || kind == hipMemcpyDefault || is_host_memory_shared()) {
    return true;
  }
  Allocation allocation;
  return find_allocation(dst, &allocation) || find_allocation(src, &allocation);
}

// HIP's documented exception: an asynchronous copy between an allocation of its own and memory that it knows nothing
// about has happened when the call returns. Where both sides are unknown they are device memory of this platform, and
// the copy is as asynchronous as any.
Waiting waiting_for(const void *dst, const void *src, hipMemcpyKind kind, Waiting wanted) {
  Allocation allocation;
  const bool is_staged =
      kind != hipMemcpyHostToHost && find_allocation(dst, &allocation) != find_allocation(src, &allocation);
  return is_staged ? Waiting::until_done : wanted;
}

hipError_t copy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind, hipStream_t handle, Waiting waiting) {
  if (bytes == 0) {
    return resolve(handle) != nullptr ? hipSuccess : hipErrorContextIsDestroyed;
  }
  if (const hipError_t error = check_copy(dst, src, bytes, kind)) {
    return error;
  }
  Stream *stream = resolve(handle);
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  return submit(stream, stream_of_copy(stream, dst, src), kind, waiting, waiting_for(dst, src, kind, waiting),
                [=] { std::memmove(dst, src, bytes); });
}

hipError_t copy_peer(void *dst, int dst_device, const void *src, int src_device, size_t bytes, hipStream_t handle,
                     Waiting waiting) {
  const int count = runtime().device_count;
  if (dst_device < 0 || dst_device >= count || src_device < 0 || src_device >= count) {
    return hipErrorInvalidDevice;
  }
  return copy(dst, src, bytes, hipMemcpyDeviceToDevice, handle, waiting);
}

// Bytes from the first to the last one that `height` rows touch; false if that is no size.
bool span_of(size_t pitch, size_t width, size_t height, size_t *bytes) {
  return !__builtin_mul_overflow(pitch, height - 1, bytes) && !__builtin_add_overflow(*bytes, width, bytes);
}

// Rows of `width` bytes, `height` of them in each of `depth` slices, on each side at its own distances.
struct Box {
  char *dst;
  const char *src;
  size_t dst_pitch, src_pitch, dst_slice, src_slice;
  size_t width, height, depth;

  bool is_empty() const { return width == 0 || height == 0 || depth == 0; }
  void copy() const {
    for (size_t slice = 0; slice < depth; ++slice) {
      for (size_t row = 0; row < height; ++row) {
        std::memmove(dst + slice * dst_slice + row * dst_pitch, src + slice * src_slice + row * src_pitch, width);
      }
    }
  }
};

// Bytes from the first to the last one that the slices of a box touch.
bool span_of(size_t slice, size_t pitch, const Box &box, size_t *bytes) {
  size_t last = 0;
  return span_of(pitch, box.width, box.height, &last) && span_of(slice, last, box.depth, bytes);
}

hipError_t check_box(const Box &box, hipMemcpyKind kind) {
  if (box.dst == nullptr || box.src == nullptr) {
    return hipErrorInvalidValue;
  }
  if (const hipError_t error = check_kind(kind)) {
    return error;
  }
  if (box.dst_pitch < box.width || box.src_pitch < box.width) {
    return hipErrorInvalidPitchValue;
  }
  size_t dst_bytes, src_bytes;
  const bool is_possible = span_of(box.dst_slice, box.dst_pitch, box, &dst_bytes) &&
                           span_of(box.src_slice, box.src_pitch, box, &src_bytes) &&
                           is_range_valid(box.dst, dst_bytes) && is_range_valid(box.src, src_bytes) &&
                           is_direction_possible(box.dst, box.src, kind);
  return is_possible ? hipSuccess : hipErrorInvalidValue;
}

hipError_t copy_box(const Box &box, hipMemcpyKind kind, hipStream_t handle, Waiting waiting) {
  if (!box.is_empty()) {
    if (const hipError_t error = check_box(box, kind)) {
      return error;
    }
  }
  Stream *stream = resolve(handle);
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  if (box.is_empty()) {
    return hipSuccess;
  }
  return submit(stream, stream_of_copy(stream, box.dst, box.src), kind, waiting,
                waiting_for(box.dst, box.src, kind, waiting), [box] { box.copy(); });
}

Box box_of_rows(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height) {
  return {static_cast<char *>(dst), static_cast<const char *>(src), dst_pitch, src_pitch, 0, 0, width, height, 1};
}

// Where a position in pitched memory is, and how far its slices lie apart. False: the extent leaves the rows or the
// slices. The extent's slices need a distance only where there are several.
bool find_corner(const hipPitchedPtr &memory, const hipPos &at, const hipExtent &extent, char **corner, size_t *slice) {
  size_t last_byte, last_row, rows, offset;
  if (__builtin_add_overflow(at.x, extent.width, &last_byte) || last_byte > memory.pitch ||
      __builtin_add_overflow(at.y, extent.height, &last_row) ||
      ((extent.depth > 1 || at.z != 0) && last_row > memory.ysize) ||
      __builtin_mul_overflow(memory.pitch, memory.ysize, slice) || __builtin_mul_overflow(at.z, *slice, &offset) ||
      __builtin_mul_overflow(at.y, memory.pitch, &rows) || __builtin_add_overflow(offset, rows, &offset) ||
      __builtin_add_overflow(offset, at.x, &offset)) {
    return false;
  }
  *corner = memory.ptr == nullptr ? nullptr : static_cast<char *>(memory.ptr) + offset;
  return true;
}

// There are no arrays here, whose elements would be the extent's unit.
hipError_t box_of(const hipMemcpy3DParms &params, Box *box) {
  if (params.srcArray != nullptr || params.dstArray != nullptr) {
    return hipErrorNotSupported;
  }
  const hipExtent &extent = params.extent;
  const bool has_rows = extent.width != 0 && extent.height != 0 && extent.depth != 0;
  if (has_rows && (params.dstPtr.pitch < extent.width || params.srcPtr.pitch < extent.width)) {
    return hipErrorInvalidPitchValue;
  }
  char *dst = nullptr, *src = nullptr;
  size_t dst_slice = 0, src_slice = 0;
  if (has_rows && (!find_corner(params.dstPtr, params.dstPos, extent, &dst, &dst_slice) ||
                   !find_corner(params.srcPtr, params.srcPos, extent, &src, &src_slice))) {
    return hipErrorInvalidValue;
  }
  *box = {dst,       src,          params.dstPtr.pitch, params.srcPtr.pitch, dst_slice,
          src_slice, extent.width, extent.height,       extent.depth};
  return hipSuccess;
}

hipError_t copy_3d(const hipMemcpy3DParms *params, hipStream_t stream, Waiting waiting) {
  Box box;
  const hipError_t status = params == nullptr ? hipErrorInvalidValue : box_of(*params, &box);
  return status != hipSuccess ? status : copy_box(box, params->kind, stream, waiting);
}

hipError_t copy_3d_peer(const hipMemcpy3DPeerParms *params, hipStream_t stream, Waiting waiting) {
  if (params == nullptr) {
    return hipErrorInvalidValue;
  }
  if (!is_device(params->srcDevice) || !is_device(params->dstDevice)) {
    return hipErrorInvalidDevice;
  }
  const hipMemcpy3DParms same = {params->srcArray, params->srcPos, params->srcPtr, params->dstArray,
                                 params->dstPos,   params->dstPtr, params->extent, hipMemcpyDeviceToDevice};
  return copy_3d(&same, stream, waiting);
}

// Memory that may be filled: a device's, or any where host memory is shared.
bool is_fillable(const void *pointer, size_t bytes) {
  Allocation allocation;
  return is_range_valid(pointer, bytes) && (is_host_memory_shared() || find_allocation(pointer, &allocation));
}

template <class Element>
hipError_t fill(void *dst, Element value, size_t count, hipStream_t handle, Waiting waiting) {
  Stream *stream = resolve(handle);
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  if (count == 0) {
    return hipSuccess;
  }
  size_t bytes;
  if (__builtin_mul_overflow(count, sizeof(Element), &bytes) || !is_fillable(dst, bytes) ||
      reinterpret_cast<uintptr_t>(dst) % sizeof(Element) != 0) {
    return hipErrorInvalidValue;
  }
  return submit(stream, stream, std::nullopt, waiting, waiting,
                [=] { std::fill_n(static_cast<Element *>(dst), count, value); });
}

// Rows of `width` bytes at a distance, `height` of them in each of `depth` slices.
struct FilledBox {
  char *dst;
  size_t pitch, slice, width, height, depth;
};

hipError_t fill_box(const FilledBox &box, int value, hipStream_t handle, Waiting waiting) {
  Stream *stream = resolve(handle);
  if (stream == nullptr) {
    return hipErrorContextIsDestroyed;
  }
  if (box.width == 0 || box.height == 0 || box.depth == 0) {
    return hipSuccess;
  }
  size_t slice_bytes, bytes;
  if (box.pitch < box.width || !span_of(box.pitch, box.width, box.height, &slice_bytes) ||
      (box.depth > 1 && box.slice < slice_bytes) || !span_of(box.slice, slice_bytes, box.depth, &bytes) ||
      !is_fillable(box.dst, bytes)) {
    return hipErrorInvalidValue;
  }
  return submit(stream, stream, std::nullopt, waiting, waiting, [=] {
    for (size_t slice = 0; slice < box.depth; ++slice) {
      for (size_t row = 0; row < box.height; ++row) {
        std::memset(box.dst + slice * box.slice + row * box.pitch, value, box.width);
      }
    }
  });
}

hipError_t fill_2d(void *dst, size_t pitch, int value, size_t width, size_t height, hipStream_t handle,
                   Waiting waiting) {
  return fill_box({static_cast<char *>(dst), pitch, 0, width, height, 1}, value, handle, waiting);
}

hipError_t fill_3d(const hipPitchedPtr &memory, int value, const hipExtent &extent, hipStream_t handle,
                   Waiting waiting) {
  size_t slice = 0;
  if (__builtin_mul_overflow(memory.pitch, memory.ysize, &slice)) {
    return hipErrorInvalidValue;
  }
  return fill_box({static_cast<char *>(memory.ptr), memory.pitch, slice, extent.width, extent.height, extent.depth},
                  value, handle, waiting);
}

template <class Element>
void fill_rows(const hipMemsetParams &params) {
  for (size_t row = 0; row < params.height; ++row) {
    auto *first = reinterpret_cast<Element *>(static_cast<char *>(params.dst) + row * params.pitch);
    std::fill_n(first, params.width, static_cast<Element>(params.value));
  }
}

}  // namespace

hipError_t check_copy(const void *dst, const void *src, size_t bytes, hipMemcpyKind kind) {
  if (dst == nullptr || src == nullptr) {
    return hipErrorInvalidValue;
  }
  if (const hipError_t error = check_kind(kind)) {
    return error;
  }
  const bool is_possible =
      is_range_valid(dst, bytes) && is_range_valid(src, bytes) && is_direction_possible(dst, src, kind);
  return is_possible ? hipSuccess : hipErrorInvalidValue;
}

hipError_t make_copy(const hipMemcpy3DParms &params, std::function<void()> *copy) {
  Box box;
  hipError_t status = box_of(params, &box);
  if (status == hipSuccess) {
    status = box.is_empty() ? hipErrorInvalidValue : check_box(box, params.kind);
  }
  if (status == hipSuccess) {
    *copy = [box] { box.copy(); };
  }
  return status;
}

bool make_fill(const hipMemsetParams &params, std::function<void()> *fill) {
  const size_t size = params.elementSize;
  size_t row_bytes, bytes;
  if ((size != 1 && size != 2 && size != 4) || params.width == 0 || params.height == 0 ||
      reinterpret_cast<uintptr_t>(params.dst) % size != 0 || (params.height > 1 && params.pitch % size != 0) ||
      __builtin_mul_overflow(params.width, size, &row_bytes) || (params.height > 1 && params.pitch < row_bytes) ||
      !span_of(params.pitch, row_bytes, params.height, &bytes) || !is_fillable(params.dst, bytes)) {
    return false;
  }
  *fill = [params] {
    const auto rows = params.elementSize == 1   ? fill_rows<uint8_t>
                      : params.elementSize == 2 ? fill_rows<uint16_t>
                                                : fill_rows<uint32_t>;
    rows(params);
  };
  return true;
}

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipMemcpy(void *dst, const void *src, size_t bytes, hipMemcpyKind kind) {
  return hip_call([=] { return copy(dst, src, bytes, kind, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpyAsync(void *dst, const void *src, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  return hip_call([=] { return copy(dst, src, bytes, kind, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemcpyWithStream(void *dst, const void *src, size_t bytes, hipMemcpyKind kind,
                                          hipStream_t stream) {
  return hip_call([=] { return copy(dst, src, bytes, kind, stream, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpyHtoD(void *dst, const void *src, size_t bytes) {
  return hip_call([=] { return copy(dst, src, bytes, hipMemcpyHostToDevice, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpyDtoH(void *dst, void *src, size_t bytes) {
  return hip_call([=] { return copy(dst, src, bytes, hipMemcpyDeviceToHost, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpyDtoD(void *dst, void *src, size_t bytes) {
  return hip_call([=] { return copy(dst, src, bytes, hipMemcpyDeviceToDevice, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpyHtoDAsync(void *dst, const void *src, size_t bytes, hipStream_t stream) {
  return hip_call([=] { return copy(dst, src, bytes, hipMemcpyHostToDevice, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemcpyDtoHAsync(void *dst, void *src, size_t bytes, hipStream_t stream) {
  return hip_call([=] { return copy(dst, src, bytes, hipMemcpyDeviceToHost, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemcpyDtoDAsync(void *dst, void *src, size_t bytes, hipStream_t stream) {
  return hip_call([=] { return copy(dst, src, bytes, hipMemcpyDeviceToDevice, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t bytes) {
  return hip_call([=] { return copy_peer(dst, dst_device, src, src_device, bytes, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                                         hipStream_t stream) {
  return hip_call([=] { return copy_peer(dst, dst_device, src, src_device, bytes, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                                  size_t height, hipMemcpyKind kind) {
  return hip_call([=] {
    return copy_box(box_of_rows(dst, dst_pitch, src, src_pitch, width, height), kind, nullptr, Waiting::until_done);
  });
}

hipError_t rocpy_host_hipMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                                       size_t height, hipMemcpyKind kind, hipStream_t stream) {
  return hip_call(
      [=] { return copy_box(box_of_rows(dst, dst_pitch, src, src_pitch, width, height), kind, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemset(void *dst, int value, size_t bytes) {
  return hip_call([=] { return fill(dst, static_cast<unsigned char>(value), bytes, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemsetAsync(void *dst, int value, size_t bytes, hipStream_t stream) {
  return hip_call([=] { return fill(dst, static_cast<unsigned char>(value), bytes, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemsetD8(void *dst, unsigned char value, size_t count) {
  return hip_call([=] { return fill(dst, value, count, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemsetD8Async(void *dst, unsigned char value, size_t count, hipStream_t stream) {
  return hip_call([=] { return fill(dst, value, count, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemsetD16(void *dst, unsigned short value, size_t count) {
  return hip_call([=] { return fill(dst, value, count, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemsetD16Async(void *dst, unsigned short value, size_t count, hipStream_t stream) {
  return hip_call([=] { return fill(dst, value, count, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemsetD32(void *dst, int value, size_t count) {
  return hip_call([=] { return fill(dst, value, count, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemsetD32Async(void *dst, int value, size_t count, hipStream_t stream) {
  return hip_call([=] { return fill(dst, value, count, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemset2D(void *dst, size_t pitch, int value, size_t width, size_t height) {
  return hip_call([=] { return fill_2d(dst, pitch, value, width, height, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemset2DAsync(void *dst, size_t pitch, int value, size_t width, size_t height,
                                       hipStream_t stream) {
  return hip_call([=] { return fill_2d(dst, pitch, value, width, height, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemcpy3D(const hipMemcpy3DParms *params) {
  return hip_call([=] { return copy_3d(params, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpy3DAsync(const hipMemcpy3DParms *params, hipStream_t stream) {
  return hip_call([=] { return copy_3d(params, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemcpy3DPeer(hipMemcpy3DPeerParms *params) {
  return hip_call([=] { return copy_3d_peer(params, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemcpy3DPeerAsync(hipMemcpy3DPeerParms *params, hipStream_t stream) {
  return hip_call([=] { return copy_3d_peer(params, stream, Waiting::no); });
}

hipError_t rocpy_host_hipMemset3D(hipPitchedPtr memory, int value, hipExtent extent) {
  return hip_call([=] { return fill_3d(memory, value, extent, nullptr, Waiting::until_done); });
}

hipError_t rocpy_host_hipMemset3DAsync(hipPitchedPtr memory, int value, hipExtent extent, hipStream_t stream) {
  return hip_call([=] { return fill_3d(memory, value, extent, stream, Waiting::no); });
}
