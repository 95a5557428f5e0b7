# SPDX-License-Identifier: MIT
"""Moves between threads and memory, and votes: blocks, distances and values that hypothesis draws, against numpy."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocpy import cooperative as coop
from rocpy.testing import primitives

pytestmark = pytest.mark.slow

THREADS = st.integers(1, 300)
SEEDS = st.integers(0, 2**32 - 1)
ITEMS = 3


def _groups(threads, width):
    step = width or threads
    return [slice(begin, min(begin + step, threads)) for begin in range(0, threads, step)]


def _group_source(width):
    return "coop.this_block()" if width == 0 else f"coop.this_warp({width})"


@functools.cache
def _kernel(source, warp_size=64):
    """Return a kernel of a text: calls of each width and mode are kernels of their own."""
    names = {"coop": coop, "np": np}
    exec(compile(source, "<drawn>", "exec"), names)
    return coop.jit(threads=1, warp_size=warp_size)(names["kernel"])


@settings(deadline=None)
@given(
    threads=THREADS,
    width=st.sampled_from([0, 1, 8, 32]),
    mode=st.sampled_from(["up", "down", "offset", "rotate", "xor", "index"]),
    distance=st.integers(-400, 400),
    seed=SEEDS,
)
def test_shuffle(threads, width, mode, distance, seed):
    if mode not in ("offset", "rotate"):
        distance = abs(distance)
    kernel = _kernel(f"""
def kernel(x, distance, out):
    i = coop.threadIdx.x
    out[i] = coop.shuffle({_group_source(width)}, x[i], {mode!r}, distance)
""")
    x = np.random.default_rng(seed).standard_normal(threads)
    out = np.zeros(threads)
    kernel[1, threads](x, distance, out)
    expected = [primitives.shuffle_oracle(x[each], mode, distance) for each in _groups(threads, width)]
    np.testing.assert_array_equal(out, np.concatenate(expected))


@settings(deadline=None)
@given(threads=THREADS, width=st.sampled_from([0, 2, 64]), place=st.floats(0, 1, exclude_max=True), seed=SEEDS)
def test_broadcast(threads, width, place, seed):
    source = int(place * min(group.stop - group.start for group in _groups(threads, width)))
    kernel = _kernel(f"""
def kernel(x, source, out):
    i = coop.threadIdx.x
    out[i] = coop.broadcast({_group_source(width)}, x[i], source)
""")
    x = np.random.default_rng(seed).integers(-(2**62), 2**62, threads)
    out = np.zeros_like(x)
    kernel[1, threads](x, source, out)
    for group in _groups(threads, width):
        np.testing.assert_array_equal(out[group], x[group][source])


@settings(deadline=None)
@given(
    threads=THREADS,
    mode=st.sampled_from(
        ["blocked_to_striped", "striped_to_blocked", "blocked_to_warp_striped", "warp_striped_to_blocked"]
    ),
    warp_size=st.sampled_from([32, 64]),
    seed=SEEDS,
)
def test_exchange(threads, mode, warp_size, seed):
    kernel = _kernel(
        f"""
def kernel(x, out):
    i = coop.threadIdx.x
    own = coop.ThreadData({ITEMS}, np.int32)
    for k in range({ITEMS}):
        own[k] = x[i, k]
    result = coop.exchange(coop.this_block(), own, {mode!r})
    for k in range({ITEMS}):
        out[i, k] = result[k]
""",
        warp_size,
    )
    x = np.random.default_rng(seed).integers(0, 1000, (threads, ITEMS), dtype=np.int32)
    out = np.zeros_like(x)
    kernel[1, threads](x, out)
    np.testing.assert_array_equal(out, primitives.exchange_oracle(x, *mode.split("_to_"), warp_size))


@settings(deadline=None)
@given(threads=THREADS, after=st.sampled_from(["blocked", "striped"]), seed=SEEDS)
def test_scatter(threads, after, seed):
    mode = f"scatter_to_{after}"
    kernel = _kernel(f"""
