// SPDX-License-Identifier: MIT
// Tests of products that are over sooner than their call, which may have a kernel set of their own: none has other bits
// than the set that was chosen gives.
#include <string>

#include "gemm_check.hpp"
#include "isa.hpp"

namespace gemm_test {
namespace {

std::vector<unsigned char> result(Operands &o, int32_t id) {
  if (!run_anew(o, id)) return {};
  if (!o.d.guards_hold() || !o.aux.guards_hold()) fail("wrote outside its outputs", o.c, id);
  std::vector<unsigned char> all = o.d.bytes;
  all.insert(all.end(), o.aux.bytes.begin(), o.aux.bytes.end());
  return all;
}

void compare(const Case &c, const std::string &chosen) {
  Operands o(c);
  for (int i = 0; i < algorithm_count(); i++) {
    const int32_t id = algorithm(i).id;
    use_kernel_set("");
    const std::vector<unsigned char> brief = result(o, id);
    use_kernel_set(chosen.c_str());
    if (brief != result(o, id)) fail("a brief product has other bits", c, id);
    checks += c.m * c.n;
  }
}

// Around as many multiplications as there may be, and with every extent between 1 and more than a vector has.
void all(const std::string &chosen) {
  Random random;
  const Activation activations[] = {Activation::none,    Activation::relu,  Activation::gelu, Activation::silu,
                                    Activation::sigmoid, Activation::clamp, Activation::dgelu};
  for (int turn = 0; turn < 3000 / case_interval; turn++) {
    Case c;
    c.m = random.integer(1, turn % 3 ? 17 : 40);
    c.n = random.integer(1, turn % 3 ? 17 : 70);
    c.k = random.integer(turn % 50 ? 1 : 0, turn % 5 ? 17 : 96);
    c.batch = turn % 11 ? 1 : 3;
    c.a = c.b = c.d = turn % 4 == 3 ? Type::f64 : Type::f32;
    c.a_layout = static_cast<Layout>(random.integer(0, 2));
    c.packed = turn % 7 == 0;
    c.gap = random.integer(0, 3);
    c.shift = random.integer(0, 3);
    c.activation = activations[random.integer(0, 6)];
    c.bias = c.aux = c.d;
    c.has_bias = turn & 1;
    if (c.activation == Activation::dgelu) {
      c.aux_use = Aux::load;
    } else if (c.activation != Activation::none && turn % 5 == 0) {
      c.aux_use = Aux::store;
    }
    if (turn % 8 == 2) c.alpha = 0.75, c.beta = -0.5;
    compare(c, chosen);
  }
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  use_kernel_set("");
  const std::string chosen = isa_name(), brief = brief_kernel_set().name;
  all(chosen);
  use_kernel_set(chosen.c_str());
  if (brief_kernel_set().name != chosen) failures++, printf("FAILED: a named set is not for all products\n");
  printf("%s, brief %s: %lld values compared, %d failures\n", chosen.c_str(), brief.c_str(),
         static_cast<long long>(checks), failures);
  return failures != 0;
}
