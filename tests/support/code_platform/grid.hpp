// SPDX-License-Identifier: MIT
// What a generated kernel needs to run on a CPU: its place in the grid, and a function that walks a launch's blocks and
// threads.
#pragma once

#include <type_traits>
#include <utility>

#define EPILOGUE_ON_THE_CPU
#define KERNEL extern "C"
#define DEVICE static inline

static thread_local unsigned grid_position[4];
#define BLOCK_X grid_position[0]
#define BLOCK_Y grid_position[1]
#define BLOCK_Z grid_position[2]
#define THREAD grid_position[3]

typedef int (*Check)(const void *);

template <class T>
bool readable(T value, Check check) {
  if constexpr (std::is_pointer_v<T>) return check == nullptr || check(value);
  return true;
}

template <class... T, unsigned long... indices>
int walk(void (*kernel)(T...), const unsigned *grid, unsigned threads, void **params, Check check,
         std::integer_sequence<unsigned long, indices...>) {
  if (!(readable(*static_cast<T *>(params[indices]), check) && ...)) return 1;
  for (BLOCK_Z = 0; BLOCK_Z < grid[2]; ++BLOCK_Z) {
    for (BLOCK_Y = 0; BLOCK_Y < grid[1]; ++BLOCK_Y) {
      for (BLOCK_X = 0; BLOCK_X < grid[0]; ++BLOCK_X) {
        for (THREAD = 0; THREAD < threads; ++THREAD) kernel(*static_cast<T *>(params[indices])...);
      }
    }
  }
  return 0;
}

template <class... T>
int walk(void (*kernel)(T...), const unsigned *grid, unsigned threads, void **params, Check check) {
  return walk(kernel, grid, threads, params, check, std::make_integer_sequence<unsigned long, sizeof...(T)>());
}

#define RUN(name)                                                                                 \
  extern "C" int name##_run(const unsigned *grid, unsigned threads, void **params, Check check) { \
    return walk(name, grid, threads, params, check);                                              \
  }
