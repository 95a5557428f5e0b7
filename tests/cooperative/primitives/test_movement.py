# SPDX-License-Identifier: MIT
"""Shuffles, broadcasts, votes, loads, stores and exchanges over groups and sizes, against numpy."""

import functools

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelIndexError, KernelTypeError
from rocpy.testing import primitives

THREADS = (1, 17, 64, 100)


@functools.cache
def shuffler(mode, width):
    @coop.jit(threads=1)
    def kernel(x, distance, out):
        i = coop.threadIdx.x
        if width:
            out[i] = coop.shuffle(coop.this_warp(width), x[i], mode, distance)
        else:
            out[i] = coop.shuffle(coop.this_block(), x[i], mode, distance)

    return kernel


@pytest.mark.parametrize("mode", ["up", "down", "offset", "rotate", "xor", "index"])
@pytest.mark.parametrize("width", [0, pytest.param(16, marks=pytest.mark.slow)])
def test_shuffle(mode, width, rng):
    for threads in THREADS:
        x = rng.standard_normal(threads)
        for distance in (0, 1, 5, 16, 200, *((-3,) if mode in ("offset", "rotate") else ())):
            out = np.zeros(threads)
            shuffler(mode, width)[1, threads](x, distance, out)
            step = width or threads
            expected = [primitives.shuffle_oracle(x[b : b + step], mode, distance) for b in range(0, threads, step)]
            np.testing.assert_array_equal(out, np.concatenate(expected))


