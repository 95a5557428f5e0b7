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

// Whether products that AMD lists for no card are left out: ROCPY_HOST_STRICT, fixed at first use.
bool is_strict();

}  // namespace rocpy_host
