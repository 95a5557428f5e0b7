// SPDX-License-Identifier: MIT
// What a call into a platform's library came to: which library, which code, which function. Everything in csrc/core
// returns one; the Python layer turns it into an exception in a single place.
#pragma once

#include <cstdint>

#include "types.h"

// One row per library: its name in the rows, the file lib<stem>.so, and its "not supported" code.
#define ROCPY_LIBRARIES(LIBRARY)                                \
  LIBRARY(hip, "amdhip64", hipErrorNotSupported)                \
  LIBRARY(hipblaslt, "hipblaslt", HIPBLAS_STATUS_NOT_SUPPORTED) \
  LIBRARY(rccl, "rccl", ncclInvalidUsage)                       \
  LIBRARY(hiprtc, "hiprtc", HIPRTC_ERROR_INTERNAL_ERROR)

namespace rocpy {

enum class Library : int32_t {
#define LIBRARY(name, stem, not_supported) name,
  ROCPY_LIBRARIES(LIBRARY)
#undef LIBRARY
};

#define LIBRARY(name, stem, not_supported) +1
constexpr int library_count = 0 ROCPY_LIBRARIES(LIBRARY);
#undef LIBRARY

struct Status {
  Library library = Library::hip;
  int32_t code = 0;
  const char *function = "";

  bool ok() const noexcept { return code == 0; }
};

// The library's name in the rows ("hip"), the stem of its file ("amdhip64"), and the code of its "not supported".
const char *library_name(Library library) noexcept;
const char *library_stem(Library library) noexcept;
int32_t not_supported(Library library) noexcept;

// The enumerator's name, or nullptr for a code that the library's header does not have. HIP names its own codes, so a
// platform must be loaded for those.
const char *status_name(Library library, int32_t code) noexcept;

// The library's own description of a code, or nullptr.
const char *status_text(Library library, int32_t code) noexcept;

// HIP remembers a failure until somebody asks. Once it is reported as an exception it must not come up again in another
// user of HIP, who would take it for a failure of their own.
void clear_last_error(Library library) noexcept;

}  // namespace rocpy
