// SPDX-License-Identifier: MIT
// Reads torch's per-thread dispatch state (autocast, functorch, dispatch modes, tracing, inference mode) in a few
// instructions.
//
// torch keeps that state as two 64-bit masks per thread, declared in its public header
// c10/core/impl/LocalDispatchKeySet.h and read inline by every C++ extension. Here the variable is looked up in the
// torch that the process already holds; the caller proves the find against torch's own Python functions before it
// relies on it, and does without where the proof fails.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

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
  if (keys == nullptr && torch_library() != nullptr) {
    keys = static_cast<const DispatchKeys *>(dlsym(torch_library(), "_ZN3c104impl26raw_local_dispatch_key_setE"));
  }
  return keys;
}

// torch's own answer to "is grad mode on in this thread", without its Python binding; null where it is not exported.
using GradModeFunction = bool (*)();
inline GradModeFunction &torch_grad_mode() {
  static GradModeFunction function = nullptr;
  return function;
}

// False only where torch says that grad mode is off; an unknown state counts as on.
inline bool torch_grad_may_be_on() { return torch_grad_mode() == nullptr || torch_grad_mode()(); }

inline void torch_state_close() {
  torch_library() = nullptr;
  torch_grad_mode() = nullptr;
}

// Finds the library from the address of one of torch's functions; never loads anything.
inline bool torch_state_open(const void *function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return false;
  void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  torch_library() = library;
  torch_grad_mode() = reinterpret_cast<GradModeFunction>(dlsym(library, "_ZN3c108GradMode10is_enabledEv"));
  if (torch_dispatch_keys() != nullptr) return true;
  torch_state_close();
  dlclose(library);
  return false;
}

inline bool torch_state_is_open() { return torch_library() != nullptr; }

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

// The key set of a tensor says all that makes its memory special: lazy signs, transforms, layouts, missing memory. It
// lies at a fixed place in torch's TensorImpl, which tensor objects point to; where exactly is found out by the caller
// on tensors whose key sets torch has told it, and nothing is read before that.
struct TensorKeys {
  uint64_t impl_offset = 0;  // in the Python object
  uint64_t keys_offset = 0;  // in TensorImpl; 0: not found
  uint64_t clear[4] = {};    // key sets that a full check found to be plain
  int count = 0;
  uint64_t autograd_offset = 0;  // in TensorImpl, of the pointer to what autograd holds about it; 0: not found
};

inline TensorKeys &torch_tensor_keys() {
  static TensorKeys keys;
  return keys;
}

inline void torch_forget_tensor_keys() { torch_tensor_keys() = TensorKeys{}; }

inline bool torch_keys_are_known() { return torch_tensor_keys().keys_offset != 0; }
inline bool torch_autograd_is_known() { return torch_tensor_keys().autograd_offset != 0; }

// Where the key set is: in the Python object the offset of TensorImpl, and in that of the set. False: not known.
inline bool torch_key_offsets(uint64_t *impl, uint64_t *keys) {
  *impl = torch_tensor_keys().impl_offset;
  *keys = torch_tensor_keys().keys_offset;
  return torch_keys_are_known();
}

inline uint64_t word_at(const void *base, uint64_t offset) {
  uint64_t word;
  std::memcpy(&word, static_cast<const char *>(base) + offset, sizeof word);
  return word;
}

constexpr uint64_t largest_keys_offset = 200;  // TensorImpl.h bounds its own size by 208 bytes

// Finds the offsets for which every sample tensor gives the TensorImpl and the key set that torch reported of it.
inline bool torch_find_tensor_keys(const void *const *objects, const uint64_t *impls, const uint64_t *keys, int count,
                                   uint64_t impl_offset) {
  for (int i = 0; i < count; ++i) {
    if (word_at(objects[i], impl_offset) != impls[i]) return false;
  }
  for (uint64_t offset = 8; offset <= largest_keys_offset; offset += 8) {
    int agreeing = 0;
    while (agreeing < count && word_at(reinterpret_cast<const void *>(impls[agreeing]), offset) == keys[agreeing]) {
      ++agreeing;
    }
    if (agreeing == count) {
      torch_tensor_keys().impl_offset = impl_offset;
      torch_tensor_keys().keys_offset = offset;
      return true;
    }
  }
  return false;
}

inline uint64_t torch_impl_word(const void *object, uint64_t offset) {
  return word_at(reinterpret_cast<const void *>(word_at(object, torch_tensor_keys().impl_offset)), offset);
}

inline uint64_t torch_keys_of(const void *object) { return torch_impl_word(object, torch_tensor_keys().keys_offset); }

// A tensor's words before its key set.
struct ImplWords {
  uint64_t words[largest_keys_offset / 8] = {};
};

inline ImplWords torch_words_of(const void *object) {
  ImplWords result;
  for (uint64_t offset = 0; offset < torch_tensor_keys().keys_offset; offset += 8) {
    result.words[offset / 8] = torch_impl_word(object, offset);
  }
  return result;
}

// Whether a tensor cannot require a gradient. False where that is not known.
inline bool torch_tensor_without_autograd(const void *object) {
  const uint64_t offset = torch_tensor_keys().autograd_offset;
  return offset != 0 && torch_impl_word(object, offset) == 0;
}

// Finds the pointer to what autograd holds about a tensor, which TensorImpl.h says is null where that is nothing: the
// one word that changed when a tensor was made to require a gradient, and was 0 before. It must tell a plain tensor
// from a parameter.
inline bool torch_find_autograd(const ImplWords &before, const ImplWords &after, const void *plain,
                                const void *parameter) {
  TensorKeys &known = torch_tensor_keys();
  uint64_t changed = 0;
  for (uint64_t offset = 0; offset < known.keys_offset; offset += 8) {
    if (before.words[offset / 8] == after.words[offset / 8]) continue;
    if (changed != 0 || offset == 0 || before.words[offset / 8] != 0) return false;
    changed = offset;
  }
  known.autograd_offset = changed;
  if (!torch_tensor_without_autograd(plain) || torch_tensor_without_autograd(parameter)) known.autograd_offset = 0;
  return known.autograd_offset != 0;
}

inline bool torch_tensor_is_clear(const void *object) {
  const TensorKeys &known = torch_tensor_keys();
  if (known.keys_offset == 0) return false;
  const uint64_t keys = torch_keys_of(object);
  for (int i = 0; i < known.count; ++i) {
    if (known.clear[i] == keys) return true;
  }
  return false;
}

inline void torch_tensor_mark_clear(const void *object) {
  TensorKeys &known = torch_tensor_keys();
  if (known.keys_offset != 0 && known.count < 4) known.clear[known.count++] = torch_keys_of(object);
}

}  // namespace rocpy
