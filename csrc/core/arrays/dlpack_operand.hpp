// SPDX-License-Identifier: MIT
// Reads a DLTensor into an Operand and says what is wrong with it, trusting nothing that the producer wrote.
#pragma once

#include "array_types.hpp"
#include "operand.hpp"

namespace rocpy {

enum Fault : int {
  fault_none = 0,
  fault_dims,
  fault_null_shape,
  fault_negative_extent,
  fault_too_large,
  fault_type,
  fault_null_data,
  fault_misaligned,
};

inline const char *fault_message(int fault) {
  switch (fault) {
    case fault_dims:
      return "its number of dimensions is negative or above 32";
    case fault_null_shape:
      return "its shape pointer is null";
    case fault_negative_extent:
      return "an extent of its shape is negative";
    case fault_too_large:
      return "its extents or strides exceed the address space";
    case fault_type:
      return "its element type is none of rocpy's; convert it first";
    case fault_null_data:
      return "its data pointer is null although it has elements";
    case fault_misaligned:
      return "its data pointer is not a multiple of the element size";
    default:
      return "";
  }
}

// Largest distance in bytes that an operand may span; keeps every later index computation inside int64.
constexpr int64_t max_reach = int64_t(1) << 62;

// Checks extents and strides already in *out and fills compact strides when asked. Sets *elements.
inline int check_extents(Operand *out, int64_t bytes, bool compact, int64_t *elements) {
  int64_t count = 1;
  bool empty = false;
  for (int i = 0; i < out->ndim; ++i) {
    if (out->shape[i] < 0) return fault_negative_extent;
    if (out->shape[i] == 0) empty = true;
  }
  if (compact) {
    for (int i = out->ndim - 1; i >= 0; --i) {
      out->strides[i] = count;
      if (__builtin_mul_overflow(count, out->shape[i] == 0 ? 1 : out->shape[i], &count)) return fault_too_large;
    }
  } else {
    for (int i = 0; i < out->ndim; ++i) {
      if (__builtin_mul_overflow(count, out->shape[i] == 0 ? 1 : out->shape[i], &count)) return fault_too_large;
    }
  }
  *elements = empty ? 0 : count;
  int64_t reach = 0;
  if (__builtin_mul_overflow(count, bytes, &reach) || reach > max_reach) return fault_too_large;
  if (empty || compact) return fault_none;
  reach = bytes;
  for (int i = 0; i < out->ndim; ++i) {
    if (out->shape[i] < 2) continue;
    int64_t step = out->strides[i];
    if (step < 0) {
      if (step < -max_reach) return fault_too_large;
      step = -step;
    }
    int64_t span;
    if (__builtin_mul_overflow(step, (out->shape[i] - 1) * bytes, &span)) return fault_too_large;
    if (__builtin_add_overflow(reach, span, &reach) || reach > max_reach) return fault_too_large;
  }
  return fault_none;
}

// Everything but provider and read_only, which the caller knows.
inline int operand_of_dltensor(const DLTensor &tensor, Operand *out) {
  out->copied = false;
  out->device_type = static_cast<int32_t>(tensor.device.device_type);
  out->device_id = tensor.device.device_id;
  out->ndim = 0;
  if (tensor.ndim < 0 || tensor.ndim > max_dims) return fault_dims;
  if (tensor.ndim > 0 && tensor.shape == nullptr) return fault_null_shape;
  const ArrayType *row = array_type_of_dlpack(tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
  if (row == nullptr) return fault_type;
  out->type = row->type;
  out->ndim = tensor.ndim;
  const bool compact = tensor.strides == nullptr;
  for (int i = 0; i < tensor.ndim; ++i) {
    out->shape[i] = tensor.shape[i];
    if (!compact) out->strides[i] = tensor.strides[i];
  }
  int64_t elements = 0;
  const int64_t bytes = int64_t(1) << row->shift;
  if (const int fault = check_extents(out, bytes, compact, &elements)) return fault;
  out->data = tensor.data;
  if (tensor.data == nullptr) return elements == 0 ? fault_none : fault_null_data;
  const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  if (elements != 0 && address % uintptr_t(bytes < 8 ? bytes : 8) != 0) return fault_misaligned;
  out->data = reinterpret_cast<void *>(address);
  return fault_none;
}

inline DLDataType dlpack_type(int32_t type) {
  const ArrayType *row = array_type_of_hip(type);
  if (row == nullptr) return DLDataType{0, 0, 0};
  return DLDataType{row->code, row->bits, 1};
}

}  // namespace rocpy
