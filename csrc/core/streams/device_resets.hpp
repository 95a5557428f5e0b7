// SPDX-License-Identifier: MIT
// How often a device was reset (hipDeviceReset). A reset frees the memory and destroys the streams of everybody in the
// process, and tells nobody; what was made before it is to be neither used nor given back.
#pragma once

namespace rocpy {

// The number of resets of a device that were noticed. Each call looks: a small allocation of our own on every device is
// gone after a reset. One query of HIP, allowed while streams are captured; where that fails the number stays.
int device_resets(int device) noexcept;

}  // namespace rocpy
