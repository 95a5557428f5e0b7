// SPDX-License-Identifier: MIT
// The state of a wave and of the group that it belongs to, and access to registers.
#pragma once

#include "instruction.hpp"
#include "memory.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace rocpy_host::amdgpu {

// What stops a launch: thrown where it is found, reported with kernel, group, wave and instruction.
struct Fault : std::runtime_error {
  enum class Kind { instruction, memory, barrier, limit };
  Fault(Kind what, const std::string &text) : std::runtime_error(text), kind(what) {}
  Kind kind;
};

[[noreturn]] void fault(Fault::Kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

// High words of the addresses that stand for shared memory and a thread's own.
constexpr uint32_t shared_aperture = 0x01000000, private_aperture = 0x02000000;

// What the groups of a cooperative launch share: a barrier of the whole grid.
struct Grid {
  uint64_t arrived = 0, phase = 0;
};

struct Group {
  Grid *grid = nullptr;  // null: the groups do not run at the same time
  std::vector<uint8_t> shared;
  uint32_t private_bytes = 0;
  unsigned live_waves = 0, signalled = 0;
  uint64_t barrier_phase = 0;
  uint32_t index[3] = {0, 0, 0};
};

constexpr int most_lanes = 64, vector_registers = 512;

enum class State : uint8_t { running, at_barrier, at_grid_barrier, ended };

struct Wave {
  Architecture architecture;
  int lanes;
  Group *group;
  Memory *memory;
  unsigned number = 0;                // in its group
  bool has_error_correction = false;  // SRAM ECC

  uint32_t scalar[128] = {};  // by operand number: VCC, M0 and EXEC among them
  bool scc = false;
  uint32_t mode = 0;
  uint64_t pc = 0, next_pc = 0;  // addresses in the process
  State state = State::running;
  bool is_sleeping = false;  // lets others go first
  uint64_t waits_for = 0;    // barrier phase that must have passed
  std::vector<uint32_t> vector_file;
  std::vector<uint8_t> own_memory;  // of all lanes, one after the other

  Wave(Architecture a, int lane_count, Group *of, Memory *reads)
      : architecture(a),
        lanes(lane_count),
        group(of),
        memory(reads),
        vector_file(static_cast<size_t>(vector_registers) * lane_count) {}

  bool gfx9() const { return is_gfx9(architecture); }
  uint64_t all_lanes() const { return lanes == 64 ? ~0ull : 0xffffffffull; }
  uint64_t pair(unsigned code) const { return scalar[code] | static_cast<uint64_t>(scalar[code + 1]) << 32; }
  void set_pair(unsigned code, uint64_t value) {
    scalar[code] = static_cast<uint32_t>(value);
    scalar[code + 1] = static_cast<uint32_t>(value >> 32);
  }
  uint64_t exec() const { return pair(code_exec) & all_lanes(); }
  // A bit for each lane: two registers in a wave of 64, one in a wave of 32.
  uint64_t lane_mask(unsigned code) const { return lanes == 64 ? read64(code, 0) : read32(code, 0); }
  void set_lane_mask(unsigned code, uint64_t value) {
    lanes == 64 ? write64(code, value) : write32(code, static_cast<uint32_t>(value));
  }
  uint32_t m0() const { return scalar[m0_code(architecture)]; }
  bool is_null(unsigned code) const { return !gfx9() && code == 124; }

  uint32_t read32(unsigned code, uint32_t literal) const;
  uint64_t read64(unsigned code, uint32_t literal, Type type = Type::b64) const;
  void write32(unsigned code, uint32_t value);
  void write64(unsigned code, uint64_t value);

  // The lanes of a vector register; accumulation registers lie behind the others.
  uint32_t *vector(unsigned code) {
    if (code < code_vgpr || code - code_vgpr >= vector_registers) {
      fault(Fault::Kind::instruction, "operand %u is not a vector register", code);
    }
    return vector_file.data() + static_cast<size_t>(code - code_vgpr) * lanes;
  }
  // Registers code .. code + count - 1 exist.
  uint32_t *vectors(unsigned code, unsigned count) {
    vector(code + count - 1);
    return vector(code);
  }

  // Rounding (0 nearest even, 1 up, 2 down, 3 to zero) and whether denormals are kept, of float32 and of the others.
  unsigned round32() const { return mode & 3; }
  unsigned round64() const { return mode >> 2 & 3; }
  bool flush_in32() const { return (mode & 0x10) == 0; }
  bool flush_out32() const { return (mode & 0x20) == 0; }
  bool flush_in64() const { return (mode & 0x40) == 0; }
  bool flush_out64() const { return (mode & 0x80) == 0; }
  // Whether the output modifier of an instruction counts: IEEE mode is bit 9, which GFX12 does not have.
  bool scales_output(bool flushes) const {
    return architecture == Architecture::gfx1201 || (flushes && (mode & 0x200) == 0);
  }
  // GFX9's mode in which vector instructions add an index to the numbers of their registers.
  bool indexes_registers() const { return gfx9() && (mode >> 27 & 1) != 0; }
  bool clamps_nan() const { return architecture == Architecture::gfx1201 || (mode & 0x100) != 0; }
};

// An inline constant's bits in an operand of that type; false for codes that are none.
bool inline_constant(unsigned code, Type type, uint64_t *value);

}  // namespace rocpy_host::amdgpu
