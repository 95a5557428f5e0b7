// SPDX-License-Identifier: MIT
// What the C++ tests need of a test framework: a check that says where it failed, and a count of failures for main's
// result.
#pragma once

#include <atomic>
#include <cstdio>

inline std::atomic<int> failures{0};

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      failures.fetch_add(1);                                                       \
    }                                                                              \
  } while (false)

#define CHECK_EQUAL(seen, wanted)                                                                                \
  do {                                                                                                           \
    const auto seen_value = static_cast<long long>(seen);                                                        \
    const auto wanted_value = static_cast<long long>(wanted);                                                    \
    if (seen_value != wanted_value) {                                                                            \
      std::fprintf(stderr, "%s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__, #seen, seen_value, #wanted, \
                   wanted_value);                                                                                \
      failures.fetch_add(1);                                                                                     \
    }                                                                                                            \
  } while (false)
