// SPDX-License-Identifier: MIT
// Keys of plans: settings that differ in anything have different words, operands that differ have different entries,
// and a key that is too long says so.
#include <set>
#include <vector>

#include "check.hpp"
#include "plan_key.hpp"

using namespace rocpy;

namespace {

void settings_share_no_word() {
  std::set<int64_t> words;
  size_t count = 0;
  for (PlanKind kind :
       {PlanKind::product, PlanKind::program, PlanKind::groups_of_m, PlanKind::groups_of_n, PlanKind::groups_of_k}) {
    for (int32_t epilogue : {0, 1, 255, 65535}) {
      for (int32_t dtype : {-1, 0, 1, 1000, 65534}) {
        for (int32_t compute : {0, 1, 4, 255}) {
          for (int flags = 0; flags < 8; ++flags) {
            PlanSettings settings;
            settings.kind = kind;
            settings.epilogue = epilogue;
            settings.dtype = dtype;
            settings.compute = compute;
            settings.packed = flags % 2;
            settings.scaled = flags / 2 % 2;
            settings.listed = flags / 4;
            words.insert(settings.word());
            ++count;
          }
        }
      }
    }
  }
  CHECK_EQUAL(words.size(), count);
}

void scales_share_no_word() {
  std::set<int64_t> words;
  size_t count = 0;
  for (int32_t a = 0; a < 4; ++a) {
    for (int32_t b = 0; b < 4; ++b) {
      for (int flags = 0; flags < 8; ++flags) {
        ScaleSettings scales;
        scales.a = a;
        scales.b = b;
        scales.c = flags % 2;
        scales.d = flags / 2 % 2;
        scales.amax = flags / 4;
        words.insert(scales.word());
        ++count;
      }
    }
  }
  CHECK_EQUAL(words.size(), count);
}

std::vector<int64_t> entry(int32_t position, const Operand &operand) {
  PlanKey key;
  key.add_operand(position, operand);
  return {key.words, key.words + key.size};
}

void operands_share_no_entry() {
  Operand operand{};
  operand.type = 1000;
  operand.ndim = 2;
  operand.shape[0] = 3, operand.shape[1] = 4;
  operand.strides[0] = 4, operand.strides[1] = 1;
  const std::vector<int64_t> first = entry(1, operand);
  CHECK_EQUAL(first.size(), 5);
  CHECK(entry(2, operand) != first);
  for (int64_t *one : {&operand.shape[0], &operand.shape[1], &operand.strides[0], &operand.strides[1]}) {
    *one += 1;
    CHECK(entry(1, operand) != first);
    *one -= 1;
  }
  operand.conjugated = true;
  CHECK(entry(1, operand) != first);
  operand.conjugated = false;
  operand.type = 1001;
  CHECK(entry(1, operand) != first);
  operand.type = 1000;
  CHECK(entry(1, operand) == first);
}

void a_key_that_is_too_long_does_not_fit() {
  PlanKey key;
  key.begin(PlanSettings{});
  CHECK_EQUAL(key.size, 1);
  for (int i = key.size; i < PlanKey::capacity; ++i) key.add(i);
  CHECK(key.fits());
  key.add_number(0.5);
  CHECK(!key.fits());
  key.begin(PlanSettings{});
  CHECK(key.fits());
}

}  // namespace

int main() {
  settings_share_no_word();
  scales_share_no_word();
  operands_share_no_entry();
  a_key_that_is_too_long_does_not_fit();
  return failures != 0;
}
