// SPDX-License-Identifier: MIT
// Functions of numbers for kernels from Python, under the names that C's mathematics library gives them, where AMD's
// instructions have none: in a few units of the last place.
#pragma once
