// SPDX-License-Identifier: MIT
// The loader: opens a platform's libraries from one tree and fills the table. Which trees are tried, and in which
// order, is the policy of rocpy/platform.py.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "status.hpp"

namespace rocpy {

// HIP before 6.0 has other structs and enumerators under the same names.
constexpr int oldest_hip_version = 60000000;

// What was found out about one library of the loaded platform.
struct LibraryFacts {
  Library library = Library::hip;
  std::string absence;       // why an optional library is not there; empty for one that is
  std::string path;          // of the mapped file, as the dynamic linker names it
  std::string file_version;  // what follows ".so." in the name of the file behind the links, or empty
  int version = 0;           // as the library reports it, 0 while unknown
  std::vector<const char *> missing;
};

// What a tree is asked for.
struct Tree {
  std::vector<std::string>
      directories;  // searched in this order for each library; empty: the system's loader is asked by bare name
  bool need_device = false;  // refuse the tree when hipGetDeviceCount answers none
};

enum class Outcome : int32_t {
  loaded = 0,          // the table is filled
  already_loaded = 1,  // a platform has been published; nothing was done
  absent = 2,          // a library is not in the tree
  unusable = 3,        // a library cannot be opened, is no HIP runtime, or is bound to the HIP runtime of another tree
  too_old = 4,
  no_device = 5,
};

struct Attempt {
  Outcome outcome = Outcome::absent;
  std::string reason;  // for the user: file, what was seen
  int device_count = 0;
};

// Opens hip, then the libraries over it, from the tree, and fills the table with them. A tree without RCCL, or
// with one that cannot be used, serves: products do not need it. Libraries of a refused
// tree that were never called are closed; one that was called stays open, since HIP runtimes do not survive unloading.
// Until it is published, only who chooses uses the platform, and another load replaces it: a choice that an interrupt
// ends leaves nothing behind that the next one would have to know.
Attempt load_platform(const Tree &tree);

// Makes what is in the table this process's platform.
void publish_platform();

extern std::atomic<bool> platform_loaded;  // set by publish_platform
inline bool loaded() noexcept { return platform_loaded.load(std::memory_order_acquire); }

// The libraries that are there.
std::vector<LibraryFacts> library_facts();

// Asks the libraries whose version only a handle can tell, once, where a device has memory free for a handle.
void probe_versions();

// The text that a missing function's error carries: function, library, path, version.
std::string missing_text(Library library, const char *function);

// The address of a symbol that is no row, in the loaded library; null where it has none or nothing is loaded.
void *find_symbol(Library library, const char *symbol);

// The platform's answer to rocpyExtPlatformInfo, a JSON object; empty where the platform has no such function.
std::string platform_info();

struct DeviceFacts {
  std::string name;
  std::string arch;
  size_t memory_bytes = 0;
};

// The loaded platform's devices; none when none answers.
std::vector<DeviceFacts> devices();

// The address of HIP's name for a code: two users of HIP that get the same address for the same code hold one runtime.
const void *error_name_address(int32_t code);

// The file whose mapping holds the address, or empty.
std::string file_of_address(const void *address);

}  // namespace rocpy
