// SPDX-License-Identifier: MIT
// Tests of the largest blocks of each tiled algorithm, with every kernel set.
#include "gemm_check.hpp"
#include "gemm_sets.hpp"

namespace gemm_test {
namespace {

// A block that is full in all extents, in two passes: the most that a thread's scratch must hold. Of the smallest one
// all algorithms are compared with the reference, which would take longer for the others than all else: these must have
// the bits of the smallest blocks, whatever the threads.
void full_block(const Variant &v, bool f64) {
  const Variant &smallest = variants[0];
  Case c;
  if (f64) c.a = c.b = c.d = Type::f64;
  c.m = v.rows;
  c.n = v.columns / (f64 ? 2 : 1);
  c.k = 2 * v.depth;
  if (&v == &smallest) return run_case(c);
  static int turn = 0;
  if (turn++ % case_interval) return;
  Operands o(c);
  std::vector<unsigned char> small;
  const auto check = [&](int32_t id, int threads) {
    size_t needed = 0;
    if (!supports(id, o.problem, &needed)) return fail("does not take a full block", c, id);
    o.restore();
    Workspace workspace(needed);
    set_thread_limit(threads);
    if (!run(id, o.problem, workspace.start, needed)) fail("did not run", c, id);
    set_thread_limit(0);
    if (!workspace.guards_hold() || !o.d.guards_hold()) fail("wrote outside its memory", c, id);
    if (small.empty()) small = o.d.bytes;
    if (o.d.bytes != small) fail("bits depend on the blocks or the threads", c, id);
  };
  check(smallest.algorithm.id, 1);
  for (const int threads : {1, 0}) check(v.algorithm.id, threads);
}

}  // namespace
}  // namespace gemm_test

int main() {
  using namespace gemm_test;
  return with_kernel_sets(
      [](const char *) {
        for (const bool f64 : {false, true}) {
          for (const Variant &v : variants) {
            if (v.family == Family::direct || v.family == Family::blocked) full_block(v, f64);
          }
        }
      },
      checks, failures);
}
