/* SPDX-License-Identifier: MIT */
/* Rows as C prototypes under their own names: what a platform's libraries export. */
#pragma once

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ROCPY_FUNCTION(library, result, name, parameters, since) result name parameters;
#include "libraries.def"
#undef ROCPY_FUNCTION

#ifdef __cplusplus
}
#endif
