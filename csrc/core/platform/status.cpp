// SPDX-License-Identifier: MIT
// Names of libraries and of status codes.
#include "status.hpp"

#include <cstring>

#include "table.hpp"

namespace rocpy {
namespace {

struct CodeName {
  int32_t code;
  const char *name;
};

#define CODE(name) {name, #name}
// hipBLASLt itself has no function for this.
constexpr CodeName hipblaslt_codes[] = {
    CODE(HIPBLAS_STATUS_SUCCESS),        CODE(HIPBLAS_STATUS_NOT_INITIALIZED),   CODE(HIPBLAS_STATUS_ALLOC_FAILED),
    CODE(HIPBLAS_STATUS_INVALID_VALUE),  CODE(HIPBLAS_STATUS_MAPPING_ERROR),     CODE(HIPBLAS_STATUS_EXECUTION_FAILED),
    CODE(HIPBLAS_STATUS_INTERNAL_ERROR), CODE(HIPBLAS_STATUS_NOT_SUPPORTED),     CODE(HIPBLAS_STATUS_ARCH_MISMATCH),
    CODE(HIPBLAS_STATUS_INVALID_ENUM),   CODE(HIPBLAS_STATUS_HANDLE_IS_NULLPTR), CODE(HIPBLAS_STATUS_UNKNOWN),
};
// RCCL has sentences for them, not their names.
constexpr CodeName rccl_codes[] = {
    CODE(ncclSuccess),       CODE(ncclUnhandledCudaError), CODE(ncclSystemError),
    CODE(ncclInternalError), CODE(ncclInvalidArgument),    CODE(ncclInvalidUsage),
    CODE(ncclRemoteError),   CODE(ncclInProgress),         CODE(ncclTimeout),
};
#undef CODE

template <size_t count>
const char *name_among(const CodeName (&codes)[count], int32_t code) noexcept {
  for (const CodeName &row : codes) {
    if (row.code == code) return row.name;
  }
  return nullptr;
}

const char *hip_status_name(int32_t code) noexcept {
  if (code == hipErrorNotSupported) {
    return "hipErrorNotSupported";  // what trampolines answer, also while nothing is loaded
  }
  if (!has("hipGetErrorName")) return nullptr;
  const char *name = table.hipGetErrorName(static_cast<hipError_t>(code));
  // HIP answers codes it does not know with a sentence or with its code for "unknown".
  bool known = name && *name && !std::strchr(name, ' ') &&
               (code == hipErrorUnknown || std::strcmp(name, "hipErrorUnknown") != 0);
  return known ? name : nullptr;
}

}  // namespace

const char *library_name(Library library) noexcept { return library_row(library).name; }
const char *library_stem(Library library) noexcept { return library_row(library).stem; }
int32_t not_supported(Library library) noexcept { return library_row(library).not_supported; }

const char *status_name(Library library, int32_t code) noexcept {
  switch (library) {
    case Library::hip:
      return hip_status_name(code);
    case Library::hipblaslt:
      return name_among(hipblaslt_codes, code);
    case Library::rccl:
      return name_among(rccl_codes, code);
    case Library::hiprtc:  // its texts are the names
      return has("hiprtcGetErrorString") ? table.hiprtcGetErrorString(static_cast<hiprtcResult>(code)) : nullptr;
    default:  // of a library without names for its statuses
      return nullptr;
  }
}

const char *status_text(Library library, int32_t code) noexcept {
  switch (library) {
    case Library::hip:
      return has("hipGetErrorString") ? table.hipGetErrorString(static_cast<hipError_t>(code)) : nullptr;
    case Library::rccl: {
      // The last error's text says more than the code's, but it is one buffer of the process, and stays there.
      const char *last = has("ncclGetLastError") ? table.ncclGetLastError(nullptr) : nullptr;
      if (last && *last) return last;
      return has("ncclGetErrorString") ? table.ncclGetErrorString(static_cast<ncclResult_t>(code)) : nullptr;
    }
    default:
      return nullptr;
  }
}

Status failed_launch(int32_t code, const char *function, hipStream_t stream) noexcept {
  // The stream itself is asked: the last error may be one that another user of HIP left there.
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  hipError_t error = table.hipStreamIsCapturing(stream, &capture);
  if (capture == hipStreamCaptureStatusInvalidated) error = hipErrorStreamCaptureInvalidated;
  clear_last_error(Library::hip);
  if (error == hipErrorStreamCaptureImplicit || error == hipErrorStreamCaptureInvalidated) {
    return {Library::hip, error, function};
  }
  return {Library::hipblaslt, code, function};
}

void clear_last_error(Library library) noexcept {
  if (library == Library::hip) table.hipGetLastError();
}

}  // namespace rocpy
