// SPDX-License-Identifier: MIT
// The tile programs of the process, found by their content.
#include "tile_program.hpp"

#include <pthread.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "spin_lock.hpp"

namespace rocpy {
namespace {

struct Programs {
  SpinLock lock;
  std::map<std::string, std::unique_ptr<TileProgram>> by_key;
};

// Never destroyed, because plans point into it. A child of fork() goes on with what there was: programs do not move,
// and only the lock may have been held by a thread that the child lacks.
Programs *programs = new Programs;
void free_in_child() { new (&programs->lock) SpinLock; }
void prepare_fork() { programs->lock.lock(); }
void after_fork() { programs->lock.unlock(); }
const int at_fork = pthread_atfork(prepare_fork, after_fork, free_in_child);

// Each member by itself: between them structures may have bytes of no meaning.
std::string content(const TileProgram &program) {
  std::string text;
  const auto add = [&](const auto &value) { text.append(reinterpret_cast<const char *>(&value), sizeof value); };
  for (uint32_t value :
       {program.register_count, program.input_count, program.output_count, program.result, program.flags}) {
    add(value);
  }
  for (const rocpyExtInstruction_t &one : program.code) {
    add(one.opcode);
    add(one.destination);
    add(one.sources);
    add(one.index);
    add(one.immediate);
  }
  return text;
}

}  // namespace

const TileProgram *keep_program(const TileProgram &program) noexcept {
  try {
    std::string key = content(program);
    std::lock_guard<SpinLock> lock(programs->lock);
    std::unique_ptr<TileProgram> &entry = programs->by_key[std::move(key)];
    if (!entry) {
      entry = std::make_unique<TileProgram>(program);
      entry->id = static_cast<int64_t>(programs->by_key.size());
    }
    return entry.get();
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

}  // namespace rocpy
