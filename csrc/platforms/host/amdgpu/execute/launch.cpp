// SPDX-License-Identifier: MIT
// The launch of a kernel: what its waves find in their registers, and the order in which they run.
#include "launch.hpp"

#include "decode.hpp"
#include "fp_environment.h"
#include "indexing.hpp"
#include "opcode_handlers.hpp"
#include "wave.hpp"

#include <algorithm>
#include <cfenv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>

namespace rocpy_host::amdgpu {

namespace {

// What a kernel may read through its dispatch pointer: the AQL packet of HSA.
struct DispatchPacket {
  uint16_t header = 2, setup = 3;
  uint16_t block[3] = {}, reserved0 = 0;
  uint32_t grid[3] = {};
  uint32_t private_bytes = 0, shared_bytes = 0;
  uint64_t kernel = 0, arguments = 0, reserved1 = 0, completion = 0;
};
static_assert(sizeof(DispatchPacket) == 64, "an AQL packet is 64 bytes");

struct Decoded {
  Instruction first, second;
};

class Runner {
 public:
  explicit Runner(Launch &launch) : launch_(launch), code_(*launch.code), kernel_(*launch.kernel) {
    report_.counts.resize(opcodes().size());
    for (int k = 0; k < 3; ++k) {
      packet_.block[k] = static_cast<uint16_t>(launch.block[k]);
      const bool is_partial = launch.remainder[k] != 0;
      packet_.grid[k] = (launch.grid[k] - (is_partial ? 1 : 0)) * launch.block[k] + launch.remainder[k];
    }
    packet_.private_bytes = kernel_.private_bytes;
    packet_.shared_bytes = kernel_.shared_bytes + launch.dynamic_shared;
    // Whole lines, as a runtime gives them: compilers load a few bytes more than there are arguments.
    const size_t told = std::max<size_t>(kernel_.argument_bytes, launch_.arguments.size());
    launch_.arguments.resize((told + 63) / 64 * 64);
    if (launch.is_cooperative) {
      GridInformation &grid = launch_.grid_information;
      grid.groups = launch.grid[0] * launch.grid[1] * launch.grid[2];
      launch_.memory.allow(&grid, sizeof grid, true);
      if (launch_.grid_barrier != nullptr) {
        grid.grid_barrier = launch_.grid_barrier->words;
        launch_.memory.allow(grid.grid_barrier, sizeof launch_.grid_barrier->words, true);
      }
    }
    hidden_arguments();
    launch_.memory.allow(code_.image, code_.image_bytes, true);
    launch_.memory.allow(launch_.arguments.data(), launch_.arguments.size(), false);
    launch_.memory.allow(&packet_, sizeof packet_, false);
    packet_.arguments = reinterpret_cast<uintptr_t>(launch_.arguments.data());
  }

  Report run() {
    try {
      for (uint32_t z = 0; z < launch_.grid[2]; ++z) {
        for (uint32_t y = 0; y < launch_.grid[1]; ++y) {
          for (uint32_t x = 0; x < launch_.grid[0]; ++x) {
            begin_group(x, y, z);
            if (!launch_.is_cooperative) {
              run_groups();
            }
          }
        }
      }
      run_groups();
    } catch (const Fault &fault) {
      constexpr Outcome outcomes[] = {Outcome::bad_instruction, Outcome::bad_access, Outcome::stuck, Outcome::too_long};
      report_.outcome = outcomes[static_cast<int>(fault.kind)];
      report_.message = where() + fault.what();
      if (launch_.grid_barrier != nullptr) {
        launch_.grid_barrier->is_broken = true;
      }
    }
    return std::move(report_);
  }

 private:
  template <class T>
  void set_hidden(const Argument &argument, T value) {
    std::memcpy(launch_.arguments.data() + argument.offset, &value, std::min<size_t>(sizeof value, argument.bytes));
  }

