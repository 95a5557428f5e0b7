// SPDX-License-Identifier: MIT
// Which function executes an instruction, by its name; each source file of semantics adds its own.
#pragma once

#include "instruction.hpp"

#include <string>
#include <unordered_map>

namespace rocpy_host::amdgpu {

struct Wave;
using Handler = void (*)(Wave &, const Instruction &);

class Handlers {
 public:
  void add(const std::string &name, Handler handler) { by_name_[name] = handler; }
  Handler find(Encoding encoding, const std::string &name) const {
    std::string key = name;
    if (encoding == Encoding::VOPDX || encoding == Encoding::VOPDY) {
      key = "v_" + name.substr(sizeof("v_dual_") - 1);
    }
    const auto match = by_name_.find(key);
    return match == by_name_.end() ? nullptr : match->second;
  }

 private:
  std::unordered_map<std::string, Handler> by_name_;
};

void add_scalar(Handlers &handlers);
void add_scalar_compare(Handlers &handlers);
void add_scalar_float(Handlers &handlers);
void add_scalar_memory(Handlers &handlers);
void add_program(Handlers &handlers);
void add_indexing(Handlers &handlers);
void add_integer(Handlers &handlers);
void add_float(Handlers &handlers);
void add_half(Handlers &handlers);
void add_convert(Handlers &handlers);
void add_compare(Handlers &handlers);
void add_cross_lane(Handlers &handlers);
void add_packed(Handlers &handlers);
void add_matrix(Handlers &handlers);
void add_lds(Handlers &handlers);
void add_memory(Handlers &handlers);
void add_atomics(Handlers &handlers);

}  // namespace rocpy_host::amdgpu