def test_broadcast(rng):
    @coop.jit(threads=1)
    def kernel(x, source, out, items):
        i = coop.threadIdx.x
        out[i] = coop.broadcast(coop.this_block(), x[i], source)
        own = coop.ThreadData(3, np.float64)
        for k in range(3):
            own[k] = x[i] + k
        first = coop.broadcast(coop.this_warp(8), own)
        for k in range(3):
            items[i, k] = first[k]

    x = rng.standard_normal(50)
    out, items = np.zeros(50), np.zeros((50, 3))
    kernel[1, 50](x, 33, out, items)
    np.testing.assert_array_equal(out, x[33])
    np.testing.assert_array_equal(items, x[np.arange(50) // 8 * 8][:, None] + np.arange(3))
    with pytest.raises(KernelIndexError, match="source is not a rank of the group"):
        kernel[1, 50](x, 50, out, items)


@pytest.mark.parametrize("warp_size", [32, 64])
def test_votes(warp_size, rng):
    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(x, flags, masks):
        i = coop.threadIdx.x
        warp = coop.this_warp()
        flags[i, 0] = coop.any(warp, x[i])
        flags[i, 1] = coop.all(warp, x[i])
        flags[i, 2] = coop.any(coop.this_block(), x[i] == 2)
        masks[i, 0] = coop.ballot(warp, x[i])
        masks[i, 1] = coop.match(warp, x[i])

    for values in (rng.integers(0, 4, 100), np.zeros(100, np.int64), np.ones(100, np.int64)):
        flags, masks = np.zeros((100, 3), bool), np.zeros((100, 2), np.uint64)
        kernel[1, 100](values, flags, masks)
        for begin in range(0, 100, warp_size):
            group = slice(begin, begin + warp_size)
            some, every, ballot, matches = primitives.vote_oracle(values[group])
            assert (flags[group, 0] == some).all()
            assert (flags[group, 1] == every).all()
            assert (masks[group, 0] == ballot).all()
            assert masks[group, 1].tolist() == matches
        assert (flags[:, 2] == (values == 2).any()).all()


ALGORITHMS = ("direct", "striped", "vectorize", "transpose", "warp_transpose")


@functools.cache
def copier(algorithm, items, dtype):
    @coop.jit(threads=1)
    def kernel(x, out, seen, valid):
        own = coop.ThreadData(items, dtype)
        block = coop.this_block()
        tile = coop.blockIdx.x * coop.blockDim.x * items
        coop.load(block, x, own, algorithm=algorithm, valid_items=valid - tile, oob_default=-1, offset=tile)
        for k in range(items):
            seen[coop.grid(1), k] = own[k]
        coop.store(block, out, own, algorithm=algorithm, valid_items=valid - tile, offset=tile)

    return kernel


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_load_and_store(algorithm, rng):
    for threads, items, valid in ((32, 4, 256), (32, 4, 201), (100, 4, 800), (1, 4, 3)):
        x = rng.integers(0, 99, valid).astype(np.int32)
        out, seen = np.zeros_like(x), np.zeros((2 * threads, items), np.int32)
        copier(algorithm, items, np.int32)[2, threads](x, out, seen, valid)
        np.testing.assert_array_equal(out, x)
        padded = np.full(2 * threads * items, -1, np.int32)
        padded[:valid] = x
        for b in range(2):
            tile = padded[b * threads * items : (b + 1) * threads * items]
            expected = primitives.memory_oracle(tile, threads, items, striped=algorithm == "striped")
            np.testing.assert_array_equal(seen[b * threads : (b + 1) * threads], expected)


def test_items_beyond_the_valid_ones_are_kept():
    @coop.jit(threads=1)
    def kernel(x, out):
        own = coop.ThreadData(2, np.float64)
        own[0] = own[1] = 7
        coop.load(coop.this_block(), x, own, valid_items=3)
        coop.store(coop.this_block(), out, own)

    out = np.zeros(6)
    kernel[1, 3](np.arange(3.0), out)
    assert out.tolist() == [0, 1, 2, 7, 7, 7]
    with pytest.raises(KernelIndexError, match=r"coop.store: the tile extends past the end of target.*") as caught:
        kernel[1, 3](np.arange(3.0), np.zeros(5))
    assert caught.value.filename == __file__


@functools.cache
def exchanger(mode, items, warp_size):
    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(x, out):
        own = coop.ThreadData(items, np.float32)
        for k in range(items):
            own[k] = x[coop.threadIdx.x, k]
        result = coop.exchange(coop.this_block(), own, mode)
        for k in range(items):
            out[coop.threadIdx.x, k] = result[k]

    return kernel


@pytest.mark.parametrize(
    "mode", ["blocked_to_striped", "striped_to_blocked", "blocked_to_warp_striped", "warp_striped_to_blocked"]
)
def test_exchange(mode, rng):
    before, after = mode.split("_to_")
    for threads in THREADS:
        x = rng.standard_normal((threads, 3)).astype(np.float32)
        out = np.zeros_like(x)
        exchanger(mode, 3, 32)[1, threads](x, out)
        np.testing.assert_array_equal(out, primitives.exchange_oracle(x, before, after, 32))


@pytest.mark.parametrize("after", ["blocked", "striped"])
def test_scatter(after, rng):
    mode = f"scatter_to_{after}"

    @coop.jit(threads=1)
    def kernel(x, ranks, out):
        own, places = coop.ThreadData(2, np.float64), coop.ThreadData(2, np.int64)
        for k in range(2):
            own[k], places[k] = x[coop.threadIdx.x, k], ranks[coop.threadIdx.x, k]
        result = coop.exchange(coop.this_block(), own, mode, ranks=places)
        for k in range(2):
            out[coop.threadIdx.x, k] = result[k]

    x, ranks = rng.standard_normal((40, 2)), rng.permutation(80).reshape(40, 2)
    out = np.zeros_like(x)
    kernel[1, 40](x, ranks, out)
    flat = np.empty(80)
    flat[ranks] = x
    np.testing.assert_array_equal(out, flat[primitives.arrangement(after, 40, 2, 64)])
    ranks[3, 1] = 80
    with pytest.raises(KernelIndexError, match="an index in ranks is outside the group"):
        kernel[1, 40](x, ranks, out)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("coop.shuffle(coop.this_block(), x[0], 'left', 1)", "mode is 'left'; it must be one of: up"),
        ("coop.shuffle(coop.this_block(), x[0], 'up', 1.5)", "distance is float64; it must be an integer"),
        ("coop.shuffle(coop.this_block(), coop.ThreadData(2, np.int64), 'up', 1)", "value is a ThreadData"),
        ("coop.ballot(coop.this_block(), x[0] > 0)", "pass coop.this_warp"),
        ("coop.load(coop.this_block(), x, x)", "out is an array"),
        ("coop.load(coop.this_block(), x, coop.ThreadData(2, np.float64), algorithm='fast')", "must be one of: direct"),
        (
            "coop.load(coop.this_block(), x, coop.ThreadData(2, np.float64), oob_default=1)",
            "is used only with valid_items=",
        ),
        ("coop.load(coop.this_block(), 1, coop.ThreadData(2, np.float64))", "an array of one dimension"),
        ("coop.exchange(coop.this_block(), coop.ThreadData(2, np.int64), 'scatter_to_blocked')", "which needs ranks"),
    ],
)
def test_wrong_calls(statement, message, tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text(
        f"import numpy as np\nfrom rocpy import cooperative as coop\n\n\ndef kernel(x):\n    y = {statement}\n"
    )
    names = {"__name__": "kernels"}
    exec(compile(source.read_text(), str(source), "exec"), names)
    with pytest.raises(KernelTypeError, match=message):
        coop.jit(names["kernel"])[1, 1](np.zeros(4))
