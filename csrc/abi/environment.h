/* SPDX-License-Identifier: MIT */
/* The one place where C and C++ read the environment. Values are read at each call: a test may change them, and callers
 * that need a fixed value keep it. */
#pragma once

#include <stdlib.h>

typedef enum rocpy_variable {
#define ROCPY_VARIABLE(name, fallback, reader, values, meaning) name,
#include "environment.def"
#undef ROCPY_VARIABLE
  ROCPY_VARIABLE_COUNT
} rocpy_variable;

/* The variable's value, or its default when it is unset or empty. Never NULL. */
static inline const char *rocpy_environment(rocpy_variable variable) {
  static const char *const names[] = {
#define ROCPY_VARIABLE(name, fallback, reader, values, meaning) #name,
#include "environment.def"
#undef ROCPY_VARIABLE
  };
  static const char *const fallbacks[] = {
#define ROCPY_VARIABLE(name, fallback, reader, values, meaning) fallback,
#include "environment.def"
#undef ROCPY_VARIABLE
  };
  const char *value = getenv(names[variable]);
  return value && *value ? value : fallbacks[variable];
}

/* OMP_NUM_THREADS is OpenMP's, honoured because users expect it. Empty when unset. */
static inline const char *rocpy_environment_omp_num_threads(void) {
  const char *value = getenv("OMP_NUM_THREADS");
  return value ? value : "";
}
