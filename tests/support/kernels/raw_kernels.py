# SPDX-License-Identifier: MIT
"""Kernels in HIP C++ around each primitive of rocpy_coop.h: all take x, aux, out, also and a number."""

import ml_dtypes
import numpy as np

TYPES = {
    "float": np.dtype("float32"),
    "double": np.dtype("float64"),
    "int": np.dtype("int32"),
    "unsigned char": np.dtype("uint8"),
    "long long": np.dtype("int64"),
    "_Float16": np.dtype("float16"),
    "__bf16": np.dtype(ml_dtypes.bfloat16),
}

_HEAD = """
#define COOP_MOST_THREADS {most}
#include "rocpy_coop.h"
using namespace rocpy;
typedef {type} T;
typedef {group} Group;
constexpr unsigned ITEMS = {items};
#define KERNEL(name) \\
  extern "C" __attribute__((global)) void name(const T *x, const int *aux, T *out, int *also, unsigned n)
#define START \\
  Group group; \\
  const unsigned at = group.first() * ITEMS, begin = at + group.rank() * ITEMS; \\
  T items[ITEMS], made[ITEMS]; \\
  int numbers[ITEMS], more[ITEMS]; \\
  (void)begin, (void)made, (void)numbers, (void)more; \\
  load(group, x + at, items)
#define KEEP(from) store(group, out + at, from)
#define COUNT(from) store(group, also + at, from)
"""

