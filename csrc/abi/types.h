/* SPDX-License-Identifier: MIT */
/* The contract's types: what bindings and platforms both include, and all that they share. */
#pragma once

#define ROCPY_TYPES
#include "libraries.def"
#undef ROCPY_TYPES

#include "types_extension.h"
