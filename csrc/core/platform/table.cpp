// SPDX-License-Identifier: MIT
// The table's storage, its trampolines, and which rows the loaded library has.
#include "table.hpp"

#include <atomic>
#include <cstring>

namespace rocpy {
namespace {

// What a missing function answers, by the row's result type.
template <class Result>
constexpr Result refusal();
#define ROCPY_LIBRARY(name, stem, presence, releases, major, minor, version, status, not_supported, ...) \
  template <>                                                                                            \
  constexpr status refusal<status>() {                                                                   \
    return not_supported;                                                                                \
  }
#include "libraries.def"
#undef ROCPY_LIBRARY
template <>
constexpr void refusal<void>() {}
template <>
constexpr const char *refusal<const char *>() {
  return "not available: the platform's library lacks this function";
}

constexpr Table trampolines = {
#define ROCPY_FUNCTION(library, result, name, parameters, since) [] parameters -> result { return refusal<result>(); },
#include "libraries.def"
#undef ROCPY_FUNCTION
};

constexpr Row rows[] = {
#define ROCPY_FUNCTION(library, result, name, parameters, since) {Library::library, #name, since, since == 1},
#include "libraries.def"
#undef ROCPY_FUNCTION
};
constexpr int rows_total = sizeof rows / sizeof rows[0];

std::atomic<bool> present[rows_total];

}  // namespace

Table table = trampolines;

int row_count() noexcept { return rows_total; }
const Row &row_at(int index) noexcept { return rows[index]; }

bool has(const char *function) noexcept {
  for (int i = 0; i < rows_total; ++i) {
    if (std::strcmp(rows[i].function, function) == 0) return present[i].load(std::memory_order_relaxed);
  }
  return false;
}

std::vector<const char *> missing(Library library) {
  std::vector<const char *> names;
  for (int i = 0; i < rows_total; ++i) {
    if (rows[i].library == library && !rows[i].optional && !present[i].load(std::memory_order_relaxed)) {
      names.push_back(rows[i].function);
    }
  }
  return names;
}

void fill_table(Lookup lookup, void *context) noexcept {
  int index = 0;
#define ROCPY_FUNCTION(library, result, name, parameters, since)                               \
  {                                                                                            \
    void *address = lookup(Library::library, #name, context);                                  \
    table.name = address ? reinterpret_cast<decltype(table.name)>(address) : trampolines.name; \
    present[index++].store(address != nullptr, std::memory_order_relaxed);                     \
  }
#include "libraries.def"
#undef ROCPY_FUNCTION
}

}  // namespace rocpy
