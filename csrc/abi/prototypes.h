/* SPDX-License-Identifier: MIT */
/* Rows as C prototypes under their own names: what a platform's libraries export. */
#ifndef ROCPY_ABI_PROTOTYPES_H
#define ROCPY_ABI_PROTOTYPES_H

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
#endif
