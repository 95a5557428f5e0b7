// SPDX-License-Identifier: MIT
// rocpy's own rows about the emulator, and what they share with HIP's module rows.
#include "emulator.hpp"

#include "decode.hpp"
#include "hip_call.hpp"
#include "opcode_handlers.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace rocpy_host::amdgpu {

namespace {

constexpr size_t most_threads = 1024, most_private_bytes = 256 * 1024;

size_t most_shared_bytes(Architecture architecture) {
  return architecture == Architecture::gfx950 ? 160 << 10 : 64 << 10;
}

bool is_hidden(const Argument &argument) { return argument.kind.compare(0, 7, "hidden_") == 0; }

std::string quoted(const std::string &text) {
  std::string escaped = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') {
      escaped += '\\';
      escaped += letter;
    } else if (static_cast<unsigned char>(letter) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", letter);
      escaped += code;
    } else {
      escaped += letter;
    }
  }
  return escaped + '"';
}

const char *name_of(Outcome outcome) {
  constexpr const char *names[] = {"done", "bad_instruction", "bad_access", "stuck", "too_long"};
  return names[static_cast<int>(outcome)];
}

std::string to_json(const Report &report) {
  std::string json = std::string("{\"outcome\": \"") + name_of(report.outcome) +
                     "\", \"message\": " + quoted(report.message) +
                     ", \"instructions\": " + std::to_string(report.instructions) + ", \"opcodes\": {";
  bool first = true;
  for (size_t row = 0; row < report.counts.size(); ++row) {
    if (report.counts[row] != 0) {
      json += (first ? "" : ", ") + quoted(opcodes()[row].name) + ": " + std::to_string(report.counts[row]);
      first = false;
    }
  }
  json += "}, \"trace\": [";
  for (size_t k = 0; k < report.trace.size(); ++k) {
    json += (k != 0 ? ", " : "") + quoted(report.trace[k]);
  }
  return json + "]}";
}

std::string opcode_list() {
  constexpr const char *encodings[encoding_count] = {"SOP2", "SOP1",   "SOPK",    "SOPC",  "SOPP",  "SMEM",
                                                     "VOP2", "VOP1",   "VOPC",    "VOP3",  "VOP3P", "DS",
                                                     "FLAT", "GLOBAL", "SCRATCH", "MUBUF", "VOPDX", "VOPDY"};
  std::string json = "[";
  for (const Opcode &opcode : opcodes()) {
    json += json.size() > 1 ? ",\n" : "";
    json += std::string("{\"name\": ") + quoted(opcode.name) + ", \"encoding\": \"" +
            encodings[static_cast<int>(opcode.encoding)] +
            "\", \"executed\": " + (handler_of(opcode) != nullptr ? "true" : "false") + ", \"numbers\": {";
    bool first = true;
    for (int a = 0; a < architecture_count; ++a) {
      if (opcode.numbers[static_cast<size_t>(a)] >= 0) {
        json += (first ? "" : ", ") + quoted(amdgpu::name_of(static_cast<Architecture>(a))) + ": " +
                std::to_string(opcode.numbers[static_cast<size_t>(a)]);
        first = false;
      }
    }
    json += "}}";
  }
  return json + "]";
}

std::string decoded(Architecture architecture, const uint8_t *code, size_t bytes) {
  std::string json = "[";
  for (size_t offset = 0; offset + 4 <= bytes;) {
    uint32_t words[4] = {};
    const size_t there = std::min<size_t>((bytes - offset) / 4, 4);
    std::memcpy(words, code + offset, there * 4);
    Instruction first, second;
    const bool known = decode(architecture, words, there, &first, &second);
    const unsigned length = known ? first.bytes : 4;
    json += offset != 0 ? ",\n" : "";
    json += "{\"offset\": " + std::to_string(offset) + ", \"bytes\": " + std::to_string(length) +
            ", \"text\": " + quoted(known ? to_text(architecture, default_lanes(architecture), first, &second) : "") +
            "}";
    offset += length;
  }
  return json + "]";
}

