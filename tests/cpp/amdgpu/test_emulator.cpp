// SPDX-License-Identifier: MIT
// The emulator of AMD's instructions on what no compiler would give it: random words, random addresses, files that are
// cut off or changed. Each ends in a typed status and a report, soon, and touches nothing but what it was given.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "code_object_builder.hpp"
#include "decode.hpp"
#include "exports.h"
#include "instruction.hpp"
#include "opcode_handlers.hpp"

namespace {

using namespace rocpy_host::amdgpu;

struct Chip {
  Architecture architecture;
  unsigned machine;  // EF_AMDGPU_MACH
  bool is_wave32;
};
constexpr Chip chips[] = {{Architecture::gfx90a, 0x3f, false},
                          {Architecture::gfx942, 0x4c, false},
                          {Architecture::gfx950, 0x4f, false},
                          {Architecture::gfx1100, 0x41, true},
                          {Architecture::gfx1201, 0x4e, true}};
constexpr uint32_t end_of_program_gfx9 = 0xbf810000, end_of_program = 0xbfb00000;
constexpr uint64_t most_instructions = 3000;

std::mt19937_64 random_bits(20240229);
uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_bits() % limit); }

// What a kernel may touch, with memory around it that it may not.
constexpr size_t margin = 4096, room = 8192;
std::vector<uint8_t> memory(room + 2 * margin, 0x5a);

hipError_t run(const std::vector<uint8_t> &file, uint32_t threads, uint32_t trace_lines) {
  const void *const inside = memory.data() + margin;
  const void *const pointers[4] = {inside, inside, inside, inside};
  const void *arguments[4];
  size_t bytes[4];
  for (int k = 0; k < 4; ++k) {
    arguments[k] = &pointers[k];
    bytes[k] = sizeof pointers[k];
  }
  const rocpyExtEmulatorRange_t range = {inside, room, 1, 0};
  // A copy of its own: one byte past the file is found by the address sanitizer.
  const std::vector<uint8_t> image(file.begin(), file.end());
  rocpyExtEmulatorLaunch_t launch{};
  launch.image = image.empty() ? "" : reinterpret_cast<const char *>(image.data());
  launch.image_bytes = image.size();
  launch.kernel = "k";
  for (int k = 0; k < 3; ++k) {
    launch.grid[k] = launch.block[k] = 1;
  }
  launch.block[0] = threads;
  launch.trace_lines = trace_lines;
  launch.arguments = arguments;
  launch.argument_bytes = bytes;
  launch.argument_count = 4;
  launch.ranges = &range;
  launch.range_count = 1;
  launch.most_instructions = most_instructions;
  return rocpy_host_rocpyExtEmulatorRun(&launch);
}

std::string report() {
  size_t needed = 0;
  CHECK_EQUAL(rocpy_host_rocpyExtEmulatorReport(nullptr, 0, &needed), hipSuccess);
  std::string text(needed, '\0');
  CHECK_EQUAL(rocpy_host_rocpyExtEmulatorReport(text.data(), needed, nullptr), hipSuccess);
  return text;
}

// Any of the statuses that say what is wrong; an untyped one is a failure, and so is a write outside.
void check(hipError_t status) {
  constexpr hipError_t typed[] = {hipSuccess,           hipErrorIllegalAddress,      hipErrorLaunchFailure,
                                  hipErrorInvalidImage, hipErrorNoBinaryForGpu,      hipErrorNotFound,
                                  hipErrorInvalidValue, hipErrorInvalidConfiguration};
  if (std::find(std::begin(typed), std::end(typed), status) == std::end(typed)) {
    std::fprintf(stderr, "status %d: %s\n", static_cast<int>(status), report().c_str());
    CHECK(false);
  }
  const auto is_kept = [](uint8_t byte) { return byte == 0x5a; };
  CHECK(std::all_of(memory.begin(), memory.begin() + margin, is_kept));
  CHECK(std::all_of(memory.end() - margin, memory.end(), is_kept));
}

