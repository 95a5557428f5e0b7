// SPDX-License-Identifier: MIT
// Memory of ncclMemAlloc, which ranks in other processes can be shown, and what a communicator knows of the others'.
#pragma once

#include "os_shared.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace rocpy_host {

// Where an operand lies in memory that can be shown. Memory 0: it cannot.
struct Location {
  uint64_t memory = 0, offset = 0;
  uint32_t is_new = 0;  // the other ranks have not been shown it yet
};

struct Shown {
  std::shared_ptr<SharedMemory> memory;
  uint64_t number = 0;
};

// The memory of ncclMemAlloc that holds a range; null if it is other memory.
Shown find_shared_memory(const void *pointer, size_t bytes);

// What was registered with a communicator: by ncclCommRegister, or as a window.
struct Registration {
  uint64_t handle = 0;
  const char *base = nullptr;
  size_t bytes = 0;
  Shown shown;
};

// Memory of all ranks that was made a window.
struct RankWindow {
  std::vector<char *> bases;  // as this process sees them
  std::vector<size_t> bytes;
  std::vector<std::shared_ptr<SharedMemory>> retained;
  uint64_t registration = 0;
};

// A communicator's knowledge. Registrations are of the thread that calls, the rest of the one that runs an operation.
struct Memories {
  std::vector<Registration> registrations;
  uint64_t last_handle = 0;
  std::map<uint64_t, std::shared_ptr<RankWindow>> windows;  // by their handles

  std::unique_ptr<Mailbox> mailbox;
  std::set<uint64_t> shown;                                                  // this rank's, to the others
  std::map<std::pair<int, uint64_t>, std::shared_ptr<SharedMemory>> mapped;  // the others', by rank and number

  // Where a range lies; `retained` gets what must live while it is used.
  Location locate(const void *pointer, size_t bytes, std::vector<std::shared_ptr<void>> *retained) const;
};

}  // namespace rocpy_host