hipError_t give(const std::string &text, char *json, size_t capacity, size_t *needed) {
  if (needed != nullptr) {
    *needed = text.size() + 1;
  }
  if (json != nullptr && capacity > 0) {
    const size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(json, text.data(), length);
    json[length] = '\0';
  }
  return json != nullptr || needed != nullptr ? hipSuccess : hipErrorInvalidValue;
}

thread_local std::string last_report = "{}";

hipError_t refuse(hipError_t status, const std::string &why) {
  last_report = "{\"outcome\": \"refused\", \"message\": " + quoted(why) +
                ", \"instructions\": 0, \"opcodes\": {}, \"trace\": []}";
  return status;
}

hipError_t run_launch(const rocpyExtEmulatorLaunch_t &request) {
  LoadError error = LoadError::none;
  std::string why;
  Launch launch;
  if (request.image_bytes == 0) {
    return refuse(hipErrorInvalidImage, "not an ELF file");
  }
  launch.code = load_code_object(request.image, request.image_bytes, &error, &why);
  if (launch.code == nullptr) {
    return refuse(status_of(error), why);
  }
  const auto kernel = launch.code->kernels.find(request.kernel);
  if (kernel == launch.code->kernels.end()) {
    std::string names;
    for (const auto &[name, unused] : launch.code->kernels) {
      names += (names.empty() ? "" : ", ") + name;
    }
    return refuse(hipErrorNotFound,
                  std::string("the code object has no kernel ") + request.kernel + "; it has " + names);
  }
  launch.kernel = &kernel->second;
  std::copy_n(request.grid, 3, launch.grid);
  std::copy_n(request.block, 3, launch.block);
  launch.dynamic_shared = request.shared_bytes;
  launch.most_instructions = request.most_instructions != 0 ? request.most_instructions : ~0ull;
  launch.most_trace_lines = request.trace_lines;
  if (check_launch(launch, &why) != hipSuccess) {
    return refuse(hipErrorInvalidConfiguration, why);
  }
  if (!pack_arguments(&launch, request.arguments, request.argument_bytes, request.argument_count, &why)) {
    return refuse(hipErrorInvalidValue, why);
  }
  for (size_t k = 0; k < request.range_count; ++k) {
    launch.memory.allow(request.ranges[k].address, request.ranges[k].bytes, request.ranges[k].is_writable != 0);
  }
  const Report report = run(launch);
  last_report = to_json(report);
  return status_of(report.outcome);
}

}  // namespace

bool pack_arguments(Launch *launch, const void *const *arguments, const size_t *bytes, size_t count, std::string *why) {
  const Kernel &kernel = *launch->kernel;
  std::vector<Argument> wanted;
  for (const Argument &argument : kernel.arguments) {
    if (!is_hidden(argument)) {
      wanted.push_back(argument);
    }
  }
  if (kernel.has_metadata && wanted.size() != count) {
    *why = "kernel " + kernel.name + " takes " + std::to_string(wanted.size()) + " arguments, got " +
           std::to_string(count);
    return false;
  }
  if (!kernel.has_metadata && bytes == nullptr && count != 0) {
    *why = "kernel " + kernel.name + " has no metadata that says where its arguments are";
    return false;
  }
  launch->arguments.resize(kernel.argument_bytes);
  size_t at = 0;
  for (size_t k = 0; k < count; ++k) {
    const size_t size = bytes != nullptr ? bytes[k] : wanted[k].bytes;
    const size_t alignment = size >= 8 ? 8 : size >= 4 ? 4 : size >= 2 ? 2 : 1;
    const size_t offset = kernel.has_metadata ? wanted[k].offset : (at + alignment - 1) / alignment * alignment;
    if (kernel.has_metadata && size != wanted[k].bytes) {
      *why = "argument " + std::to_string(k) + " of kernel " + kernel.name + " has " + std::to_string(wanted[k].bytes) +
             " bytes, got " + std::to_string(size);
      return false;
    }
    if (offset + size > launch->arguments.size()) {
      *why = "argument " + std::to_string(k) + " does not fit into the " + std::to_string(launch->arguments.size()) +
             " bytes that kernel " + kernel.name + " takes";
      return false;
    }
    std::memcpy(launch->arguments.data() + offset, arguments[k], size);
    at = offset + size;
  }
  return true;
}

