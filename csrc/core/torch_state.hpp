// SPDX-License-Identifier: MIT
// Reads torch's per-thread dispatch state (autocast, functorch, dispatch modes, tracing, inference mode) in a few
// instructions.
//
// torch keeps that state as two 64-bit masks per thread, declared in its public header
// c10/core/impl/LocalDispatchKeySet.h and read inline by every C++ extension. Here the variable is looked up in the
// torch that the process already holds; the caller proves the find against torch's own Python functions before it
// relies on it, and does without where the proof fails.
#ifndef ROCPY_CORE_TORCH_STATE_HPP
#define ROCPY_CORE_TORCH_STATE_HPP

#include <dlfcn.h>

#include <cstdint>

namespace rocpy {

struct DispatchKeys {
  uint64_t included;  // both are zero in a thread that has nothing switched on
  uint64_t excluded;
};

inline void *&torch_library() {
  static void *library = nullptr;
  return library;
}

// Masks of this thread, or null where torch does not export them.
inline const DispatchKeys *torch_dispatch_keys() {
  thread_local const DispatchKeys *keys = nullptr;
  if (keys == nullptr && torch_library() != nullptr)
    keys = static_cast<const DispatchKeys *>(dlsym(torch_library(), "_ZN3c104impl26raw_local_dispatch_key_setE"));
  return keys;
}

// Finds the library from the address of one of torch's functions; never loads anything.
inline bool torch_state_open(const void *function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return false;
  void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  torch_library() = library;
  if (torch_dispatch_keys() != nullptr) return true;
  torch_library() = nullptr;
  dlclose(library);
  return false;
}

inline void torch_state_close() { torch_library() = nullptr; }

// Masks that a full check found to be harmless, besides "all zero" (inference mode, for one). Per thread, so no lock.
inline DispatchKeys &torch_cleared_keys() {
  thread_local DispatchKeys cleared{0, 0};
  return cleared;
}

inline bool torch_state_is_clear() {
  if (torch_library() == nullptr) return false;
  const DispatchKeys *keys = torch_dispatch_keys();
  if (keys == nullptr) return false;
  if ((keys->included | keys->excluded) == 0) return true;
  const DispatchKeys &cleared = torch_cleared_keys();
  return keys->included == cleared.included && keys->excluded == cleared.excluded;
}

inline void torch_state_mark_clear() {
  if (torch_library() == nullptr) return;
  if (const DispatchKeys *keys = torch_dispatch_keys()) torch_cleared_keys() = *keys;
}

}  // namespace rocpy

#endif
