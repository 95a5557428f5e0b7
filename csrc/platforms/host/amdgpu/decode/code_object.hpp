// SPDX-License-Identifier: MIT
// An AMD code object, loaded: its memory, its kernels, and what launching one takes.
#pragma once

#include "instruction.hpp"

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rocpy_host::amdgpu {

struct Argument {
  uint32_t offset = 0, bytes = 0;
  std::string kind;  // as the metadata has it: by_value, global_buffer, hidden_block_count_x, ...
};

struct Kernel {
  std::string name;
  uint64_t entry = 0;  // offset of the code in the image
  uint32_t shared_bytes = 0, private_bytes = 0, argument_bytes = 0;
  uint32_t resources1 = 0, resources2 = 0, properties = 0, preload = 0;
  uint32_t most_threads = 1024;  // of a block that it was compiled for
  int lanes = 64;
  bool has_metadata = false;
  bool has_uniform_blocks = false;  // compiled for grids whose blocks all have one size
  std::vector<Argument> arguments;
};

struct CodeObject {
  Architecture architecture = Architecture::gfx942;
  std::string architecture_name;
  // SRAM ECC, of a target that may have it: on unless the code was compiled for a device that has it off.
  bool has_error_correction = false;
  struct Free {
    void operator()(uint8_t *memory) const { std::free(memory); }
  };
  std::unique_ptr<uint8_t[], Free> storage;
  uint8_t *image = nullptr;  // aligned, in `storage`
  size_t image_bytes = 0;
  std::map<std::string, Kernel> kernels;
  std::map<std::string, std::pair<uint64_t, uint64_t>> objects;  // variables: offset and size
};

enum class LoadError { none, not_a_code_object, other_architecture, malformed };

// Null with the reason, and a sentence for people, where it cannot be loaded. `bytes` 0: the size is read from the
// headers, as hipModuleLoadData must.
std::shared_ptr<CodeObject> load_code_object(const void *image, size_t bytes, LoadError *error, std::string *reason);

// Reads the kernels' arguments from the metadata note (MessagePack); what is malformed in it is left out.
void read_metadata(const uint8_t *data, size_t bytes, std::map<std::string, Kernel> *kernels);

}  // namespace rocpy_host::amdgpu