  void hidden_arguments() {
    for (const Argument &argument : kernel_.arguments) {
      const std::string &kind = argument.kind;
      const int axis = kind.empty() ? 0 : (kind.back() - 'x') % 3;
      if (kind.compare(0, 19, "hidden_block_count_") == 0) {
        set_hidden<uint32_t>(argument, launch_.grid[axis] - (launch_.remainder[axis] != 0 ? 1 : 0));  // full ones
      } else if (kind.compare(0, 17, "hidden_remainder_") == 0) {
        set_hidden<uint16_t>(argument, static_cast<uint16_t>(launch_.remainder[axis]));
      } else if (kind.compare(0, 18, "hidden_group_size_") == 0) {
        set_hidden<uint16_t>(argument, static_cast<uint16_t>(launch_.block[axis]));
      } else if (kind == "hidden_grid_dims") {
        set_hidden<uint16_t>(argument, launch_.grid[2] * launch_.block[2] > 1   ? 3
                                       : launch_.grid[1] * launch_.block[1] > 1 ? 2
                                                                                : 1);
      } else if (kind == "hidden_dynamic_lds_size") {
        set_hidden<uint32_t>(argument, launch_.dynamic_shared);
      } else if (kind == "hidden_multigrid_sync_arg") {
        set_hidden<uint64_t>(argument,
                             launch_.is_cooperative ? reinterpret_cast<uintptr_t>(&launch_.grid_information) : 0);
      } else if (kind == "hidden_private_base") {
        set_hidden<uint32_t>(argument, private_aperture);
      } else if (kind == "hidden_shared_base") {
        set_hidden<uint32_t>(argument, shared_aperture);
      }
    }
  }

  void set_registers(Wave &w) {
    const uint32_t properties = kernel_.properties;
    unsigned at = 0;
    const auto put_pair = [&](unsigned bit, uint64_t value) {
      if ((properties >> bit & 1) != 0) {
        w.set_pair(at, value);
        at += 2;
      }
    };
    if ((properties & 1) != 0) {
      // The buffer of a thread's own memory; lanes are interleaved, which bit 23 of its last word says.
      w.scalar[at + 2] = 0xffffffff;
      w.scalar[at + 3] = 1u << 23;
      at += 4;
    }
    const uint64_t arguments = reinterpret_cast<uintptr_t>(launch_.arguments.data());
    put_pair(1, reinterpret_cast<uintptr_t>(&packet_));
    put_pair(2, 0);
    put_pair(3, arguments);
    put_pair(4, 1);
    put_pair(5, 0);
    if ((properties >> 6 & 1) != 0) {
      w.scalar[at++] = kernel_.private_bytes;
    }
    const unsigned preload_words = kernel_.preload & 127, preload_from = kernel_.preload >> 7;
    for (unsigned k = 0; k < preload_words && at < 16; ++k) {
      const size_t offset = (preload_from + k) * 4;
      if (offset + 4 <= launch_.arguments.size()) {
        std::memcpy(&w.scalar[at], launch_.arguments.data() + offset, 4);
      }
      ++at;
    }
    group_numbers(w);
    w.mode = (kernel_.resources1 >> 12 & 0xff) | (kernel_.resources1 >> 21 & 1) << 8 |
             (kernel_.resources1 >> 23 & 1) << 9 | (kernel_.resources1 >> 26 & 1) << 23;
    w.scalar[m0_code(w.architecture)] = 0xffffffff;
  }

  void group_numbers(Wave &w) {
    const uint32_t *index = w.group->index;
    if (is_gfx12(w.architecture)) {
      w.scalar[code_ttmp + 8] = w.number << 25;
      w.scalar[code_ttmp + 9] = index[0];
      w.scalar[code_ttmp + 7] = index[1] | index[2] << 16;
      return;
    }
    unsigned at = kernel_.resources2 >> 1 & 31;
    for (int k = 0; k < 3; ++k) {
      if ((kernel_.resources2 >> (7 + k) & 1) != 0) {
        w.scalar[at++] = index[k];
      }
    }
    // Then the group's information and the offset of the wave's scratch memory, both zero here.
  }

  // Threads of a block along each axis.
  struct Extents {
    unsigned x, y, z;
    unsigned threads() const { return x * y * z; }
  };
  Extents extents(const Group &group) const {
    const auto along = [&, this](int k) {
      const bool is_last = group.index[k] + 1 == launch_.grid[k];
      return is_last && launch_.remainder[k] != 0 ? launch_.remainder[k] : launch_.block[k];
    };
    return {along(0), along(1), along(2)};
  }

  void set_lanes(Wave &w, unsigned first, const Extents &block) {
    const unsigned threads = block.threads();
    uint64_t exec = 0;
    uint32_t *numbers = w.vector(code_vgpr);
    for (int lane = 0; lane < w.lanes; ++lane) {
      const unsigned thread = first + static_cast<unsigned>(lane);
      if (thread >= threads) {
        break;
      }
      exec |= 1ull << lane;
      const unsigned x = thread % block.x, y = thread / block.x % block.y, z = thread / block.x / block.y;
      numbers[lane] = x | y << 10 | z << 20;
    }
    w.set_pair(code_exec, exec);
  }

