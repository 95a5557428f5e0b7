/* SPDX-License-Identifier: MIT */
/* Rows of HIP that differ on the platform of code objects: its devices are gfx942, and "code objects" are libraries for
 * this CPU, made by the hipRTC beside it, whose kernels a launch runs block by block. Code for an AMD GPU
 * is loaded too: its launches go to a function of the test's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "types.h"

void *under(void);

typedef int (*check_t)(const void *);
typedef int (*run_t)(const unsigned *grid, unsigned threads, void **params, check_t check);

typedef int (*watch_t)(const char *name, const unsigned *grid, unsigned threads, unsigned shared_bytes, void **params);
static watch_t watch;

void code_platform_watch(watch_t function) { watch = function; }

struct module {
  void *handle; /* NULL: code for an AMD GPU */
};

struct function {
  run_t run;
  char name[128];
};

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600 *properties, int device) {
  hipError_t (*ask)(hipDeviceProp_tR0600 *, int) =
      (hipError_t (*)(hipDeviceProp_tR0600 *, int))dlsym(under(), "hipGetDevicePropertiesR0600");
  hipError_t error = ask(properties, device);
  if (error == hipSuccess) {
    snprintf(properties->name, sizeof properties->name, "a CPU that runs code objects");
    snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "gfx942:sramecc+:xnack-");
  }
  return error;
}

/* Bytes of an ELF file, which HIP is not told: its table of sections comes last. */
static size_t elf_bytes(const unsigned char *image) {
  unsigned long long table;
  unsigned short size, count;
  memcpy(&table, image + 0x28, sizeof table);
  memcpy(&size, image + 0x3a, sizeof size);
  memcpy(&count, image + 0x3c, sizeof count);
  return table + (size_t)size * count;
}

hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
  char path[64];
  size_t bytes, done = 0;
  struct module *made;
  int file;
  if (!module || !image) return hipErrorInvalidValue;
  *module = NULL;
  if (memcmp(image, "\177ELF", 4) != 0) return hipErrorInvalidImage;
  made = calloc(1, sizeof *made);
  *module = (hipModule_t)made;
  if (((const unsigned char *)image)[18] == 224) return hipSuccess; /* EM_AMDGPU */
  bytes = elf_bytes(image);
  file = memfd_create("code", 0);
  if (file < 0) return hipErrorOutOfMemory;
  while (done < bytes) {
    ssize_t now = write(file, (const char *)image + done, bytes - done);
    if (now <= 0) return hipErrorOutOfMemory;
    done += (size_t)now;
  }
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  made->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return made->handle ? hipSuccess : hipErrorNoBinaryForGpu;
}

hipError_t hipModuleUnload(hipModule_t module) {
  free(module);
  return module ? hipSuccess : hipErrorInvalidHandle;
}

hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  char symbol[160];
  struct function *made = malloc(sizeof *made);
  snprintf(symbol, sizeof symbol, "%s_run", name);
  snprintf(made->name, sizeof made->name, "%s", name);
  *function = (hipFunction_t)made;
  made->run = NULL;
  if (!((struct module *)module)->handle) return hipSuccess;
  made->run = (run_t)dlsym(((struct module *)module)->handle, symbol);
  return made->run ? hipSuccess : hipErrorNotFound;
}

/* A GPU reads its own memory alone. */
static int on_the_device(const void *address) {
  hipPointerAttribute_t found;
  hipError_t (*ask)(hipPointerAttribute_t *, const void *) =
      (hipError_t (*)(hipPointerAttribute_t *, const void *))dlsym(under(), "hipPointerGetAttributes");
  return ask(&found, address) == hipSuccess && found.type == hipMemoryTypeDevice;
}

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                 unsigned int shared_bytes, hipStream_t stream, void **params, void **extra) {
  const struct function *function = (const struct function *)f;
  unsigned grid[3] = {grid_x, grid_y, grid_z};
  const char *log = getenv("CODE_PLATFORM_LOG");
  hipError_t (*wait)(hipStream_t) = (hipError_t (*)(hipStream_t))dlsym(under(), "hipStreamSynchronize");
  hipError_t error;
  if (!function || !params || extra || block_y != 1 || block_z != 1 || grid_y > 65535 || grid_z > 65535) {
    return hipErrorInvalidValue;
  }
  if (block_x == 0 || block_x > 1024 || shared_bytes > 65536) return hipErrorInvalidConfiguration;
  error = wait(stream);
  if (error != hipSuccess) return error;
  if (log) {
    FILE *file = fopen(log, "a");
    fprintf(file, "%s %u %u %u %u\n", function->name, grid_x, grid_y, grid_z, block_x);
    fclose(file);
  }
  if (!function->run) {
    return watch && !watch(function->name, grid, block_x, shared_bytes, params) ? hipSuccess : hipErrorLaunchFailure;
  }
  return function->run(grid, block_x, params, on_the_device) ? hipErrorIllegalAddress : hipSuccess;
}
