// SPDX-License-Identifier: MIT
// The versions behind ROCPY_HOST_ABI, and the rows that they lack.
//
// A facade exports every row: whether dlsym finds a symbol cannot depend on the environment, and a facade for each
// version would be one more folder for each to find and to keep. So the loader asks, by the row rocpyExtRowIsHidden,
// what it must not find. Whoever looks up a symbol without asking (hip-python does) still finds it.
#include "window.hpp"

#include <cstdio>
#include <cstring>
#include <limits>
#include <string_view>

#include "environment.h"
#include "exports.h"
#include "lazy.h"

namespace rocpy_host {

namespace {

constexpr Window windows[] = {
    {"10.0", 71500000, 100401, 23004},
    {"7.2", 70200000, 100202, 22707},
    {"7.0", 70000000, 100000, 22606},
    {"6.4", 60400000, 1201, 22203},
};

const Window &choose() {
  const char *wanted = rocpy_environment(ROCPY_HOST_ABI);
  for (const Window &row : windows) {
    if (std::strcmp(row.rocm, wanted) == 0) return row;
  }
  std::fprintf(stderr,
               "rocpy host platform: ROCPY_HOST_ABI is \"%s\"; it must be 6.4, 7.0, 7.2 or 10.0, and %s is used\n",
               wanted, windows[0].rocm);
  return windows[0];
}

// The version to which a library's rows are compared. Some count HIP's, as major * 10000 + minor * 100; a library whose
// version does not depend on the release has all of its rows.
int presented(std::string_view library) {
  if (library == "hipblaslt") return window().hipblaslt;
  if (library == "rccl") return window().rccl;
  constexpr struct {
    std::string_view name, releases;
  } libraries[] = {
#define ROCPY_LIBRARY(name, stem, presence, releases, ...) {#name, #releases},
#include "libraries.def"
#undef ROCPY_LIBRARY
  };
  for (const auto &row : libraries) {
    if (row.name == library && row.releases == "hip") return window().hip / 1000;
  }
  return std::numeric_limits<int>::max();
}

constexpr struct {
  const char *name;
  std::string_view library;
  int since;
} rows[] = {
#define ROCPY_FUNCTION(library, result, name, parameters, since) {#name, #library, since},
#include "libraries.def"
#undef ROCPY_FUNCTION
};

}  // namespace

const Window &window() {
  static rocpy::Lazy<const Window> chosen;
  return chosen.get([] { return new Window(choose()); });
}

bool is_strict() {
  static rocpy::Lazy<const bool> strict;
  return strict.get([] { return new bool(std::strcmp(rocpy_environment(ROCPY_HOST_STRICT), "1") == 0); });
}

}  // namespace rocpy_host

hipError_t rocpy_host_rocpyExtRowIsHidden(const char *function, int *hidden) {
  if (!function || !hidden) return hipErrorInvalidValue;
  *hidden = 0;
  for (const auto &row : rocpy_host::rows) {
    if (std::strcmp(row.name, function) != 0) continue;
    *hidden = row.since > rocpy_host::presented(row.library);
    return hipSuccess;
  }
  return hipErrorInvalidValue;
}
