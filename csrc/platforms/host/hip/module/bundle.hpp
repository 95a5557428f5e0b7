// SPDX-License-Identifier: MIT
// Bundles of code objects, as clang writes them for several targets in one file.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rocpy_host {

bool is_bundle(const void *image);

struct Unbundled {
  const char *code = nullptr;  // null: the bundle has none for the device, and `reason` says so
  size_t bytes = 0;
  std::vector<char> plain;  // what a compressed bundle holds; `code` may point into it
  std::string reason;
};

// Finds the code object for a device that answers as `architecture`, or the first that can be emulated where that is
// empty. `readable` bytes may be read at `image`.
Unbundled unbundle(const void *image, size_t readable, const std::string &architecture);

}  // namespace rocpy_host
