/* SPDX-License-Identifier: MIT */
/* What a compiled kernel sees of the fiber runtime: the state of its thread, and the functions it calls. Numba's code
 * binds to these by name and by offset, so that the layout of rocpy_simt_state is a contract with
 * rocpy/cooperative/numba/runtime.py. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One GPU thread. 32-bit words first, in the order of the Python side's table. */
typedef struct rocpy_simt_state {
  int32_t thread_index[3];
  int32_t block_index[3];
  int32_t block_extent[3];
  int32_t grid_extent[3];
  int32_t rank;      /* of the thread in its block, x fastest */
  int32_t size;      /* threads of the block */
  int32_t warp_size; /* 32 or 64 */
  int32_t debug;     /* 1: accesses are checked, undefined results are poisoned */
  int64_t dynamic_shared_bytes;
  const char *site;  /* "file:line" of the statement that runs in debug mode, "file:line#call" of what may wait */
  void *frame;       /* of a resumable kernel, which sets it: see rocpy_simt_frame */
  int32_t undefined; /* debug mode: 1 while what is returned or stored is an undefined result */
} rocpy_simt_state;

/* A kernel for one thread; the arguments are the launcher's own. A resumable one returns where it waits, see
 * rocpy_simt_frame; one of loops runs the whole block, see rocpy_simt_block_memory. */
typedef void (*rocpy_simt_kernel)(void *arguments, rocpy_simt_state *state);

typedef struct rocpy_simt_config {
  int32_t grid[3];
  int32_t block[3];
  int32_t warp_size;
  int32_t debug;
  int32_t threads; /* OS threads; 0: ROCPY_NUM_THREADS, else the CPUs of this process */
  int32_t shuffle; /* 1: fibers run in an order drawn from `seed` */
  uint64_t seed;
  int64_t dynamic_shared_bytes;
  int64_t shared_limit_bytes;
  int64_t stack_bytes;
} rocpy_simt_config;

/* What undefined results hold in debug mode: quiet NaNs that arithmetic and conversions carry on, and integers no one
 * means. */
#define ROCPY_SIMT_POISON_FLOAT32 0x7fc0deadu
#define ROCPY_SIMT_POISON_FLOAT64 0x7ff81bd5a0000000ull
#define ROCPY_SIMT_POISON_INT32 0xcdcdcdcdu
#define ROCPY_SIMT_POISON_INT64 0xcdcdcdcdcdcdcdcdull

/* ROCPY_SIMT_WRITE_SAME: a write of what the memory holds already. */
enum rocpy_simt_access_kind {
  ROCPY_SIMT_READ = 0,
  ROCPY_SIMT_WRITE = 1,
  ROCPY_SIMT_ATOMIC = 2,
  ROCPY_SIMT_WRITE_SAME = 3
};

/* The state of the running thread: the same pointer from a kernel's begin to its end. */
rocpy_simt_state *rocpy_simt_current(void);

/* Whether the launch is in debug mode: a kernel that is linked for one mode has its own. */
int32_t rocpy_simt_debugging(void);

/* Groups are named by their width: 0 is the block, a power of two the aligned run of so many ranks that holds the
 * thread. */
void rocpy_simt_barrier(rocpy_simt_state *state, int32_t width);

/* A collective is: slots, write one's own slot, arrive; whoever gets 1 sees every slot, writes the results and releases
 * the others. A slot may be read until the thread's next collective of the same group. */
void *rocpy_simt_slots(rocpy_simt_state *state, int32_t width, int64_t bytes);
int32_t rocpy_simt_arrive(rocpy_simt_state *state, int32_t width);
void rocpy_simt_release(rocpy_simt_state *state, int32_t width);

/* The same for a resumable kernel: 0 where it must return, to be resumed when the others have come. What it goes on
 * with lies in the memory that rocpy_simt_frame gave it before it first returned, which begins with the address of the
 * function that goes on, as LLVM's coroutines have it; every thread of a launch asks for as many bytes. */
int32_t rocpy_simt_begin_barrier(rocpy_simt_state *state, int32_t width);
int32_t rocpy_simt_begin_arrive(rocpy_simt_state *state, int32_t width);
void *rocpy_simt_frame(rocpy_simt_state *state, int64_t bytes);

/* The same for a kernel that runs all threads of a block itself, from one wait to the next: `state` is the block's.
 * Memory for what threads keep over a wait, aligned to 64 bytes; the slots of the n-th collective, valid until that of
 * n + 2; shared memory that all threads ask for, reserved first and then returned as often as asked for; what one
 * thread asks for; an exception of one thread. */
void *rocpy_simt_block_memory(rocpy_simt_state *state, int64_t bytes);
void *rocpy_simt_block_slots(rocpy_simt_state *state, int32_t collective, int64_t bytes);
void rocpy_simt_block_reserve(rocpy_simt_state *state, const char *site, const void *key, int64_t bytes);
void *rocpy_simt_block_shared(rocpy_simt_state *state, const void *key, int64_t bytes);
void *rocpy_simt_shared_in(rocpy_simt_state *state, int32_t rank, const char *site, const void *key, int64_t bytes);
void rocpy_simt_raise_in(rocpy_simt_state *state, int32_t rank, const char *site, int32_t code,
                         const void *information);

/* Threads of the group, and the thread's rank in it. */
int32_t rocpy_simt_group_size(rocpy_simt_state *state, int32_t width);

/* Shared memory of the block; one key, one allocation. */
void *rocpy_simt_shared(rocpy_simt_state *state, const void *key, int64_t bytes);
void *rocpy_simt_dynamic_shared(rocpy_simt_state *state);

/* Debug mode: an access of the kernel to memory that is not its own stack, and the bits that it stores, which may be
 * those of a poisoned result, if the block has any: it says so before. */
void rocpy_simt_poisoned(rocpy_simt_state *state);
void rocpy_simt_access(rocpy_simt_state *state, const void *address, int64_t bytes, int32_t kind);
void rocpy_simt_stored(rocpy_simt_state *state, const void *address, int64_t bits, int32_t bytes);

/* Debug mode: an integer is divided by zero. Does not return. */
void rocpy_simt_divided_by_zero(rocpy_simt_state *state);

/* A thread has allocated memory, which the function frees if the block fails; it has freed it. */
void rocpy_kernel_allocated(void *memory, void (*release)(void *));
void rocpy_kernel_freed(void *memory);

/* The thread ended by an exception. Does not return. */
void rocpy_simt_raise(rocpy_simt_state *state, int32_t code, const void *information);

#ifdef __cplusplus
}
#endif
