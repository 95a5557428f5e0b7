// SPDX-License-Identifier: MIT
// The scheduler of a block. A fiber runs thread after thread until one waits; only then does another fiber begin, so
// that a kernel without barriers is a plain loop on one stack. Nothing here lets a C++ exception cross a switch.
#include "block.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace rocpy::simt {

thread_local BlockRunner *BlockRunner::running __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr std::size_t shared_alignment = 64;
constexpr std::size_t own_stack_bytes = 8192;  // for what runs around a kernel: all that was asked for is the kernel's

bool same_site(const char *a, const char *b) { return a == b || (a && b && std::strcmp(a, b) == 0); }

std::string shown(const Index3 &index) {
  return "(" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " + std::to_string(index[2]) + ")";
}

std::string group_name(int32_t width) { return width == 0 ? "block" : "warp of " + std::to_string(width); }

Index3 index_of(const rocpy_simt_state *state) {
  return {state->thread_index[0], state->thread_index[1], state->thread_index[2]};
}

}  // namespace

void FiberList::push(Fiber *fiber) {
  fiber->next = nullptr;
  (tail ? tail->next : head) = fiber;
  tail = fiber;
}

Fiber *FiberList::pop() {
  Fiber *fiber = head;
  if (fiber) {
    head = fiber->next;
    if (!head) {
      tail = nullptr;
    } else {  // its turn comes soon, and it waited long enough to have left the nearest cache
      head->context.fetch();
      __builtin_prefetch(head->next, 1);
    }
  }
  return fiber;
}

void FiberList::splice(FiberList &other) {
  if (!other.head) return;
  (tail ? tail->next : head) = other.head;
  tail = other.tail;
  other = FiberList{};
}

void BlockRunner::begin(Kernel kernel, void *arguments, const rocpy_simt_config &config, GlobalCheck *arrays) {
  arrays_ = arrays;
  warning_.reset();
  kernel_ = kernel;
  arguments_ = arguments;
  config_ = config;
  size_ = config.block[0] * config.block[1] * config.block[2];
  switches_ = 0;
  indices_.resize(size_);
  order_.resize(size_);
  done_.assign(size_, 0);
  stamp_ = 0;
  for (int32_t i = 0; i < size_; ++i) {
    const int32_t rest = i / config.block[0];
    indices_[i] = {i % config.block[0], rest % config.block[1], rest / config.block[1]};
    order_[i] = i;
  }
  for (Level &level : levels_) level.used = false;
  levels_used_ = 0;
  arena_bytes_ = static_cast<std::size_t>(config.shared_limit_bytes);
  memory_.resize(arena_bytes_ + shared_alignment);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
  arena_ = memory_.data() + ((shared_alignment - begin % shared_alignment) % shared_alignment);
  if (fibers_.empty()) add_fiber();
  for (std::unique_ptr<Fiber> &fiber : fibers_) describe_launch(fiber->state);
  if (kernel.form == Form::turns) make_threads();
}

void BlockRunner::describe_launch(rocpy_simt_state &state) const {
  for (int axis = 0; axis < 3; ++axis) {
    state.block_extent[axis] = config_.block[axis];
    state.grid_extent[axis] = config_.grid[axis];
  }
  state.size = size_;
  state.warp_size = config_.warp_size;
  state.debug = config_.debug;
  state.dynamic_shared_bytes = config_.dynamic_shared_bytes;
}

void BlockRunner::add_fiber() {
  stacks_.reserve(fibers_.size() + 1);
  auto fiber = std::make_unique<Fiber>();
  fiber->slot = fibers_.size();
  describe_launch(fiber->state);
  stacks_.emplace_back(static_cast<std::size_t>(stack_bytes_) + own_stack_bytes);
  fibers_.push_back(std::move(fiber));
}

