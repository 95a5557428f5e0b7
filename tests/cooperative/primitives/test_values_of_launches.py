# SPDX-License-Identifier: MIT
"""Values that only a launch knows: those that mean nothing are reported with the line, the largest are taken as is."""

import functools
import linecache

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelError, KernelIndexError

RELEASE_AND_DEBUG = pytest.mark.parametrize("debug", [False, pytest.param(True, marks=pytest.mark.slow)])


@functools.cache  # compiled once for all values
def kernel_of(body, debug=False):
    """Return a kernel of x, n and out, whose statements begin in line 3."""
    source, filename = f"def kernel(x, n, out):\n    i = coop.threadIdx.x\n    {body}\n", f"<values {hash(body)}>"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    names = {"coop": coop, "np": np, "__name__": __name__}
    exec(compile(source, filename, "exec"), names)
    return coop.jit(debug=debug)(names["kernel"])


def refused(body, n, said, *, debug=False, x=None, error=KernelIndexError):
    with pytest.raises(error, match=said) as told:
        kernel_of(body, debug)[1, 4](np.arange(4) if x is None else x, n, np.zeros(4, np.int64))
    assert told.value.line == 3


@RELEASE_AND_DEBUG
@pytest.mark.parametrize("width", [3, 128, -2, 2**32 + 2, 2**32, 2**33, -(2**32) + 2, -(2**63)])
@pytest.mark.parametrize("use", ["g.rank()", "g.size()", "coop.sum(g, x[i], all=True)"])
def test_widths_that_no_warp_has(width, use, debug):
    refused(f"g = coop.this_warp(n); out[i] = {use}", width, r"uses a warp of -?\d+", debug=debug, error=KernelError)


@RELEASE_AND_DEBUG
def test_widths_of_warps(debug):
    kernel = kernel_of("g = coop.this_warp(n); out[i] = 100 * g.rank() + g.size()", debug)
    for width in (1, 2, 4, 64, 0):
        out = np.zeros(6, np.int64)
        kernel[1, 6](np.arange(6), width, out)
        step = width or 64
        assert out.tolist() == [100 * (i % step) + min(step, 6 - i // step * step) for i in range(6)]


@RELEASE_AND_DEBUG
@pytest.mark.parametrize("name", ["sum", "reduce", *(pytest.param(x, marks=pytest.mark.slow) for x in ("min", "max"))])
@pytest.mark.parametrize("group", ["this_block()", "this_warp(4)"])
@pytest.mark.parametrize("count", [0, -1, -(2**63)])
def test_reductions_of_no_threads(name, group, count, debug):
    body = f"out[i] = coop.{name}(coop.{group}, x[i], valid_items=n, all=True)"
    refused(body, count, rf"coop\.{name}: valid_items is less than 1", debug=debug)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 2**63 - 1, np.uint64(2**63), np.uint64(2**64 - 1)])
def test_reductions_of_some_threads(count):
    out = np.zeros(4, np.int64)
    kernel_of("out[i] = coop.sum(coop.this_block(), x[i], valid_items=n, all=True)")[1, 4](np.arange(4), count, out)
    assert out.tolist() == [sum(range(min(int(count), 4)))] * 4


LOAD = "own = coop.ThreadData(1, np.int64); coop.load(coop.this_block(), x, own, {0}); out[i] = own[0]"
COUNTED = {
    "merge": ("out[i] = coop.merge_sort_keys(coop.this_block(), x[i], valid_items=n)", [3, 1, 2, 0], [0, 1, 2, 3]),
    "left": (
        "out[i] = coop.adjacent_difference(coop.this_block(), x[i], valid_items=n)",
        [3, 1, 2, 0],
        [3, -2, 1, -2],
    ),
    "right": (
        "out[i] = coop.adjacent_difference(coop.this_block(), x[i], 'right', valid_items=n, tile_successor=0)",
        [3, 1, 2, 0],
        [2, -1, 2, 0],
    ),
    "store": ("coop.store(coop.this_block(), out, x[i], valid_items=n)", [7] * 4, [3, 1, 2, 0]),
    "load": (LOAD.format("valid_items=n, oob_default=7"), [7] * 4, [3, 1, 2, 0]),
}


@RELEASE_AND_DEBUG
@pytest.mark.parametrize("name", COUNTED)
def test_a_tile_beyond_the_end_has_no_valid_items(name, debug):
    """As where a tile begins after the last item: `n - tile` is negative."""
    body, none, everything = COUNTED[name]
    kernel = kernel_of(body, debug)
    x = np.array([3, 1, 2, 0])
    for count in (0, -1, -(2**63), 4, 2**63 - 1, np.uint64(2**64 - 1)):
        out = np.full(4, 7, np.int64)
        kernel[1, 4](x, count, out)
        assert out.tolist() == (none if count < 1 else everything), count


@RELEASE_AND_DEBUG
@pytest.mark.parametrize("name", ["topk_max_keys", pytest.param("topk_min_keys", marks=pytest.mark.slow)])
def test_a_negative_number_of_greatest_keys(name, debug):
    refused(f"k = coop.{name}(coop.this_block(), x[i], n)", -1, rf"coop\.{name}: k is negative", debug=debug)


DISTANCES = [0, 1, -1, 4, 2**63 - 1, 2**63 - 5, -(2**63), np.uint64(2**63), np.uint64(2**64 - 1)]


