# SPDX-License-Identifier: MIT
"""Structured and complex values as payloads: operators on them, moves, sorts; types that are not served."""

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelTypeError, UninitializedResultError

BEST = np.dtype([("score", np.float32), ("place", np.int32)])
MOMENTS = np.dtype([("count", np.float64), ("mean", np.float64), ("spread", np.float64)])
ODD = np.dtype([("a", np.uint8), ("b", np.uint16)])  # three bytes: no alignment


def better(a, b):
    return a if a.score >= b.score else b


def merged(a, b, out):
    """Moments of two samples together: an operator that makes a value of its own."""
    count = a.count + b.count
    step = b.mean - a.mean
    out.count = count
    out.mean = a.mean + step * b.count / count
    out.spread = a.spread + b.spread + step * step * a.count * b.count / count


@pytest.mark.parametrize("threads", [1, 33, 100])
def test_reduce_of_structured_values(threads, rng):
    @coop.jit(threads=1)
    def kernel(x, best, moments):
        i = coop.threadIdx.x
        own = coop.local.array(1, BEST)
        own[0].score, own[0].place = x[i], i
        found = coop.reduce(coop.this_block(), own[0], better, all=True)
        best[i] = found
        sample = coop.ThreadData(2, MOMENTS)
        for k in range(2):
            sample[k].count, sample[k].mean, sample[k].spread = 1.0, x[i] + k, 0.0
        whole = coop.reduce(coop.this_block(), sample, merged)
        if i == 0:
            moments[0] = whole

    x = rng.standard_normal(threads).astype(np.float32)
    best, moments = np.zeros(threads, BEST), np.zeros(1, MOMENTS)
    kernel[1, threads](x, best, moments)
    assert (best["place"] == x.argmax()).all()
    assert (best["score"] == x.max()).all()
    sample = np.concatenate([x, x + 1]).astype(np.float64)
    assert moments[0]["count"] == 2 * threads
    np.testing.assert_allclose(moments[0]["mean"], sample.mean(), rtol=1e-6)
    np.testing.assert_allclose(moments[0]["spread"] / len(sample), sample.var(), rtol=1e-6)


@pytest.mark.slow
def test_scan_of_structured_values(rng):
    @coop.jit(threads=1)
    def kernel(x, running, totals, tiles):
        i = coop.threadIdx.x
        value, total = coop.inclusive_scan(coop.this_block(), x[i], better, aggregate=True)
        # What was returned stays, though the group's memory is used again.
        again = coop.exclusive_scan(coop.this_block(), x[i], better, initial=x[0])
        running[i], totals[i], tiles[i] = value, total, again

    x = np.zeros(50, BEST)
    x["score"], x["place"] = rng.standard_normal(50), np.arange(50)
    running, totals, tiles = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    kernel[1, 50](x, running, totals, tiles)
    places = [int(x["score"][: i + 1].argmax()) for i in range(50)]
    assert running["place"].tolist() == places
    assert tiles["place"].tolist() == [0, *places[:-1]]
    assert (totals == x[places[-1]]).all()


def by_b(one, other):
    return one.b < other.b


@pytest.mark.parametrize("dtype", [ODD, np.complex64], ids=["structured", "complex"])
def test_moves_of_values_that_are_no_simple_numbers(dtype, rng):
    @coop.jit(threads=1, debug=True)
    def kernel(x, out):
        i = coop.threadIdx.x
        block = coop.this_block()
        items = coop.ThreadData(2, dtype)
        coop.load(block, x, items, algorithm="striped", valid_items=x.shape[0], oob_default=x[0])
        out[0, i] = coop.shuffle(block, items[0], "rotate", 1)
        out[1, i] = coop.broadcast(block, items[1], 3)
        items = coop.exchange(block, items, "striped_to_blocked")
        coop.store(block, out[2], items, valid_items=40)
        out[3, i] = coop.shuffle(coop.this_warp(8), items[0], "xor", 1)

    x = np.zeros(79, dtype)
    if dtype is ODD:
        x["a"], x["b"] = rng.integers(0, 99, 79), rng.integers(0, 9, 79)
    else:
        x[:] = rng.standard_normal(79) + 1j * rng.standard_normal(79)
    padded = np.append(x, x[:1])
    out = np.zeros((4, 40), dtype)
    kernel[1, 40](x, out)
    assert (out[0] == np.roll(padded[:40], -1)).all()
    assert (out[1] == padded[43]).all()
    assert (out[2] == padded[:40]).all()
    assert (out[3] == padded[::2][np.arange(40) ^ 1]).all()


