// SPDX-License-Identifier: MIT
// Which ROCm the platform presents: ROCPY_HOST_ABI, fixed at first use.
#pragma once

namespace rocpy_host {

// As hipRuntimeGetVersion and hipblasLtGetVersion give them.
struct Window {
  const char *rocm;
  int hip, hipblaslt;
};
const Window &window();

}  // namespace rocpy_host
