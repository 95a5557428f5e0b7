// SPDX-License-Identifier: MIT
// What a call came to once it is done: calls only give it to its stream.
#pragma once

#include "check.hpp"
#include "types.h"

#include "prototypes.h"

inline ncclResult_t finished(ncclComm_t comm, ncclResult_t code) {
  if (code != ncclSuccess) return code;
  CHECK_EQUAL(hipStreamSynchronize(nullptr), hipSuccess);
  ncclResult_t error = ncclInternalError;
  CHECK_EQUAL(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  return error;
}
