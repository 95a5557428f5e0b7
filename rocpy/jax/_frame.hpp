// SPDX-License-Identifier: MIT
// XLA's call of a product, read from its call frame: operands, attributes, stream and device, with no Python.
#pragma once

#include <c_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "array_types.hpp"
#include "operand.hpp"
#include "spin_lock.hpp"
#include "types.h"

namespace rocpy {

// Operands in the order in which XLA passes those that there are.
enum FrameOperand { frame_a, frame_b, frame_c, frame_bias, frame_aux, frame_operand_count };

struct ProductFrame {
  int32_t epilogue = -1;  // index in the table of epilogues
  int32_t compute = 0;    // as in a PlanSettings
  bool clamped = false;
  double low = 0.0, high = 0.0;
  double alpha = 1.0, beta = 0.0;
  bool scaled = false;  // whether an operand has a scale
  double scale_a = 1.0, scale_b = 1.0;
  std::string_view options;  // JSON of what differs from the defaults; empty: nothing does
  Operand operands[frame_operand_count];
  Operand result, extra;  // extra: ndim -1 where the epilogue has one output
};

// Names that an attribute may have as its value, and whose indices a plan's key holds. Set once, before a handler is
// registered.
class FrameNames {
 public:
  void add(const char *name) { names_.emplace_back(name); }
  bool find(std::string_view name, int32_t *index) const {
    const auto entry = std::find(names_.begin(), names_.end(), name);
    if (entry == names_.end()) return false;
    *index = static_cast<int32_t>(entry - names_.begin());
    return true;
  }

 private:
  std::vector<std::string> names_;
};

inline FrameNames epilogue_names, compute_names;
inline FrameNames &frame_epilogues() { return epilogue_names; }

// The first is empty: no compute type is asked for.
inline FrameNames &frame_computes() { return compute_names; }

// Words that stand for options in keys, by their JSON.
class OptionWords {
 public:
  bool find(std::string_view text, int64_t *word) {
    lock_.lock();
    const auto entry = words_.find(std::string(text));
    const bool known = entry != words_.end();
    if (known) *word = entry->second;
    lock_.unlock();
    return known;
  }
  void insert(std::string_view text, int64_t word) {
    lock_.lock();
    words_[std::string(text)] = word;
    lock_.unlock();
  }

 private:
  SpinLock lock_;
  std::unordered_map<std::string, int64_t> words_;
};

inline OptionWords words_of_options;
inline OptionWords &option_words() { return words_of_options; }

// ---- XLA's types ----

inline int32_t type_of_xla(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_F64:
      return HIP_R_64F;
    case XLA_FFI_DataType_F32:
      return HIP_R_32F;
    case XLA_FFI_DataType_F16:
      return HIP_R_16F;
    case XLA_FFI_DataType_BF16:
      return HIP_R_16BF;
    case XLA_FFI_DataType_C64:
      return HIP_C_32F;
    case XLA_FFI_DataType_C128:
      return HIP_C_64F;
    case XLA_FFI_DataType_S8:
      return HIP_R_8I;
    case XLA_FFI_DataType_S32:
      return HIP_R_32I;
    case XLA_FFI_DataType_F8E4M3FN:
      return HIP_R_8F_E4M3;
    case XLA_FFI_DataType_F8E5M2:
      return HIP_R_8F_E5M2;
    case XLA_FFI_DataType_F8E4M3FNUZ:
      return HIP_R_8F_E4M3_FNUZ;
    case XLA_FFI_DataType_F8E5M2FNUZ:
      return HIP_R_8F_E5M2_FNUZ;
    default:
      return -1;
  }
}

// XLA's arrays are dense and row-major; `transposed` swaps the last two axes of the view.
inline const char *read_buffer(const void *argument, bool transposed, Operand *out) {
  const XLA_FFI_Buffer *buffer = static_cast<const XLA_FFI_Buffer *>(argument);
  out->type = type_of_xla(buffer->dtype);
  if (out->type < 0) return "an array of a type that rocpy has no products of";
  if (buffer->rank > max_dims) return "an array of more than 32 axes";
  out->data = buffer->data;
  out->device_type = 1;  // kDLCPU, until the caller knows better
  out->device_id = 0;
  out->provider = provider_numpy;
  out->read_only = out->copied = out->conjugated = false;
  out->ndim = static_cast<int32_t>(buffer->rank);
  int64_t step = 1;
  for (int axis = out->ndim - 1; axis >= 0; --axis) {
    out->shape[axis] = buffer->dims[axis];
    out->strides[axis] = step;
    step *= buffer->dims[axis];
  }
  if (transposed) {
    if (out->ndim < 2) return "a transposed array of fewer than two axes";
    std::swap(out->shape[out->ndim - 1], out->shape[out->ndim - 2]);
    std::swap(out->strides[out->ndim - 1], out->strides[out->ndim - 2]);
  }
  return nullptr;
}

// ---- attributes ----

inline std::string_view text_of(XLA_FFI_AttrType type, const void *value) {
  if (type != XLA_FFI_AttrType_STRING) return {};
  const XLA_FFI_ByteSpan *span = static_cast<const XLA_FFI_ByteSpan *>(value);
  return {span->ptr, span->len};
}