def kernel(x, ranks, out):
    i = coop.threadIdx.x
    own, places = coop.ThreadData({ITEMS}, np.float64), coop.ThreadData({ITEMS}, np.int64)
    for k in range({ITEMS}):
        own[k], places[k] = x[i, k], ranks[i, k]
    result = coop.exchange(coop.this_block(), own, {mode!r}, ranks=places)
    for k in range({ITEMS}):
        out[i, k] = result[k]
""")
    rng = np.random.default_rng(seed)
    x, ranks = rng.standard_normal((threads, ITEMS)), rng.permutation(threads * ITEMS).reshape(threads, ITEMS)
    out, flat = np.zeros_like(x), np.empty(threads * ITEMS)
    kernel[1, threads](x, ranks, out)
    flat[ranks] = x
    np.testing.assert_array_equal(out, flat[primitives.arrangement(after, threads, ITEMS, 64)])


@settings(deadline=None)
@given(
    threads=THREADS,
    algorithm=st.sampled_from(["direct", "striped", "vectorize", "transpose", "warp_transpose"]),
    valid=st.integers(-2, 1000),
    offset=st.integers(0, 50),
    seed=SEEDS,
)
def test_load_and_store(threads, algorithm, valid, offset, seed):
    kernel = _kernel(f"""
def kernel(x, valid, offset, seen, out):
    i = coop.threadIdx.x
    own = coop.ThreadData({ITEMS}, np.int32)
    coop.load(coop.this_block(), x, own, algorithm={algorithm!r}, valid_items=valid, oob_default=-1, offset=offset)
    for k in range({ITEMS}):
        seen[i, k] = own[k]
    coop.store(coop.this_block(), out, own, algorithm={algorithm!r}, valid_items=valid, offset=offset)
""")
    size = threads * ITEMS
    x = np.random.default_rng(seed).integers(0, 1000, offset + size, dtype=np.int32)
    seen, out = np.zeros((threads, ITEMS), np.int32), np.full_like(x, -7)
    kernel[1, threads](x, valid, offset, seen, out)
    there = min(max(valid, 0), size)
    tile = np.full(size, -1, np.int32)
    tile[:there] = x[offset : offset + there]
    np.testing.assert_array_equal(seen, primitives.memory_oracle(tile, threads, ITEMS, striped=algorithm == "striped"))
    stored = np.full_like(x, -7)
    stored[offset : offset + there] = x[offset : offset + there]
    np.testing.assert_array_equal(out, stored)


@settings(deadline=None)
@given(
    threads=THREADS,
    width=st.sampled_from([1, 4, 32, 64]),
    kinds=st.integers(1, 4),
    dtype=st.sampled_from(["int8", "uint64", "float32", "complex64"]),
    seed=SEEDS,
)
def test_votes_and_matches(threads, width, kinds, dtype, seed):
    kernel = _kernel(f"""
def kernel(x, flags, masks):
    i = coop.threadIdx.x
    warp = {_group_source(width)}
    flags[i, 0] = coop.any(warp, x[i] != 0)
    flags[i, 1] = coop.all(warp, x[i] != 0)
    masks[i, 0] = coop.ballot(warp, x[i] != 0)
    masks[i, 1] = coop.match(warp, x[i])
""")
    x = np.random.default_rng(seed).integers(0, kinds, threads).astype(dtype)
    flags, masks = np.zeros((threads, 2), bool), np.zeros((threads, 2), np.uint64)
    kernel[1, threads](x, flags, masks)
    for group in _groups(threads, width):
        some, every, ballot, matches = primitives.vote_oracle(x[group])
        assert (flags[group] == [some, every]).all()
        assert (masks[group, 0] == ballot).all()
        assert masks[group, 1].tolist() == matches
        # All are equal where a thread's own mask has everyone.
        whole = (1 << (group.stop - group.start)) - 1
        assert (masks[group, 1] == whole).all() == (len(set(x[group].tolist())) == 1)
