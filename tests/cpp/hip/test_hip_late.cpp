// SPDX-License-Identifier: MIT
// HIP is called when its queues have been abandoned already: a library that is loaded at run time ends before the
// program's destructors.
#include "check.hpp"
#include "gate.hpp"
#include "types.h"

#include <dlfcn.h>
#include <unistd.h>

namespace {

void *memory = nullptr;
hipError_t (*device_synchronize)();
hipError_t (*free_memory)(void *);

__attribute__((destructor)) void call_late() {
  if (memory != nullptr) {
    CHECK_EQUAL(device_synchronize(), hipErrorDeinitialized);
    CHECK_EQUAL(free_memory(memory), hipErrorDeinitialized);
    _exit(failures.load() == 0 ? 0 : 1);
  }
}

template <class Function>
void look_up(void *library, const char *name, Function *function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  CHECK(*function != nullptr);
}

}  // namespace

// Its argument is the path of libamdhip64.so. It ends with failure unless the destructor above ends it.
int main(int count, char **arguments) {
  void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) {
    std::fprintf(stderr, "cannot open the library: %s\n", count > 1 ? dlerror() : "no path given");
    return 1;
  }
  hipError_t (*launch)(hipStream_t, hipHostFn_t, void *);
  hipError_t (*allocate)(void **, size_t);
  look_up(library, "hipLaunchHostFunc", &launch);
  look_up(library, "hipMalloc", &allocate);
  look_up(library, "hipDeviceSynchronize", &device_synchronize);
  look_up(library, "hipFree", &free_memory);
  CHECK_EQUAL(allocate(&memory, 64), hipSuccess);
  CHECK_EQUAL(launch(nullptr, Gate::wait_at, new Gate), hipSuccess);
  return 1;
}
