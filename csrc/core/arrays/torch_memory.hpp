// SPDX-License-Identifier: MIT
// Says in a few instructions whether a torch tensor lies where it lay before.
//
// What decides that lies in torch's TensorImpl, from the pointer to its storage on to the key set, which comes last,
// and in its StorageImpl, which has the address. Where exactly is found out by the caller on tensors that torch has
// told the addresses of, and proven by changes of them; nothing is read before that.
#pragma once

#include <cstdint>
#include <cstring>

#include "torch_state.hpp"

namespace rocpy {

struct TensorOffsets {
  uint64_t impl = 0, keys = 0;       // of TensorImpl in the Python object, and of the key set in it
  uint64_t storage = 0, memory = 0;  // of StorageImpl in TensorImpl, and of the address in it
  bool known = false;
};

inline TensorOffsets &tensor_offsets() {
  static TensorOffsets offsets;
  return offsets;
}

// Equal words mean that a tensor lies where it did; other words mean nothing. Shapes of more than a few axes are kept
// elsewhere and are the caller's to leave out.
struct TensorWords {
  uint64_t words[largest_keys_offset / 8 + 1];
  uint64_t memory;
  uint64_t bytes = 0;  // of the words; 0: not read
};

// The offset from each of the addresses at which the word wanted for it lies; 0 where there is none.
inline uint64_t find_offset(const uint64_t *addresses, const uint64_t *wanted, int count, uint64_t end) {
  for (uint64_t offset = 8; offset < end; offset += 8) {
    int agreeing = 0;
    while (agreeing < count &&
           word_at(reinterpret_cast<const void *>(addresses[agreeing]), offset) == wanted[agreeing]) {
      ++agreeing;
    }
    if (agreeing == count) return offset;
  }
  return 0;
}

// Finds StorageImpl and its address, of samples whose TensorImpl, StorageImpl and address are given.
inline bool find_tensor_offsets(uint64_t impl_offset, uint64_t keys_offset, const uint64_t *impls,
                                const uint64_t *storages, const uint64_t *memories, int count) {
  constexpr uint64_t least_storage_bytes = 64;
  TensorOffsets offsets{impl_offset, keys_offset, find_offset(impls, storages, count, keys_offset), 0, false};
  if (offsets.storage != 0) offsets.memory = find_offset(storages, memories, count, least_storage_bytes);
  offsets.known = offsets.memory != 0;
  tensor_offsets() = offsets;
  return offsets.known;
}

inline void forget_tensor_offsets() { tensor_offsets() = TensorOffsets{}; }

inline const char *tensor_words_at(const void *object) {
  const TensorOffsets &offsets = tensor_offsets();
  return reinterpret_cast<const char *>(word_at(object, offsets.impl)) + offsets.storage;
}

inline void read_tensor_words(const void *object, TensorWords *out) {
  const TensorOffsets &offsets = tensor_offsets();
  out->bytes = 0;
  if (!offsets.known) return;
  const uint64_t bytes = offsets.keys - offsets.storage + 8;
  std::memcpy(out->words, tensor_words_at(object), bytes);
  if (out->words[0] == 0) return;  // it has no storage
  out->memory = word_at(reinterpret_cast<const void *>(out->words[0]), offsets.memory);
  out->bytes = bytes;
}

inline bool tensor_words_hold(const void *object, const TensorWords &before) {
  const TensorOffsets &offsets = tensor_offsets();
  return before.bytes != 0 && std::memcmp(tensor_words_at(object), before.words, before.bytes) == 0 &&
         word_at(reinterpret_cast<const void *>(before.words[0]), offsets.memory) == before.memory;
}

}  // namespace rocpy
