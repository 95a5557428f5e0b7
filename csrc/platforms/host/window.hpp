// SPDX-License-Identifier: MIT
// Which ROCm the platform presents: ROCPY_HOST_ABI, fixed at first use.
#pragma once

namespace rocpy_host {

// As hipRuntimeGetVersion, hipblasLtGetVersion and ncclGetVersion give them.
struct Window {
  const char *rocm;
  int hip, hipblaslt, rccl;
};
const Window &window();

}  // namespace rocpy_host