uint32_t special_word() {
  constexpr uint32_t words[] = {0,          1,          0x7f,       0x80000000, 0x7fffffff, 0xffffffff,
                                0x7f800000, 0xff800000, 0x7fc00000, 0x00000001, 0x7f7fffff, 0x3f800000,
                                0x01000000, 0x02000000, 0x00010000, 0x7ff00000, 0xfff00000};
  return below(3) == 0 ? static_cast<uint32_t>(random_bits()) : words[below(std::size(words))];
}

uint64_t address() {
  const auto inside = reinterpret_cast<uintptr_t>(memory.data()) + margin;
  const int64_t near = static_cast<int64_t>(below(64)) - 32;
  switch (below(7)) {
    case 0:
      return inside + below(room);
    case 1:
      return inside + room + static_cast<uint64_t>(near);
    case 2:
      return inside + static_cast<uint64_t>(near);
    case 3:
      return static_cast<uint64_t>(near);
    case 4:  // shared memory
      return 0x0100000000000000ull | (CodeObjectBuilder::shared_bytes + static_cast<uint64_t>(near));
    case 5:  // a thread's own
      return 0x0200000000000000ull | (CodeObjectBuilder::private_bytes + static_cast<uint64_t>(near));
    default:
      return random_bits();
  }
}

// Values for the first registers: v0 to v31, s4 to s63. Pairs of them are addresses, where asked for.
void fill_registers(std::vector<uint32_t> *code, bool with_addresses) {
  constexpr uint32_t move_vector = 0x7e0002ff, move_scalar = 0xbe8000ff;
  for (uint32_t k = 0; k < 32; k += 2) {
    const uint64_t value = with_addresses ? address() : special_word() | static_cast<uint64_t>(special_word()) << 32;
    code->insert(code->end(), {move_vector | k << 17, static_cast<uint32_t>(value), move_vector | (k + 1) << 17,
                               static_cast<uint32_t>(value >> 32)});
  }
  for (uint32_t k = 4; k < 64; k += 2) {
    const uint64_t value = with_addresses ? address() : special_word() | static_cast<uint64_t>(special_word()) << 32;
    code->insert(code->end(), {move_scalar | k << 16, static_cast<uint32_t>(value), move_scalar | (k + 1) << 16,
                               static_cast<uint32_t>(value >> 32)});
  }
}

// A random instruction that the decoder knows and that is executed, of given encodings if any; empty: none was found.
std::vector<uint32_t> instruction(Architecture architecture, bool only_memory) {
  for (int attempt = 0; attempt < 4000; ++attempt) {
    uint32_t words[4];
    for (uint32_t &word : words) {
      word = static_cast<uint32_t>(random_bits());
    }
    Instruction first, second;
    if (only_memory) {
      constexpr uint32_t kinds_gfx9[] = {0x30, 0x36, 0x37, 0x38}, kinds[] = {0x3d, 0x36, 0x37, 0x38, 0x3b, 0x31};
      const uint32_t kind = is_gfx9(architecture) ? kinds_gfx9[below(4)] : kinds[below(6)];
      words[0] = (words[0] & 0x03ffffff) | kind << 26;
      words[1] &= 0x1f7f1f1f;  // registers that were filled
      words[2] &= 0xffffff1f;
    }
    if (!decode(architecture, words, 4, &first, &second) || handler_of(*first.opcode) == nullptr ||
        (first.has_second && handler_of(*second.opcode) == nullptr)) {
      continue;
    }
    const std::string name = first.opcode->name;
    if (name == "s_endpgm" || name == "s_trap") {
      continue;
    }
    return {words, words + first.bytes / 4};
  }
  return {};
}

void test_a_program_that_is_right() {
  for (const Chip &chip : chips) {
    std::vector<uint32_t> code;
    fill_registers(&code, false);
    code.push_back(is_gfx9(chip.architecture) ? end_of_program_gfx9 : end_of_program);
    CHECK_EQUAL(run(CodeObjectBuilder::build(chip.machine, chip.is_wave32, code), 100, 4), hipSuccess);
    CHECK(report().find("\"v_mov_b32\"") != std::string::npos);
    CHECK(report().find("\"s_mov_b32\"") != std::string::npos);
  }
}

