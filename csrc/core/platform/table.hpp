// SPDX-License-Identifier: MIT
// The function table: one pointer per row of csrc/abi. A slot can always be called: what the loaded library lacks, and
// everything while nothing is loaded, is a trampoline that answers the library's "not supported".
#pragma once

#include <vector>

#include "status.hpp"
#include "types.h"

namespace rocpy {

struct Table {
#define ROCPY_FUNCTION(library, result, name, parameters, since) result(*name) parameters;
#include "libraries.def"
#undef ROCPY_FUNCTION
};

// Written by the loader before it announces that a platform is loaded, and not after.
extern Table table;

// What the loader and error messages need to know about a row, in the order of the rows.
struct Row {
  Library library;
  const char *function;
  int since;      // first version of the library that has the function
  bool optional;  // rocpy's own extension rows: callers do without
};

int row_count() noexcept;
const Row &row_at(int index) noexcept;

// Whether the loaded library has the function. False for a name that is no row.
bool has(const char *function) noexcept;

// The library's rows that the loaded library lacks, extension rows left out.
std::vector<const char *> missing(Library library);

// For the loader: takes each row's address from `lookup` (nullptr: the trampoline).
using Lookup = void *(*)(Library library, const char *function, void *context);
void fill_table(Lookup lookup, void *context) noexcept;

}  // namespace rocpy