template <class T>
bool number_of(XLA_FFI_AttrType type, const void *value, XLA_FFI_DataType wanted, T *out) {
  if (type != XLA_FFI_AttrType_SCALAR) return false;
  const XLA_FFI_Scalar *scalar = static_cast<const XLA_FFI_Scalar *>(value);
  if (scalar->dtype != wanted) return false;
  std::memcpy(out, scalar->value, sizeof *out);
  return true;
}

inline bool flag_of(XLA_FFI_AttrType type, const void *value, bool *out) {
  return number_of(type, value, XLA_FFI_DataType_PRED, out);
}

// Reads a call; null, or why it is none of ours. Attributes that it does not know belong to another version of rocpy.
inline const char *read_frame(const XLA_FFI_CallFrame *frame, ProductFrame *out) {
  bool present[frame_operand_count] = {true, true}, transposed[frame_operand_count] = {};
  for (int64_t i = 0; i < frame->attrs.size; ++i) {
    const XLA_FFI_ByteSpan *span = frame->attrs.names[i];
    const std::string_view name(span->ptr, span->len);
    const XLA_FFI_AttrType type = frame->attrs.types[i];
    const void *value = frame->attrs.attrs[i];
    bool known = true;
    if (name == "epilogue") {
      frame_epilogues().find(text_of(type, value), &out->epilogue);
    } else if (name == "options") {
      out->options = text_of(type, value);
    } else if (name == "has_c") {
      known = flag_of(type, value, &present[frame_c]);
    } else if (name == "has_bias") {
      known = flag_of(type, value, &present[frame_bias]);
    } else if (name == "has_aux") {
      known = flag_of(type, value, &present[frame_aux]);
    } else if (name == "transpose_a") {
      known = flag_of(type, value, &transposed[frame_a]);
    } else if (name == "transpose_b") {
      known = flag_of(type, value, &transposed[frame_b]);
    } else if (name == "compute") {
      known = type == XLA_FFI_AttrType_STRING && frame_computes().find(text_of(type, value), &out->compute);
    } else if (name == "alpha") {
      known = number_of(type, value, XLA_FFI_DataType_F64, &out->alpha);
    } else if (name == "beta") {
      known = number_of(type, value, XLA_FFI_DataType_F64, &out->beta);
    } else if (name == "scale_a") {
      known = out->scaled = number_of(type, value, XLA_FFI_DataType_F64, &out->scale_a);
    } else if (name == "scale_b") {
      known = out->scaled = number_of(type, value, XLA_FFI_DataType_F64, &out->scale_b);
    } else if (name == "low") {
      known = out->clamped = number_of(type, value, XLA_FFI_DataType_F64, &out->low);
    } else if (name == "high") {
      known = number_of(type, value, XLA_FFI_DataType_F64, &out->high);
    } else {
      known = false;
    }
    if (!known) return "an attribute that this version of rocpy does not know; trace the function again";
  }
  if (out->epilogue < 0) return "an epilogue that this version of rocpy does not have; trace the function again";
  int64_t next = 0;
  for (int i = 0; i < frame_operand_count; ++i) {
    out->operands[i].ndim = -1;
    if (!present[i]) continue;
    if (next == frame->args.size) return "fewer arrays than the attributes say";
    if (const char *fault = read_buffer(frame->args.args[next++], transposed[i], &out->operands[i])) return fault;
  }
  if (next != frame->args.size) return "more arrays than the attributes say";
  if (frame->rets.size < 1 || frame->rets.size > 2) return "a number of results other than one or two";
  out->extra.ndim = -1;
  if (const char *fault = read_buffer(frame->rets.rets[0], false, &out->result)) return fault;
  return frame->rets.size == 2 ? read_buffer(frame->rets.rets[1], false, &out->extra) : nullptr;
}

// ---- answers ----

// Whether the frame only asks what the handler was built for; the answer is then in it.
inline bool answers_metadata(XLA_FFI_CallFrame *frame) {
  XLA_FFI_Extension_Base *extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata *metadata = reinterpret_cast<XLA_FFI_Metadata_Extension *>(extension)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  metadata->traits = 0;
  metadata->state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
  return true;
}

inline XLA_FFI_Error *frame_error(const XLA_FFI_CallFrame *frame, const char *message, int code) {
  XLA_FFI_Error_Create_Args args;
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.extension_start = nullptr;
  args.message = message;
  args.errc = static_cast<XLA_FFI_Error_Code>(code);
  return frame->api->XLA_FFI_Error_Create(&args);
}

// The stream and the device that XLA queues this call on.
inline XLA_FFI_Error *frame_device_and_stream(const XLA_FFI_CallFrame *frame, int *device, hipStream_t *stream) {
  XLA_FFI_Stream_Get_Args on{};
  on.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE;
  on.ctx = frame->ctx;
  if (XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&on)) return error;
  *stream = static_cast<hipStream_t>(on.stream);
  XLA_FFI_DeviceOrdinal_Get_Args at{};
  at.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE;
  at.ctx = frame->ctx;
  if (XLA_FFI_Error *error = frame->api->XLA_FFI_DeviceOrdinal_Get(&at)) return error;
  *device = at.device_ordinal;
  return nullptr;
}

// Whether a cached call writes exactly the results that XLA has allocated.
inline bool fits(const Operand &operand, int32_t type, int32_t ndim, const int64_t *shape) {
  return operand.type == type && operand.ndim == ndim &&
         (ndim <= 0 || std::memcmp(operand.shape, shape, static_cast<size_t>(ndim) * sizeof *shape) == 0);
}

}  // namespace rocpy
