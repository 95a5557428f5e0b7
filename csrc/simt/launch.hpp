// SPDX-License-Identifier: MIT
// Runs grids, and measures what a switch between two fibers costs.
#pragma once

#include <cstdint>

#include "block.hpp"
#include "error.hpp"
#include "simt.h"

namespace rocpy::simt {

std::unique_ptr<Error> launch(Kernel kernel, void *arguments, const rocpy_simt_config &config);

// Nanoseconds a switch: one block of `threads` fibers that pass `rounds` barriers.
double measure_switch_ns(int32_t threads, int32_t rounds);

}  // namespace rocpy::simt
