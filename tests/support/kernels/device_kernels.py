# SPDX-License-Identifier: MIT
"""One kernel for each primitive, for the tests of code objects: each takes x, out and a number, all of one type."""

import functools
import importlib.util
import math

import numpy as np

from rocpy import cooperative as coop
from rocpy.cooperative.amdgpu import code_object
from rocpy.errors import UnsupportedError


def _no_compiler() -> str:
    if importlib.util.find_spec("ziglang") is None:
        return "no compiler and linker for AMD GPUs: pip install ziglang"
    try:
        code_object.linker()
    except UnsupportedError as error:
        return str(error)
    return ""


# Why no kernel can be compiled for AMD GPUs here; empty, if one can.
NO_COMPILER = _no_compiler()


def longer(a, b):
    """Return the greater: an operator that Python defines."""
    return max(a, b)


def carry(state, total):
    """Carry the total of a tile on to the next one."""
    before = state[0]
    state[0] = before + total
    return before


CALLS = {
    "sum": "out[i] = coop.sum(group, x[i], all=True)",
    "reduce": "out[i] = coop.reduce(group, x[i], longer, all=True)",
    "reduce_named": "out[i] = coop.reduce(group, x[i], '*', all=True)",
    "min": "out[i] = coop.min(group, x[i], all=True)",
    "max": "out[i] = coop.max(group, x[i], valid_items=n, all=True)",
    "inclusive_sum": "out[i] = coop.inclusive_sum(group, x[i])",
    "exclusive_sum": "out[i] = coop.exclusive_sum(group, x[i])",
    "inclusive_scan": "out[i] = coop.inclusive_scan(group, x[i], '*')",
    "exclusive_scan": "out[i] = coop.exclusive_scan(group, x[i], longer, initial=x[0])",
    "scan_total": "out[i] = coop.exclusive_sum(group, x[i], aggregate=True)[1]",
    "scan_prefix": "out[i] = coop.inclusive_sum(group, x[i], prefix=carry, state=state)",
    "scan_items": "coop.load(group, x, items); coop.store(group, out, coop.exclusive_sum(group, items))",
    "reduce_batched": "out[i] = coop.reduce_batched(group, items_of(x, i), '+', all=True)[1]",
    "shuffle": "out[i] = coop.shuffle(group, x[i], 'rotate', 3)",
    "broadcast": "out[i] = coop.broadcast(group, x[i], group.size() // 3)",
    "any": "out[i] = coop.any(group, x[i] > 1)",
    "all": "out[i] = coop.all(group, x[i] > -9)",
    "ballot": "out[i] = coop.ballot(coop.this_warp(16), x[i] > 1)",
    "match": "out[i] = coop.match(coop.this_warp(16), x[i])",
    "load": (
        "coop.load(group, x, items, algorithm='transpose', valid_items=n, oob_default=1); "
        "coop.store(group, out, items, algorithm='striped')"
    ),
    "store": (
        "coop.load(group, x, items, algorithm='warp_transpose'); "
        "coop.store(group, out, items, algorithm='transpose', valid_items=n)"
    ),
    "exchange": (
        "coop.load(group, x, items); coop.store(group, out, coop.exchange(group, items, 'blocked_to_striped'))"
    ),
    "topk_max_keys": "held = coop.topk_max_keys(group, x[i], k=5); out[i] = held if group.rank() < 5 else x[i]",
    "merge_sort_keys": "out[i] = coop.merge_sort_keys(group, x[i])",
    "merge_sort_pairs": "out[i] = coop.merge_sort_pairs(group, x[i], i)[1]",
    "radix_sort_keys": (
        "coop.load(group, x, items); coop.store(group, out, coop.radix_sort_keys(group, items, descending=True))"
    ),
    "radix_rank": "out[i] = coop.radix_rank(group, x[i])",
    "discontinuity": "out[i] = coop.discontinuity(group, x[i])",
    "adjacent_difference": "out[i] = coop.adjacent_difference(group, x[i])",
    "histogram": "out[i] = coop.histogram(group, coop.threadIdx.x % 7, bins=64, bins_per_thread=3)[0]",
    "run_length_decode": "runs = coop.run_length_decode(group, x[i], 2, items=2); out[i] = runs[0][1]",
}
# Those whose lanes exchange values by DPP.
BY_DPP = (
    "sum",
    "reduce",
    "reduce_named",
    "min",
    "max",
    "inclusive_sum",
    "exclusive_sum",
    "inclusive_scan",
    "exclusive_scan",
    "scan_total",
    "scan_prefix",
    "scan_items",
    "reduce_batched",
)

_SOURCE = """
def kernel_{name}(x, out, n):
    i = coop.blockIdx.x * coop.blockDim.x + coop.threadIdx.x
    items = coop.ThreadData(4, dtype)
    state = coop.shared.array(1, dtype)
    if coop.threadIdx.x == 0:
        state[0] = 0
    coop.syncthreads()
    group = {group}
    {body}
"""


def define(name: str, dtype: str = "float32", width: int = 0, **world):
    """Return the function of a primitive for blocks, or for warps of a width; `world` is what it names otherwise."""
    group = f"coop.this_warp({width})" if width else "coop.this_block()"
    body = CALLS[name].replace("items_of(x, i)", "items")
    if name == "reduce_batched":
        body = "coop.load(group, x, items); " + body
    source = _SOURCE.format(name=name, group=group, body=body.replace("; ", "\n    "))
    world = {
        "__name__": __name__,
        "coop": coop,
        "np": np,
        "longer": longer,
        "carry": carry,
        "dtype": np.dtype(dtype).type,
        **world,
    }
    exec(compile(source, f"<kernel {name}>", "exec"), world)
    return world[f"kernel_{name}"]


@functools.cache
def make(name: str, dtype: str = "float32", width: int = 0, warp_size: int = 64):
    """Return the kernel of a primitive for blocks, or for warps of a width."""
    return coop.jit(warp_size=warp_size, threads=1)(define(name, dtype, width))


@coop.jit
def functions(x, out):
    i = coop.threadIdx.x
    out[0, i] = math.exp(x[i])
    out[1, i] = math.log(x[i])
    out[2, i] = math.sin(x[i])
    out[3, i] = math.tanh(x[i])
    out[4, i] = math.erf(x[i])
    out[5, i] = math.sqrt(x[i])
    out[6, i] = math.log1p(x[i])
    out[7, i] = math.cos(x[i])
    out[8, i] = x[i] / (x[i] + x[0])


def check_functions(x, out):
    """Compare what `functions` made with numpy: roots and quotients are rounded correctly, the others nearly."""
    wide = x.astype(np.longdouble)
    expected = [np.exp(wide), np.log(wide), np.sin(wide), np.tanh(wide), [math.erf(v) for v in x], np.sqrt(wide)]
    expected += [np.log1p(wide), np.cos(wide)]
    for seen, wanted in zip(out, expected, strict=False):
        error = np.abs(seen - np.asarray(wanted, np.longdouble))
        assert (error <= 14 * np.spacing(np.abs(np.asarray(wanted)).astype(x.dtype))).all(), error.max()
    np.testing.assert_array_equal(out[5], np.sqrt(x))
    np.testing.assert_array_equal(out[8], x / (x + x[0]))