@RELEASE_AND_DEBUG
@pytest.mark.parametrize(("group", "size"), [("this_block()", 6), ("this_block()", 7), ("this_warp(4)", 4)])
def test_rotation_by_any_distance(group, size, debug):
    kernel = kernel_of(f'out[i] = coop.shuffle(coop.{group}, x[i], "rotate", n)', debug)
    for distance in DISTANCES:
        out = np.zeros(size, np.int64)
        kernel[1, size](np.arange(size), distance, out)
        assert out.tolist() == [(i + int(distance)) % size for i in range(size)], distance


@pytest.mark.parametrize("mode", ["up", "down", "offset", "xor", "index"])
@pytest.mark.parametrize("group", ["this_block()", "this_warp(4)"])
def test_a_distance_that_leads_out_of_the_group(mode, group):
    kernel = kernel_of(f'out[i] = coop.shuffle(coop.{group}, x[i], "{mode}", n)')
    for distance in DISTANCES[4:]:
        out = np.zeros(4, np.int64)
        kernel[1, 4](np.arange(4), distance, out)
        assert out.tolist() == [0, 1, 2, 3], distance


RUNS = {
    "decode": "own, total = coop.run_length_decode(coop.this_block(), i, x[i], 1); out[i] = total",
    "into": "out[i] = coop.run_length_decode_into(coop.this_block(), out, i, x[i])",
}


@RELEASE_AND_DEBUG
@pytest.mark.parametrize("name", RUNS)
def test_lengths_that_add_up_to_more_than_an_int64(name, debug):
    for lengths in ([2**62] * 4, [2**63 - 1, 0, 1, 0], [2**63 - 1] * 4):
        refused(RUNS[name], 0, r"the lengths add up to 2\*\*63 or more", debug=debug, x=np.array(lengths))
    for lengths in (np.array([0, -1, 0, 0]), np.array([0, 2**63, 0, 0], np.uint64)):
        refused(RUNS[name], 0, r"a length is negative, or 2\*\*63 or more", debug=debug, x=lengths)


def test_the_longest_runs():
    out = np.zeros(4, np.int64)
    kernel_of(RUNS["decode"])[1, 4](np.array([2**62, 2**62 - 2, 0, 1]), 0, out)
    assert out.tolist() == [2**63 - 1] * 4


@RELEASE_AND_DEBUG
def test_a_window_beyond_the_items_has_none(debug):
    kernel = kernel_of("_, t = coop.run_length_decode(coop.this_block(), i, x[i], 3, window=n); out[i] = t", debug)
    lengths = np.array([2**62, 2**62 - 2, 0, 1])
    for window in (0, 2**62, 2**63 - 1, np.uint64(2**64 - 1)):
        out = np.zeros(4, np.int64)
        kernel[1, 4](lengths, window, out)
        assert out.tolist() == [2**63 - 1] * 4
    kernel = kernel_of("own, t = coop.run_length_decode(coop.this_block(), i, x[i], 1, window=n); out[i] = own[0]")
    for window in (2**63 - 1, 2**63 - 3):
        out = np.full(4, 7, np.int64)
        kernel[1, 4](np.array([1, 2, 3, 4]), window, out)
        assert not set(out.tolist()) & {1, 2, 3}


@RELEASE_AND_DEBUG
def test_windows_and_offsets(debug):
    decode = "own, total = coop.run_length_decode(coop.this_block(), i, x[i], 1, window=n); out[i] = total"
    refused(decode, -1, r"coop\.run_length_decode: window is negative", debug=debug)
    into = "out[i] = coop.run_length_decode_into(coop.this_block(), out, i, x[i], offset=n)"
    refused(into, -1, r"coop\.run_length_decode_into: offset is negative", debug=debug)
    for offset in (5, 2**63 - 1, np.uint64(2**64 - 1)):
        refused(into, offset, "the items extend past the end of target", debug=debug, x=np.array([1, 0, 0, 0]))
    for option, advice in (("", "pass valid_items="), (", valid_items=1", "pass fewer valid_items")):
        load = LOAD.format(f"offset=n{option and option + ', oob_default=0'}")
        store = f"coop.store(coop.this_block(), out, x[i], offset=n{option})"
        for offset in (-1, 5, 2**62, 2**63 - 4, np.uint64(2**63)):
            extends = "begins before" if offset < 0 else f"extends past the end of .*; {advice}"
            refused(load, offset, rf"coop\.load: the tile {extends}", debug=debug)
            refused(store, offset, rf"coop\.store: the tile {extends}", debug=debug)


def test_indices_in_runs_beyond_int32_are_refused():
    decode = "own, at, total = coop.run_length_decode(coop.this_block(), i, x[i], 1, window=n, relative=True)"
    lengths = np.array([2**40, 1, 0, 2])
    refused(f"{decode}; out[i] = at[0]", 2**40 - 1, r"index in its run is 2\*\*31 or more", x=lengths)
    kernel, out = kernel_of(f"{decode}; out[i] = at[0]"), np.zeros(4, np.int64)
    kernel[1, 4](lengths, 2**31 - 4, out)
    assert out.tolist() == [2**31 - 4, 2**31 - 3, 2**31 - 2, 2**31 - 1]


def test_what_is_raised_after_a_wait_has_its_line():
    body = (
        "s = coop.sum(coop.this_block(), x[i]); out[i] = s + coop.radix_sort_keys(coop.this_block(), x[i], begin_bit=n)"
    )
    refused(body, 99, "bits are from begin_bit up to end_bit")