void test_random_instructions(int rounds) {
  size_t finished = 0, tried = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const Chip &chip : chips) {
      const bool with_addresses = round % 3 == 0;
      std::vector<uint32_t> code;
      fill_registers(&code, with_addresses);
      for (uint32_t k = 0; k < 1 + below(4); ++k) {
        const std::vector<uint32_t> made = instruction(chip.architecture, with_addresses);
        code.insert(code.end(), made.begin(), made.end());
      }
      code.push_back(is_gfx9(chip.architecture) ? end_of_program_gfx9 : end_of_program);
      const hipError_t status =
          run(CodeObjectBuilder::build(chip.machine, chip.is_wave32, code), 1 + below(130), below(200));
      check(status);
      finished += status == hipSuccess;
      ++tried;
    }
  }
  // Otherwise the instructions were none to speak of.
  CHECK(finished * 5 > tried);
  CHECK(finished < tried);
}

void test_random_words(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (const Chip &chip : chips) {
      std::vector<uint32_t> code(1 + below(200));
      std::generate(code.begin(), code.end(), [] { return static_cast<uint32_t>(random_bits()); });
      check(run(CodeObjectBuilder::build(chip.machine, chip.is_wave32, code), 1 + below(130), below(20)));
      size_t needed = 0;
      const std::string name = name_of(chip.architecture);
      CHECK_EQUAL(
          rocpy_host_rocpyExtEmulatorDecode(name.c_str(), code.data(), 4 * code.size() - below(4), nullptr, 0, &needed),
          hipSuccess);
      CHECK(needed > 2);
    }
  }
}

std::vector<uint8_t> small_file(const Chip &chip) {
  std::vector<uint32_t> code;
  fill_registers(&code, false);
  code.push_back(is_gfx9(chip.architecture) ? end_of_program_gfx9 : end_of_program);
  return CodeObjectBuilder::build(chip.machine, chip.is_wave32, code);
}

void test_files_that_are_cut_off() {
  const std::vector<uint8_t> whole = small_file(chips[1]);
  for (size_t length = 0; length < whole.size(); ++length) {
    const hipError_t status = run({whole.begin(), whole.begin() + static_cast<int64_t>(length)}, 64, 0);
    check(status);
    CHECK(status != hipSuccess);
  }
}

// Each word of headers, tables, descriptor and metadata, alone and with its neighbour, becomes an extreme.
void test_extreme_fields() {
  constexpr uint64_t extremes[] = {0, 1, 7, 0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff, 0x3fffffff, 1u << 30};
  for (const Chip &chip : {chips[1], chips[4]}) {
    const std::vector<uint8_t> whole = small_file(chip);
    for (size_t at = 0; at + 8 <= CodeObjectBuilder::text; at += 4) {
      for (const uint64_t extreme : extremes) {
        for (const size_t bytes : {size_t{4}, size_t{8}}) {
          std::vector<uint8_t> changed = whole;
          const uint64_t value = bytes == 8 && extreme > 7 ? ~extreme : extreme;
          std::memcpy(changed.data() + at, &value, bytes);
          check(run(changed, 64, 0));
        }
      }
    }
  }
}

void test_changed_bytes(int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<uint8_t> changed = small_file(chips[below(std::size(chips))]);
    const bool headers_alone = round % 2 == 0;
    for (uint32_t k = 0; k < 1 + below(12); ++k) {
      const size_t limit = headers_alone ? CodeObjectBuilder::text : changed.size();
      changed[4 + below(static_cast<uint32_t>(limit - 4))] = static_cast<uint8_t>(random_bits());
    }
    check(run(changed, 1 + below(200), below(10)));
  }
}

}  // namespace

int main(int argc, char **argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 400;
  test_a_program_that_is_right();
  test_files_that_are_cut_off();
  test_extreme_fields();
  test_random_words(rounds);
  test_random_instructions(4 * rounds);
  test_changed_bytes(4 * rounds);
  return failures == 0 ? 0 : 1;
}
