// SPDX-License-Identifier: MIT
// What a call into a platform's library came to: which library, which code, which function. Everything in csrc/core
// returns one; the Python layer turns it into an exception in a single place.
#pragma once

#include <cstdint>

#include "types.h"

namespace rocpy {

enum class Library : int32_t {
#define ROCPY_LIBRARY(name, ...) name,
#include "libraries.def"
#undef ROCPY_LIBRARY
};

// One row of libraries.def, which says what the columns are.
struct LibraryRow {
  const char *name;
  const char *stem;
  bool optional;
  bool counts_releases_of_hip;
  int major, minor;
  const char *version_function;
  int32_t not_supported;
};

constexpr LibraryRow library_rows[] = {
#define ROCPY_LIBRARY(name, stem, presence, releases, major, minor, version, status, not_supported, ...) \
  {#name, stem, #presence[0] == 'o', #releases[0] == 'h', major, minor, version, not_supported},
#include "libraries.def"
#undef ROCPY_LIBRARY
};
constexpr int library_count = sizeof library_rows / sizeof library_rows[0];

constexpr const LibraryRow &library_row(Library library) noexcept { return library_rows[static_cast<int>(library)]; }

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

// Why work could not be queued on a stream. hipBLASLt has no status for what a capture forbids: HIP is asked.
Status failed_launch(int32_t code, const char *function, hipStream_t stream) noexcept;

// HIP remembers a failure until somebody asks. Once it is reported as an exception it must not come up again in another
// user of HIP, who would take it for a failure of their own.
void clear_last_error(Library library) noexcept;

}  // namespace rocpy