std::unique_ptr<Error> BlockRunner::run(int64_t block_rank) {
  block_rank_ = block_rank;
  block_ = block_index(block_rank);
  started_ = finished_ = 0;
  fibers_used_ = 0;
  ready_ = FiberList{};
  idle_ = FiberList{};
  allocations_.clear();
  // Dynamic shared memory lies first.
  arena_used_ = static_cast<std::size_t>(config_.dynamic_shared_bytes);
  error_.reset();
  pending_.reset();
  poisoned_ = false;
  barriers_ = 0;
  ++stamp_;
  if (levels_used_) {
    for (Level &level : levels_) level.used = false;
  }
  levels_used_ = 0;
  if (config_.debug) check_.begin(arena_bytes_);
  if (config_.shuffle) {
    random_state_ = config_.seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(block_rank + 1);
    for (int32_t i = size_ - 1; i > 0; --i) std::swap(order_[i], order_[random() % static_cast<uint64_t>(i + 1)]);
  }

  BlockRunner *outer = running;
  running = this;
  current_ = fresh_fiber();
  carrier_ = kernel_.form == Form::turns ? current_ : nullptr;
  main_.switch_to(current_->context);
  running = outer;
  if (!error_) error_ = std::move(pending_);
  if (!allocated_.empty()) abandon_allocations();
  return std::move(error_);
}

Index3 BlockRunner::block_index(int64_t block_rank) const {
  const int64_t row = block_rank / config_.grid[0];
  return {static_cast<int32_t>(block_rank % config_.grid[0]), static_cast<int32_t>(row % config_.grid[1]),
          static_cast<int32_t>(row / config_.grid[1])};
}

