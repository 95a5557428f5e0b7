/* SPDX-License-Identifier: MIT */
/* Types of the rows of hip_programs.def. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "types.h"

typedef struct dim3 {
  uint32_t x, y, z;
} dim3;

typedef struct hipFuncAttributes {
  int binaryVersion;
  int cacheModeCA;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxDynamicSharedSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int preferredShmemCarveout;
  int ptxVersion;
  size_t sharedSizeBytes;
} hipFuncAttributes;

typedef struct hipKernelNodeParams {
  dim3 blockDim;
  void **extra;
  void *func;
  dim3 gridDim;
  void **kernelParams;
  unsigned int sharedMemBytes;
} hipKernelNodeParams;

typedef struct hipLaunchParams {
  void *func;
  dim3 gridDim;
  dim3 blockDim;
  void **args;
  size_t sharedMem;
  hipStream_t stream;
} hipLaunchParams;

typedef struct hipFunctionLaunchParams {
  hipFunction_t function;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  hipStream_t hStream;
  void **kernelParams;
} hipFunctionLaunchParams;

typedef struct ihipCtx_t *hipCtx_t;

typedef struct hipPos {
  size_t x, y, z;
} hipPos;

typedef struct hipExtent {
  size_t width, height, depth; /* width in bytes */
} hipExtent;

typedef struct hipPitchedPtr {
  void *ptr;
  size_t pitch, xsize, ysize;
} hipPitchedPtr;

typedef struct hipMemcpy3DParms {
  void *srcArray;
  hipPos srcPos;
  hipPitchedPtr srcPtr;
  void *dstArray;
  hipPos dstPos;
  hipPitchedPtr dstPtr;
  hipExtent extent;
  hipMemcpyKind kind;
} hipMemcpy3DParms;

typedef struct hipMemcpy3DPeerParms {
  void *srcArray;
  hipPos srcPos;
  hipPitchedPtr srcPtr;
  int srcDevice;
  void *dstArray;
  hipPos dstPos;
  hipPitchedPtr dstPtr;
  int dstDevice;
  hipExtent extent;
} hipMemcpy3DPeerParms;
