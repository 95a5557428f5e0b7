// SPDX-License-Identifier: MIT
// Branches, barriers, the end of a wave, modes; waits and hints, which a wave in order needs none of.
#include "handlers.hpp"
#include "wave.hpp"

namespace rocpy_host::amdgpu {

namespace {

void jump(Wave &w, const Instruction &i) { w.next_pc += static_cast<uint64_t>(static_cast<int64_t>(i.offset) * 4); }

template <bool (*condition)(const Wave &)>
void branch_if(Wave &w, const Instruction &i) {
  if (condition(w)) {
    jump(w, i);
  }
}

bool scc_clear(const Wave &w) { return !w.scc; }
bool scc_set(const Wave &w) { return w.scc; }
bool vcc_clear(const Wave &w) { return w.lane_mask(code_vcc) == 0; }
bool vcc_set(const Wave &w) { return w.lane_mask(code_vcc) != 0; }
bool exec_clear(const Wave &w) { return w.exec() == 0; }
bool exec_set(const Wave &w) { return w.exec() != 0; }

void nothing(Wave &, const Instruction &) {}

void signal(Wave &w) {
  Group &group = *w.group;
  w.waits_for = group.barrier_phase + 1;
  if (++group.signalled >= group.live_waves) {
    group.signalled = 0;
    ++group.barrier_phase;
  }
}

void barrier(Wave &w, const Instruction &) {
  signal(w);
  w.state = State::at_barrier;
}

// -1 is the group's barrier; the others are of clusters and named ones, which no kernel for these chips has.
void check_barrier(uint32_t number) {
  if (static_cast<int32_t>(number) != -1) {
    fault(Fault::Kind::instruction, "barrier %d is not emulated", static_cast<int32_t>(number));
  }
}

void barrier_signal(Wave &w, const Instruction &i) {
  check_barrier(w.read32(i.sources[0], i.literal));
  signal(w);
}

void barrier_signal_first(Wave &w, const Instruction &i) {
  check_barrier(w.read32(i.sources[0], i.literal));
  w.scc = w.group->signalled == 0;
  signal(w);
}

void barrier_wait(Wave &w, const Instruction &i) {
  check_barrier(static_cast<uint32_t>(i.offset));
  w.state = State::at_barrier;
}

// Hardware registers: MODE is 1; the others that compilers read describe the chip.
constexpr unsigned mode_register = 1;

uint32_t hardware_register(const Wave &w, unsigned number) {
  if (number == mode_register) {
    return w.mode;
  }
  constexpr unsigned status_register = 2, trap_registers = 3, hw_id = 4, xcc_id = 20, shader_cycles = 29, hw_id1 = 23,
                     hw_id2 = 24;
  switch (number) {
    case status_register:
    case trap_registers:
    case hw_id:
    case xcc_id:
    case hw_id1:
    case hw_id2:
    case shader_cycles:
      return 0;
    default:
      fault(Fault::Kind::instruction, "hardware register %u is not emulated", number);
  }
}

void get_register(Wave &w, const Instruction &i) {
  const auto field = static_cast<uint32_t>(i.offset);
  const unsigned number = field & 63, from = field >> 6 & 31, size = (field >> 11 & 31) + 1;
  const uint64_t mask = (1ull << size) - 1;
  w.write32(i.results[0], static_cast<uint32_t>(hardware_register(w, number) >> from & mask));
}

void set_register(Wave &w, const Instruction &i) {
  const auto field = static_cast<uint32_t>(i.offset);
  const unsigned number = field & 63, from = field >> 6 & 31, size = (field >> 11 & 31) + 1;
  if (number != mode_register) {
    hardware_register(w, number);  // refused where it is unknown; of the others nothing depends on the value
    return;
  }
  const auto mask = static_cast<uint32_t>(((1ull << size) - 1) << from);
  w.mode = (w.mode & ~mask) | (w.read32(i.sources[1], i.literal) << from & mask);
}

}  // namespace

void add_program(Handlers &handlers) {
  handlers.add("s_branch", jump);
  handlers.add("s_cbranch_scc0", branch_if<scc_clear>);
  handlers.add("s_cbranch_scc1", branch_if<scc_set>);
  handlers.add("s_cbranch_vccz", branch_if<vcc_clear>);
  handlers.add("s_cbranch_vccnz", branch_if<vcc_set>);
  handlers.add("s_cbranch_execz", branch_if<exec_clear>);
  handlers.add("s_cbranch_execnz", branch_if<exec_set>);
  handlers.add("s_endpgm", [](Wave &w, const Instruction &) { w.state = State::ended; });
  handlers.add("s_endpgm_saved", [](Wave &w, const Instruction &) { w.state = State::ended; });
  handlers.add("s_barrier", barrier);
  handlers.add("s_barrier_signal", barrier_signal);
  handlers.add("s_barrier_signal_isfirst", barrier_signal_first);
  handlers.add("s_barrier_wait", barrier_wait);
  handlers.add("s_trap", [](Wave &, const Instruction &i) {
    fault(Fault::Kind::instruction, "the kernel trapped (s_trap %d)", i.offset);
  });
  handlers.add("s_getpc_b64", [](Wave &w, const Instruction &i) { w.write64(i.results[0], w.next_pc); });
  handlers.add("s_setpc_b64", [](Wave &w, const Instruction &i) { w.next_pc = w.read64(i.sources[0], i.literal); });
  handlers.add("s_swappc_b64", [](Wave &w, const Instruction &i) {
    const uint64_t to = w.read64(i.sources[0], i.literal);
    w.write64(i.results[0], w.next_pc);
    w.next_pc = to;
  });
  handlers.add("s_call_b64", [](Wave &w, const Instruction &i) {
    w.write64(i.results[0], w.next_pc);
    jump(w, i);
  });
  handlers.add("s_getreg_b32", get_register);
  handlers.add("s_setreg_b32", set_register);
  handlers.add("s_setreg_imm32_b32", set_register);
  handlers.add("s_round_mode", [](Wave &w, const Instruction &i) { w.mode = (w.mode & ~15u) | (i.offset & 15u); });
  handlers.add("s_denorm_mode",
               [](Wave &w, const Instruction &i) { w.mode = (w.mode & ~0xf0u) | (i.offset & 15u) << 4; });
  handlers.add("s_sleep", [](Wave &w, const Instruction &) { w.is_sleeping = true; });
  for (const char *name : {"s_nop",
                           "s_setprio",
                           "s_sethalt",
                           "s_clause",
                           "s_delay_alu",
                           "s_wait_alu",
                           "s_waitcnt_depctr",
                           "s_set_inst_prefetch_distance",
                           "s_inst_prefetch",
                           "s_wait_loadcnt",
                           "s_wait_storecnt",
                           "s_wait_samplecnt",
                           "s_wait_bvhcnt",
                           "s_wait_expcnt",
                           "s_wait_dscnt",
                           "s_wait_kmcnt",
                           "s_wait_loadcnt_dscnt",
                           "s_wait_storecnt_dscnt",
                           "s_wait_event",
                           "s_wait_idle",
                           "s_waitcnt",
                           "s_waitcnt_vscnt",
                           "s_waitcnt_vmcnt",
                           "s_waitcnt_expcnt",
                           "s_waitcnt_lgkmcnt",
                           "s_wakeup",
                           "s_icache_inv",
                           "s_ttracedata",
                           "s_version",
                           "s_incperflevel",
                           "s_decperflevel",
                           "s_sendmsg",
                           "v_clrexcp",
                           "v_pipeflush",
                           "ds_nop"}) {
    handlers.add(name, nothing);
  }
}

}  // namespace rocpy_host::amdgpu
