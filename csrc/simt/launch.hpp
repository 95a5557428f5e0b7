// SPDX-License-Identifier: MIT
// Runs grids, and measures what a switch between two fibers costs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "block.hpp"
#include "error.hpp"
#include "simt.h"

namespace rocpy::simt {

// Runs a grid; accesses to the arrays are checked for races. Gives an error or, where all went well, a warning (a Fault
// says which).
std::unique_ptr<Error> launch(Kernel kernel, void *arguments, const rocpy_simt_config &config,
                              std::vector<Range> arrays = {});

// Nanoseconds a switch: one block of `threads` fibers that pass `rounds` barriers.
double measure_switch_ns(int32_t threads, int32_t rounds);

}  // namespace rocpy::simt