@pytest.mark.slow
def test_sorts_of_structured_keys_and_values(rng):
    @coop.jit(threads=1)
    def kernel(x, merged, values, best):
        i = coop.threadIdx.x
        block = coop.this_block()
        merged[i] = coop.merge_sort_keys(block, x[i], by_b)
        _, values[i] = coop.radix_sort_pairs(block, x[i].b, x[i], descending=True)
        _, value = coop.topk_min_pairs(block, x[i].b, x[i], 5)
        if i < 5:
            best[i] = value

    x = np.zeros(60, ODD)
    x["a"], x["b"] = np.arange(60), rng.integers(0, 9, 60)
    out, values, best = np.zeros_like(x), np.zeros_like(x), np.zeros(5, ODD)
    kernel[1, 60](x, out, values, best)
    order = np.argsort(x["b"], kind="stable")
    assert (out == x[order]).all()
    assert (values == x[np.argsort(-x["b"].astype(int), kind="stable")]).all()
    assert (best == x[order[:5]]).all()


def differs(a, b):
    return a.b != b.b


@pytest.mark.slow
def test_neighbours_of_structured_values(rng):
    @coop.jit(threads=1)
    def kernel(x, flags, decoded):
        i = coop.threadIdx.x
        block = coop.this_block()
        flags[i] = coop.discontinuity(block, x[i], "heads", differs)
        coop.run_length_decode_into(block, decoded, x[i], i % 2)

    x = np.zeros(30, ODD)
    x["a"], x["b"] = np.arange(30), rng.integers(0, 2, 30)
    flags, decoded = np.zeros(30, np.int32), np.zeros(15, ODD)
    kernel[1, 30](x, flags, decoded)
    assert flags.tolist() == [1, *(x["b"][1:] != x["b"][:-1]).astype(int)]
    assert (decoded == x[1::2]).all()


def test_an_undefined_complex_result_is_noticed(rng):
    @coop.jit(threads=1, debug=True)
    def kernel(x, out):
        total = coop.sum(coop.this_block(), x[coop.threadIdx.x])
        out[coop.threadIdx.x] = total.real

    with pytest.raises(UninitializedResultError):
        kernel[1, 8](np.ones(8, np.complex128), np.zeros(8))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("coop.sum(coop.this_block(), x[0])", "op '\\+' is for numbers, and the value is structured"),
        ("coop.merge_sort_keys(coop.this_block(), x[0])", "which are not ordered"),
        ("coop.topk_max_keys(coop.this_block(), x[0], 2)", "which are not ordered"),
        ("coop.radix_sort_keys(coop.this_block(), x[0])", "are sorted by their bits"),
        ("coop.discontinuity(coop.this_block(), x[0])", "op '!=' is for numbers"),
        (
            "coop.histogram(coop.this_block(), x[0], bins=2, bins_per_thread=1)",
            "expected integers, the indices of bins",
        ),
        ("coop.match(coop.this_warp(), x[0])", "expected numbers"),
        ("coop.store(coop.this_block(), np.zeros(4), x[0])", "expected numbers for numbers"),
        ("coop.merge_sort_keys(coop.this_block(), 1, '=')", "op is '='"),
        ("coop.discontinuity(coop.this_block(), 1, 'heads', '==')", "op is '=='"),
        ("coop.discontinuity(coop.this_block(), 1, 'heads', tile_successor=1)", "not used with mode 'heads'"),
        ("coop.merge_sort_pairs(coop.this_block(), 1, coop.ThreadData(2, np.int64))", "must have 1 items per thread"),
        ("coop.run_length_decode(coop.this_block(), 1, 2.0, 4)", "lengths are float64; they must be integers"),
        ("coop.exchange(coop.this_block(), coop.ThreadData(2, np.int8), 'scatter_to_striped_flagged')", "needs ranks"),
    ],
)
def test_types_that_are_not_served(statement, message, tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text(
        f"import numpy as np\nfrom rocpy import cooperative as coop\n\n\ndef kernel(x):\n    y = {statement}\n"
    )
    names = {"__name__": "kernels"}
    exec(compile(source.read_text(), str(source), "exec"), names)
    with pytest.raises(KernelTypeError, match=message):
        coop.jit(names["kernel"])[1, 1](np.zeros(4, BEST))


def test_a_function_that_returns_thread_data_is_refused():
    def tile(x):
        items = coop.ThreadData(2, np.float64)
        coop.load(coop.this_block(), x, items)
        return items

    @coop.jit
    def kernel(x):
        x[0] = tile(x)[0]

    with pytest.raises(KernelTypeError, match=r"tile returns a ThreadData, which is valid only during the call"):
        kernel[1, 1](np.zeros(4))
