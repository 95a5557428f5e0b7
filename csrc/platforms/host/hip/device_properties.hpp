// SPDX-License-Identifier: MIT
// What a device of this platform says about itself: one struct, which the attributes are read from.
#pragma once

#include "types.h"

#include <string>

namespace rocpy_host {

// A card that devices answer as (ROCPY_HOST_ARCH).
struct Card {
  const char *architecture, *features, *name;
  int major, minor, warp_size, multiprocessors, clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes, shared_bytes;
  int xccs, wall_clock_khz;  // attributes that no property has
};

const Card *presented_card();  // null: devices answer as the CPU
void answer_as(const Card &card, hipDeviceProp_t *properties);

const hipDeviceProp_t &common_properties();  // those that all devices have in common
hipDeviceProp_t properties_of(int device);
std::string bus_id_of(int device);

// False: the attribute is unknown.
bool attribute_of(const hipDeviceProp_t &properties, hipDeviceAttribute_t attribute, int *value);

// The JSON object of rocpyExtPlatformInfo.
std::string platform_info();

}  // namespace rocpy_host
