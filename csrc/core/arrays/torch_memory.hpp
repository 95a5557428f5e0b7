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

struct TensorPlaces {
  uint64_t impl = 0, keys = 0;       // of TensorImpl in the Python object, and of the key set in it
  uint64_t storage = 0, memory = 0;  // of StorageImpl in TensorImpl, and of the address in it
  bool found = false;
};

inline TensorPlaces &tensor_places() {
  static TensorPlaces places;
  return places;
}

// Equal words mean that a tensor lies where it did; other words mean nothing. Shapes of more than a few axes are kept
// elsewhere and are the caller's to leave out.
struct TensorWords {
  uint64_t words[largest_keys_offset / 8 + 1];
  uint64_t memory;
  uint64_t bytes = 0;  // of the words; 0: not read
};

// The offset at which every one of the places has what is wanted there; 0 where there is none.
inline uint64_t find_offset(const uint64_t *places, const uint64_t *wanted, int count, uint64_t end) {
  for (uint64_t offset = 8; offset < end; offset += 8) {
    int agreeing = 0;
    while (agreeing < count && word_at(reinterpret_cast<const void *>(places[agreeing]), offset) == wanted[agreeing])
      ++agreeing;
    if (agreeing == count) return offset;
  }
  return 0;
}

// Finds StorageImpl and its address, of samples whose TensorImpl, StorageImpl and address are given.
inline bool find_tensor_places(uint64_t impl_offset, uint64_t keys_offset, const uint64_t *impls,
                               const uint64_t *storages, const uint64_t *memories, int count) {
  constexpr uint64_t least_storage_bytes = 64;
  TensorPlaces found{impl_offset, keys_offset, find_offset(impls, storages, count, keys_offset), 0, false};
  if (found.storage != 0) found.memory = find_offset(storages, memories, count, least_storage_bytes);
  found.found = found.memory != 0;
  tensor_places() = found;
  return found.found;
}

inline void forget_tensor_places() { tensor_places() = TensorPlaces{}; }

inline const char *tensor_words_at(const void *object) {
  const TensorPlaces &places = tensor_places();
  return reinterpret_cast<const char *>(word_at(object, places.impl)) + places.storage;
}

inline void read_tensor_words(const void *object, TensorWords *out) {
  const TensorPlaces &places = tensor_places();
  out->bytes = 0;
  if (!places.found) return;
  const uint64_t bytes = places.keys - places.storage + 8;
  std::memcpy(out->words, tensor_words_at(object), bytes);
  if (out->words[0] == 0) return;  // it has no storage
  out->memory = word_at(reinterpret_cast<const void *>(out->words[0]), places.memory);
  out->bytes = bytes;
}

inline bool tensor_words_hold(const void *object, const TensorWords &before) {
  const TensorPlaces &places = tensor_places();
  return before.bytes != 0 && std::memcmp(tensor_words_at(object), before.words, before.bytes) == 0 &&
         word_at(reinterpret_cast<const void *>(before.words[0]), places.memory) == before.memory;
}

}  // namespace rocpy