uint64_t BlockRunner::random() {  // splitmix64
  uint64_t z = (random_state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

Fiber *BlockRunner::fresh_fiber() {
  Fiber *fiber = idle_.pop();
  if (!fiber) {
    if (fibers_used_ == fibers_.size()) {
      try {
        add_fiber();
      } catch (const std::bad_alloc &) {
        fail(Fault::out_of_memory, &current_->state,
             "no memory for the stack of fiber " + std::to_string(fibers_.size()) +
                 "; use smaller blocks or a smaller stack_bytes");
      }
    }
    fiber = fibers_[fibers_used_++].get();
  }
  const Stack &stack = stacks_[fiber->slot];
  // Equal offsets in every stack would compete for the same lines of the cache.
  fiber->context.prepare(stack.bottom(), stack.bytes(), fiber->slot * 192 % 3968 / 64 * 64, &fiber_main);
  return fiber;
}

void BlockRunner::fiber_main() {
  Context::entered();
  BlockRunner &runner = *running;
  Fiber &self = *runner.current_;
  if (runner.kernel_.form == Form::loops) runner.run_loops();
  if (runner.carrier_) runner.take_turns();
  while (runner.started_ < runner.size_) {
    runner.start_thread(self);
    runner.kernel_.function(runner.arguments_, &self.state);
    runner.finish_thread(self);
    if (Fiber *next = runner.ready_.pop()) {  // those who waited go on before others begin: their stacks are warm
      runner.idle_.push(&self);
      runner.leave(next, true);
    }
  }
  if (Fiber *next = runner.ready_.pop()) runner.leave(next, true);
  if (runner.finished_ == runner.size_) runner.leave(nullptr, true);
  for (Level &level : runner.levels_) {
    if (!level.used) continue;
    for (Group &group : level.groups) {
      if (group.waiting.head) runner.fail_diverged(group, "");
    }
  }
  __builtin_unreachable();
}

void BlockRunner::leave(Fiber *to, bool last) {
  Fiber *from = carrier_ ? carrier_ : current_;
  if (!to) {
    from->context.switch_to(main_, last);
    return;
  }
  current_ = to;
  ++switches_;
  from->context.switch_to(to->context, last);
}

void BlockRunner::start_thread(Fiber &fiber) {
  const int32_t rank = order_[started_++];
  rocpy_simt_state &state = fiber.state;
  for (int axis = 0; axis < 3; ++axis) {
    state.thread_index[axis] = indices_[rank][axis];
    state.block_index[axis] = block_[axis];
  }
  state.rank = rank;
  state.site = nullptr;
  state.undefined = 0;
}

void BlockRunner::finish_thread(Fiber &fiber) {
  ++finished_;
  const int32_t rank = fiber.state.rank;
  done_[rank] = stamp_;
  for (uint32_t rest = levels_used_; rest; rest &= rest - 1) {
    Level &level = levels_[__builtin_ctz(rest)];
    Group &left = level.groups[level.width == 0 ? 0 : rank / level.width];
    ++left.exited;
    if (left.arrived == 0) continue;
    if (left.collective) {
      fail_diverged(left, "thread " + shown(index_of(&fiber.state)) + " left the kernel");
    } else if (left.arrived == left.size - left.exited) {
      free_waiting(left);
    }
  }
}

BlockRunner::Level &BlockRunner::open_level(rocpy_simt_state *state, int32_t width) {
  if (width < 0 || width > config_.warp_size || (width & (width - 1)) != 0) {
    // Kernels pass widths that do not fit as the nearest ones that do.
    using Limits = std::numeric_limits<int32_t>;
    const char *beyond = width == Limits::max() ? " or more" : width == Limits::min() ? " or fewer" : "";
    fail(Fault::unsupported, state,
         "a warp of " + std::to_string(width) + beyond + " threads: widths are powers of two up to the warp size, " +
             std::to_string(config_.warp_size));
  }
  Level &level = levels_[level_of(width)];
  level.width = width;
  level.used = true;
  levels_used_ |= uint32_t{1} << level_of(width);
  const int32_t step = width == 0 ? size_ : width;
  level.groups.resize((size_ + step - 1) / step);
  int32_t begin = 0;
  for (Group &each : level.groups) {
    each.size = std::min(step, size_ - begin);
    each.exited = static_cast<int32_t>(std::count(done_.begin() + begin, done_.begin() + begin + each.size, stamp_));
    each.arrived = 0;
    each.generation = 0;
    each.last_barrier = 0;
    each.waiting = FiberList{};
    begin += step;
  }
  return level;
}

Group &BlockRunner::group(rocpy_simt_state *state, int32_t width) {
  if (width == 0) {
    Level &level = levels_[0];
    return (level.used ? level : open_level(state, 0)).groups[0];
  }
  Level *level = width > 0 && width <= 64 ? &levels_[level_of(width)] : nullptr;
  if (!level || !level->used || level->width != width) level = &open_level(state, width);
  return level->groups[state->rank / width];
}

void BlockRunner::enter(Group &group, rocpy_simt_state *state, bool collective) {
  if (group.arrived == 0) {
    group.collective = collective;
    group.site = state->site;
    group.thread = index_of(state);
    return;
  }
  // Two barriers in two branches would let a block pass; a GPU promises nothing then, so debug mode does not either.
  if (group.collective != collective || ((collective || config_.debug) && !same_site(group.site, state->site))) {
    fail(Fault::divergence, state, "", group.site, &group.thread);
  }
}

Fiber *BlockRunner::next_fiber() {
  if (config_.shuffle && started_ < size_ && (!ready_.head || random() % 2)) return fresh_fiber();
  if (Fiber *fiber = ready_.pop()) return fiber;
  return started_ < size_ ? fresh_fiber() : nullptr;
}

void BlockRunner::wait(Group &group) {
  group.waiting.push(current_);
  Fiber *next = next_fiber();
  if (!next) fail_diverged(group, "");
  leave(next, false);
}

void BlockRunner::free_waiting(Group &group) {
  if (config_.debug && group.exited && !group.collective && !warning_) note_skipped(group);
  group.arrived = 0;
  ++group.generation;
  if (!group.collective) group.last_barrier = ++barriers_;
  if (config_.shuffle) {
    std::vector<Fiber *> fibers;
    while (Fiber *fiber = group.waiting.pop()) fibers.push_back(fiber);
    for (std::size_t i = fibers.size(); i > 1; --i) std::swap(fibers[i - 1], fibers[random() % i]);
    for (Fiber *fiber : fibers) ready_.push(fiber);
    return;
  }
  ready_.splice(group.waiting);
}

void BlockRunner::barrier(rocpy_simt_state *state, int32_t width) {
  Group &all = group(state, width);
  enter(all, state, false);
  if (++all.arrived < all.size - all.exited) {
    wait(all);
    return;
  }
  free_waiting(all);
  if (config_.shuffle && ready_.head) {  // the last to come need not be the first to go on
    Fiber *next = ready_.pop();
    ready_.push(current_);
    leave(next, false);
  }
}

void *BlockRunner::slots(rocpy_simt_state *state, int32_t width, int64_t bytes) {
  Group &all = group(state, width);
  enter(all, state, true);
  if (all.arrived && bytes == all.slot_bytes) return all.opened;
  std::vector<std::max_align_t> &buffer = all.slots[all.generation & 1];
  const std::size_t units =
      (static_cast<std::size_t>(bytes) * all.size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  if (buffer.size() < units) {
    if (all.arrived) fail_diverged(all, "threads bring values of different sizes");
    buffer.resize(units);
  }
  all.slot_bytes = bytes;
  all.opened = buffer.data();
  return all.opened;
}

bool BlockRunner::arrive(rocpy_simt_state *state, int32_t width) {
  Group &all = group(state, width);
  if (all.exited) fail_diverged(all, std::to_string(all.exited) + " threads have left the kernel");
  if (++all.arrived == all.size) return true;
  wait(all);
  return false;
}

void BlockRunner::release(rocpy_simt_state *state, int32_t width) { free_waiting(group(state, width)); }

void *BlockRunner::shared(rocpy_simt_state *state, const void *key, int64_t bytes) {
  for (const Allocation &each : allocations_) {
    if (each.key == key) return arena_ + each.offset;
  }
  const std::size_t offset = (arena_used_ + shared_alignment - 1) / shared_alignment * shared_alignment;
  if (offset + static_cast<std::size_t>(bytes) > static_cast<std::size_t>(config_.shared_limit_bytes)) {
    fail(Fault::shared_memory, state,
         std::to_string(offset + static_cast<std::size_t>(bytes)) + " bytes of shared memory, and a block may have " +
             std::to_string(config_.shared_limit_bytes));
  }
  allocations_.push_back({key, offset, bytes});
  arena_used_ = offset + static_cast<std::size_t>(bytes);
  return arena_ + offset;
}

void BlockRunner::raise(rocpy_simt_state *state, int32_t code, const void *information) {
  error_ = describe(Fault::exception, state, "");
  error_->code = code;
  error_->information = information;
  drop_fibers();
}

void BlockRunner::fail_diverged(Group &group, std::string detail) {
  // Whoever waits is described, and one who waits elsewhere, if there is one.
  Fiber *waiting = group.waiting.head;
  const rocpy_simt_state *state = waiting ? &waiting->state : &current_->state;
  int32_t width = 0;
  const char *other_site = nullptr;
  const Index3 *other = nullptr;
  for (Level &level : levels_) {
    if (!level.used) continue;
    for (Group &each : level.groups) {
      if (&each == &group) width = level.width;
      Fiber *elsewhere = each.waiting.head;
      if (&each != &group && elsewhere && !other) {
        other = &indices_[elsewhere->state.rank];
        other_site = elsewhere->state.site;
      }
    }
  }
  if (detail.empty()) {
    const int32_t missing = group.size - group.arrived;
    detail = std::to_string(missing) + " of the " + std::to_string(group.size) + " threads of the " +
             group_name(width) + " do not come";
  }
  fail(Fault::divergence, state, std::move(detail), other_site, other);
}

std::unique_ptr<Error> BlockRunner::describe(Fault fault, const rocpy_simt_state *state, std::string detail) const {
  auto error = std::make_unique<Error>();
  error->fault = fault;
  error->block_rank = block_rank_;
  error->block = block_;
  error->thread = index_of(state);
  error->site = state->site ? state->site : "";
  error->detail = std::move(detail);
  return error;
}

void BlockRunner::fail(Fault fault, const rocpy_simt_state *state, std::string detail, const char *other_site,
                       const Index3 *other) {
  error_ = describe(fault, state, std::move(detail));
  if (other) {
    error_->has_other = true;
    error_->other_thread = *other;
    error_->other_site = other_site ? other_site : "";
  }
  drop_fibers();
}

void BlockRunner::drop_fibers() {
  // The other fibers are dropped where they stand: what their threads have allocated goes with the error.
  leave(nullptr, true);
  __builtin_unreachable();
}

}  // namespace rocpy::simt

using rocpy::simt::BlockRunner;

void rocpy_simt_barrier(rocpy_simt_state *state, int32_t width) { BlockRunner::running->barrier(state, width); }

int32_t rocpy_simt_arrive(rocpy_simt_state *state, int32_t width) {
  return BlockRunner::running->arrive(state, width) ? 1 : 0;
}