_BODIES = {
    "merge": "merge_sort_keys(group, items, Less{}, n); KEEP(items);",
    "merge_down": """
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] = begin + k - at;
  merge_sort_pairs(group, items, numbers, Greater{}, n);
  KEEP(items);
  COUNT(numbers);""",
    "radix": "radix_sort_keys(group, items); KEEP(items);",
    "radix_down": """
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] = begin + k - at;
  radix_sort_pairs<true>(group, items, numbers, aux[0], aux[1]);
  KEEP(items);
  COUNT(numbers);""",
    "ranks": "radix_rank(group, items, numbers, aux[0], aux[1]); COUNT(numbers);",
    "top_max": """
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] = begin + k - at;
  topk_max_pairs(group, items, numbers, n);
  KEEP(items);
  COUNT(numbers);""",
    "top_min": "topk_min_keys(group, items, n, aux[0]); KEEP(items);",
    "by_lds": """
  load<Memory::transpose>(group, x + at, items, n, static_cast<T>(7));
  store<Memory::warp_transpose>(group, out + at, items);""",
    "by_waves": """
  load<Memory::warp_transpose>(group, x + at, items);
  store<Memory::transpose>(group, out + at, items, n);""",
    "by_quads": """
  load<Memory::vectorize>(group, x + at, items);
  store<Memory::striped>(group, out + at, items);""",
    "quads_out": """
  load<Memory::striped>(group, x + at, items);
  store<Memory::vectorize>(group, out + at, items);""",
    "to_striped": "exchange<Exchange::blocked_to_striped>(group, items, made); KEEP(made);",
    "from_striped": "exchange<Exchange::striped_to_blocked>(group, items, made); KEEP(made);",
    "to_warp_striped": "exchange<Exchange::blocked_to_warp_striped>(group, items, made); KEEP(made);",
    "from_warp_striped": "exchange<Exchange::warp_striped_to_blocked>(group, items, made); KEEP(made);",
    "scatter": """
  load(group, aux + at, numbers);
  scatter_to_blocked(group, items, numbers, made);
  KEEP(made);""",
    "scatter_striped": """
  load(group, aux + at, numbers);
  scatter_to_striped(group, items, numbers, made);
  KEEP(made);""",
    "histogram": """
  int counts[3];
  load(group, aux + at, numbers);
  histogram<3 * 8>(group, numbers, counts);
  for (unsigned k = 0; k < 3; ++k) also[group.first() * 3 + k * group.size() + group.rank()] = counts[k];""",
    "edges": """
  flag_heads_and_tails(group, items, numbers, more);
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] += 2 * more[k];
  COUNT(numbers);""",
    "edges_beside": """
  flag_heads_and_tails(group, items, numbers, more, Differs{}, x, x);
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] += 2 * more[k];
  COUNT(numbers);""",
    "left": "subtract_left(group, items, made, Minus{}, n); KEEP(made);",
    "right": "subtract_right(group, items, made, Minus{}, n, x); KEEP(made);",
    "runs": """
  load(group, aux + at, numbers);
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] &= 1;
  const Runs<Group, T, ITEMS> runs(group, items, numbers);
  for (unsigned k = 0; k < ITEMS; ++k) made[k] = static_cast<T>(0), more[k] = -1;
  runs.decode(n, made, more);
  KEEP(made);
  COUNT(more);""",
    "runs_into": """
  load(group, aux + at, numbers);
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] &= 1;
  Runs<Group, T, ITEMS>(group, items, numbers).decode_into(out + at);""",
    "reduce": """
  const T total = sum(group, items, n), least = min(group, items), most = max(group, items[0], n);
  reduce_batched(group, items, made, Max{});
  for (unsigned k = 0; k < ITEMS; ++k) items[k] = k % 4 == 0 ? total : k % 4 == 1 ? least : k % 4 == 2 ? most : made[k];
  KEEP(items);""",
    "scan": """
  const T total = inclusive_scan(group, items, made, Plus{});
  KEEP(made);
  if (group.rank() == 0) also[group.first()] = static_cast<int>(total);""",
    "scan_from": """
  exclusive_scan(group, items, made, Plus{}, static_cast<T>(3));
  KEEP(made);""",
    "scan_after": """
  exclusive_scan_after(group, items, made, Plus{}, [=](T total) {
    also[group.first()] = static_cast<int>(total);
    return static_cast<T>(5);
  });
  KEEP(made);""",
    "votes": """
  load(group, aux + at, numbers);
  numbers[0] = any(group, numbers[0] == 3) + 2 * all(group, numbers[0] >= 0) + 4 * any(group, numbers[0] < 0);
  COUNT(numbers);""",
    "shuffles": """
  items[0] = shuffle<Shuffle::up>(group, items[0], n);
  if (ITEMS > 1) items[1 % ITEMS] = shuffle<Shuffle::rotate>(group, items[1 % ITEMS], n);
  if (ITEMS > 2) items[2 % ITEMS] = shuffle<Shuffle::exchange>(group, items[2 % ITEMS], n);
  if (ITEMS > 3) items[3 % ITEMS] = broadcast(group, items[3 % ITEMS], n);
  KEEP(items);""",
}
_SCATTERS = {
    "scatter_guarded": """
  load(group, aux + at, numbers);
  for (unsigned k = 0; k < ITEMS; ++k) numbers[k] = numbers[k] % 2 ? -1 : numbers[k];
  scatter_to_striped_guarded(group, items, numbers, made);
  KEEP(made);""",
    "scatter_flagged": """
  load(group, aux + at, numbers);
  for (unsigned k = 0; k < ITEMS; ++k) more[k] = numbers[k] % 2 == 0;
  scatter_to_striped_flagged(group, items, numbers, more, made);
  KEEP(made);""",
}
BODIES = _BODIES | _SCATTERS


def source(kind, items, group, most):
    """Return the text of all kernels for a type, for so many items, for a group."""
    head = _HEAD.format(type=kind, items=items, group=group, most=most)
    return head + "".join(f"KERNEL({name}) {{\n  START;\n  {body.strip()}\n}}\n" for name, body in BODIES.items())


def ordered_bits(keys):
    """Return keys as unsigned integers of the same order."""
    word = np.dtype(f"u{keys.itemsize}")
    if np.issubdtype(keys.dtype, np.unsignedinteger):
        return keys.astype(np.uint64)
    top = word.type(1 << (8 * keys.itemsize - 1))
    if keys.dtype.kind == "i":
        return (keys.view(word) ^ top).astype(np.uint64)
    raw = np.where(keys == 0, np.zeros_like(keys), keys).view(word)
    return np.where(raw & top, ~raw, raw ^ top).astype(np.uint64)


def codes(keys):
    """Return numbers in the order of keys: a NaN is the greatest, -0 and 0 are equal."""
    wide = keys.astype(np.float64) if keys.dtype.kind not in "iu" else keys
    return np.unique(wide, return_inverse=True)[1].astype(np.int64)