  // A group that has begun, and its waves.
  struct Running {
    Group group;
    std::deque<Wave> waves;
  };

  void begin_group(uint32_t x, uint32_t y, uint32_t z) {
    current_ = nullptr;
    wave_ = nullptr;
    running_ = groups_.emplace_back(std::make_unique<Running>()).get();
    Group &group = running_->group;
    group.grid = launch_.is_cooperative ? &grid_ : nullptr;
    group.shared.resize(kernel_.shared_bytes + launch_.dynamic_shared);
    group.private_bytes = kernel_.private_bytes;
    group.index[0] = x;
    group.index[1] = y;
    group.index[2] = z;
    const Extents block = extents(group);
    for (unsigned first = 0; first < block.threads(); first += static_cast<unsigned>(kernel_.lanes)) {
      Wave &w = running_->waves.emplace_back(code_.architecture, kernel_.lanes, &group, &launch_.memory);
      w.number = static_cast<unsigned>(running_->waves.size()) - 1;
      w.has_error_correction = code_.has_error_correction;
      w.own_memory.resize(static_cast<size_t>(kernel_.private_bytes) * static_cast<size_t>(kernel_.lanes));
      // Firmware that loads arguments into registers starts behind the block that does it by instructions.
      w.pc = reinterpret_cast<uintptr_t>(code_.image) + kernel_.entry + ((kernel_.preload & 127) != 0 ? 256 : 0);
      set_registers(w);
      set_lanes(w, first, block);
    }
    group.live_waves = static_cast<unsigned>(running_->waves.size());
  }

  // Runs the groups that have begun to their end, all at the same time.
  void run_groups() {
    while (!groups_.empty()) {
      bool moved = false;
      for (const auto &group : groups_) {
        running_ = group.get();
        for (Wave &w : group->waves) {
          moved = turn(w) || moved;
        }
      }
      if (launch_.grid_barrier != nullptr && launch_.grid_barrier->is_broken) {
        fault(Fault::Kind::barrier, "the grid of another device was stopped, which this one may wait for");
      }
      if (!moved) {
        fault_of_barrier();
      }
      groups_.erase(std::remove_if(groups_.begin(), groups_.end(),
                                   [](const auto &group) { return group->group.live_waves == 0; }),
                    groups_.end());
    }
    running_ = nullptr;
    wave_ = nullptr;
  }

  [[noreturn]] void fault_of_barrier() {
    running_ = groups_.front().get();
    const bool is_grid = std::any_of(running_->waves.begin(), running_->waves.end(),
                                     [](const Wave &w) { return w.state == State::at_grid_barrier; });
    fault(Fault::Kind::barrier, "%u of %zu waves wait at a barrier that %s never reach", running_->group.live_waves,
          running_->waves.size(), is_grid ? "other blocks" : "the others");
  }

  // Runs a wave until it waits, sleeps or ends, or for so long that another may have to do something first.
  bool turn(Wave &w) {
    Group &group = *w.group;
    if ((w.state == State::at_barrier && group.barrier_phase >= w.waits_for) ||
        (w.state == State::at_grid_barrier && group.grid->phase >= w.waits_for)) {
      w.state = State::running;
    }
    if (w.state != State::running) {
      return false;
    }
    wave_ = &w;
    w.is_sleeping = false;
    constexpr int slice = 65536;
    for (int k = 0; k < slice && w.state == State::running && !w.is_sleeping; ++k) {
      step(w);
    }
    if (w.state == State::ended) {
      --group.live_waves;
      if (group.signalled != 0 && group.signalled >= group.live_waves) {
        group.signalled = 0;
        ++group.barrier_phase;
      }
    }
    return true;
  }