hipError_t check_launch(const Launch &launch, std::string *why) {
  uint64_t threads = 1, blocks = 1;
  for (int k = 0; k < 3; ++k) {
    threads *= launch.block[k];
    blocks *= launch.grid[k] != 0 ? 1 : 0;
    if (launch.block[k] == 0 || launch.block[k] > most_threads) {
      threads = 0;
      break;
    }
  }
  if (threads == 0 || threads > most_threads || blocks == 0) {
    *why = "a block of " + std::to_string(launch.block[0]) + " x " + std::to_string(launch.block[1]) + " x " +
           std::to_string(launch.block[2]) + " threads; 1 to 1024 are possible, and a grid has at least a block";
    return hipErrorInvalidConfiguration;
  }
  if (threads > launch.kernel->most_threads) {
    *why = "a block of " + std::to_string(threads) + " threads; kernel " + launch.kernel->name +
           " was compiled for at most " + std::to_string(launch.kernel->most_threads);
    return hipErrorLaunchFailure;
  }
  const size_t most_shared = most_shared_bytes(launch.code->architecture);
  if (static_cast<uint64_t>(launch.kernel->shared_bytes) + launch.dynamic_shared > most_shared) {
    *why = "more shared memory than the " + std::to_string(most_shared) + " bytes that a group can have";
    return hipErrorInvalidConfiguration;
  }
  if (launch.kernel->private_bytes > most_private_bytes) {
    *why = "a thread's own memory has " + std::to_string(launch.kernel->private_bytes) + " bytes; " +
           std::to_string(most_private_bytes) + " are possible";
    return hipErrorInvalidConfiguration;
  }
  return hipSuccess;
}

hipError_t status_of(Outcome outcome) {
  return outcome == Outcome::done         ? hipSuccess
         : outcome == Outcome::bad_access ? hipErrorIllegalAddress
                                          : hipErrorLaunchFailure;
}

hipError_t status_of(LoadError error) {
  return error == LoadError::none                 ? hipSuccess
         : error == LoadError::other_architecture ? hipErrorNoBinaryForGpu
                                                  : hipErrorInvalidImage;
}

}  // namespace rocpy_host::amdgpu

using namespace rocpy_host;

hipError_t rocpy_host_rocpyExtEmulatorRun(const rocpyExtEmulatorLaunch_t *launch) {
  return hip_call([=] {
    if (launch == nullptr || launch->image == nullptr || launch->kernel == nullptr) {
      return hipErrorInvalidValue;
    }
    return amdgpu::run_launch(*launch);
  });
}

hipError_t rocpy_host_rocpyExtEmulatorReport(char *json, size_t capacity, size_t *needed) {
  return hip_call([=] { return amdgpu::give(amdgpu::last_report, json, capacity, needed); });
}

hipError_t rocpy_host_rocpyExtEmulatorDecode(const char *architecture, const void *code, size_t bytes, char *json,
                                             size_t capacity, size_t *needed) {
  return hip_call([=] {
    amdgpu::Architecture known{};
    if (architecture == nullptr || (code == nullptr && bytes != 0)) {
      return hipErrorInvalidValue;
    }
    if (!amdgpu::find_architecture(architecture, &known)) {
      return hipErrorNoBinaryForGpu;
    }
    return amdgpu::give(amdgpu::decoded(known, static_cast<const uint8_t *>(code), bytes), json, capacity, needed);
  });
}

hipError_t rocpy_host_rocpyExtEmulatorOpcodes(char *json, size_t capacity, size_t *needed) {
  return hip_call([=] { return amdgpu::give(amdgpu::opcode_list(), json, capacity, needed); });
}