  const Decoded &fetch(Wave &w) {
    const uint64_t base = reinterpret_cast<uintptr_t>(code_.image);
    const uint64_t offset = w.pc - base;
    if (offset >= code_.image_bytes || offset % 4 != 0) {
      fault(Fault::Kind::instruction, "the wave left the code object's memory");
    }
    if (offset / 4 >= index_.size()) {
      index_.resize(offset / 4 + 1024, -1);
    }
    int32_t &at = index_[offset / 4];
    if (at < 0) {
      Decoded &entry = decoded_.emplace_back();
      const size_t words = (code_.image_bytes - offset) / 4;
      uint32_t words_here[4] = {};
      std::memcpy(words_here, code_.image + offset, std::min<size_t>(words, 4) * 4);
      if (!decode(code_.architecture, words_here, std::min<size_t>(words, 4), &entry.first, &entry.second)) {
        decoded_.pop_back();
        fault(Fault::Kind::instruction, "0x%08x 0x%08x is not a known instruction of %s", words_here[0], words_here[1],
              name_of(code_.architecture));
      }
      entry.first.address = entry.second.address = offset;
      at = static_cast<int32_t>(decoded_.size()) - 1;
    }
    return decoded_[static_cast<size_t>(at)];
  }

  void step(Wave &w) {
    current_ = nullptr;
    const Decoded &decoded = fetch(w);
    current_ = &decoded;
    if (report_.instructions++ >= launch_.most_instructions) {
      fault(Fault::Kind::limit, "more than %" PRIu64 " instructions", launch_.most_instructions);
    }
    const Instruction &first = decoded.first;
    if (report_.trace.size() < launch_.most_trace_lines) {
      trace(w, decoded);
    }
    w.next_pc = w.pc + first.bytes;
    if (first.has_second) {
      execute_both(w, decoded);
    } else {
      execute(w, first);
    }
    w.pc = w.next_pc;
  }

  void execute(Wave &w, const Instruction &i) {
    const size_t row = row_of(*i.opcode);
    const Handler handler = handlers_[row];
    if (handler == nullptr) {
      fault(Fault::Kind::instruction, "%s is not emulated", i.opcode->name);
    }
    ++report_.counts[row];
    if (w.indexes_registers()) {
      handler(w, with_indexed_registers(w, i));
    } else {
      handler(w, i);
    }
  }

  // Both halves read their sources before either writes.
  void execute_both(Wave &w, const Decoded &decoded) {
    uint32_t *to = w.vector(decoded.first.results[0]);
    uint32_t before[most_lanes], after[most_lanes];
    const size_t bytes = static_cast<size_t>(w.lanes) * 4;
    std::memcpy(before, to, bytes);
    execute(w, decoded.first);
    std::memcpy(after, to, bytes);
    std::memcpy(to, before, bytes);
    execute(w, decoded.second);
    std::memcpy(to, after, bytes);
  }

  void trace(const Wave &w, const Decoded &decoded) {
    char head[96];
    const uint32_t *index = w.group->index;
    std::snprintf(head, sizeof head, "(%u,%u,%u) wave %u +0x%04" PRIx64 " exec %016" PRIx64 "  ", index[0], index[1],
                  index[2], w.number, decoded.first.address - kernel_.entry, w.exec());
    report_.trace.push_back(head + text(decoded));
  }

  std::string text(const Decoded &decoded) const {
    return to_text(code_.architecture, kernel_.lanes, decoded.first, &decoded.second);
  }

  std::string where() const {
    std::string location = "kernel " + kernel_.name;
    if (running_ == nullptr) {
      return location + ": ";
    }
    const uint32_t *index = running_->group.index;
    location += ", block (" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " +
                std::to_string(index[2]) + ")";
    if (wave_ != nullptr) {
      char offset[32];
      std::snprintf(offset, sizeof offset, "0x%" PRIx64,
                    wave_->pc - reinterpret_cast<uintptr_t>(code_.image) - kernel_.entry);
      location += ", wave " + std::to_string(wave_->number) + ", at " + offset;
      if (current_ != nullptr) {
        location += ", " + text(*current_);
      }
    }
    return location + ": ";
  }

  const std::vector<Handler> &handlers_ = opcode_handlers();
  Launch &launch_;
  const CodeObject &code_;
  const Kernel &kernel_;
  DispatchPacket packet_;
  std::vector<int32_t> index_;
  std::deque<Decoded> decoded_;
  Report report_;
  // They outlive a fault, which says where it was found.
  std::vector<std::unique_ptr<Running>> groups_;
  Running *running_ = nullptr;
  Grid grid_;
  Wave *wave_ = nullptr;
  const Decoded *current_ = nullptr;
};

}  // namespace

Report run(Launch &launch) {
  const rocpy::DefaultFpEnvironment environment;
  const int rounding = std::fegetround();  // instructions that round otherwise change that of the x87 unit too
  Report report = Runner(launch).run();
  std::fesetround(rounding);
  return report;
}

}  // namespace rocpy_host::amdgpu
