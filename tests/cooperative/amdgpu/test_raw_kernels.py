# SPDX-License-Identifier: MIT
"""The C++ API of the device library: raw kernels, compiled for AMD GPUs and run on the emulator, against numpy."""

import functools
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no compiler for AMD GPUs: pip install ziglang", allow_module_level=True)

import raw_kernels
from amdgpu_code import compiled
from raw_kernels import TYPES, codes, ordered_bits

from rocpy import cooperative as coop
from rocpy.cooperative.amdgpu import device_library
from rocpy.testing import amdgpu
from rocpy.testing.tolerance import gamma, ulp

LANES = {"gfx942": 64, "gfx1201": 32}
# Items of a thread, then doubling distances in rows of 16, rows of a wave, waves of a block, a value before them all.
STEPS = 5 + 4 + 2 + 5 + 2


class Case:
    """Kernels for a type, items of a thread and a group, and random operands for them."""

    def __init__(self, arch, kind, items, group, threads):
        self.arch, self.items, self.threads, self.dtype = arch, items, threads, TYPES[kind]
        most = max(threads, 64)
        options = ("-I", str(device_library.header_folder()))
        self.code = compiled(raw_kernels.source(kind, items, group, most), arch, *options)
        width = int(group[5:-1]) if group.startswith("Tile") else threads
        self.groups = [(first, min(width, threads - first)) for first in range(0, threads, width)]
        rng = np.random.default_rng(threads + items)
        n = threads * items
        self.x = rng.integers(0, 60, n).astype(self.dtype)
        if self.dtype.kind not in "iu":
            self.x = ((rng.integers(-60, 60, n)) / 4).astype(self.dtype)
            self.x[::13] = -0.0
        self.aux = np.concatenate([rng.permutation(size * items) for _, size in self.groups]).astype(np.int32)
        self.mod = self.aux % 30

    def run(self, name, n=0xFFFFFFFF, x=None, aux=None):
        x = self.x if x is None else x
        view = f"u{self.dtype.itemsize}"
        out, also = np.zeros(x.size, view), np.zeros(max(x.size, 3 * self.threads), np.int32)
        given = self.aux if aux is None else np.ascontiguousarray(aux, np.int32)
        amdgpu.run(self.code, name, 1, self.threads, x.view(view), given, out, also, np.uint32(n))
        return out.view(self.dtype), also

    def segments(self, array, each=None):
        each = self.items if each is None else each
        return [array[first * each : (first + size) * each] for first, size in self.groups]

    def each(self, seen, function, *given):
        """Compare what the groups made with a function of what they were given."""
        parts = zip(self.segments(seen), *(self.segments(one) for one in given), strict=True)
        for place, (got, *operands) in enumerate(parts):
            np.testing.assert_array_equal(got, np.asarray(function(*operands)).astype(got.dtype), err_msg=str(place))


# Type, items of a thread, group, threads.
FEW = [("float", 4, "Block<256>", 256), ("_Float16", 3, "Tile<16>", 100)]
GROUPS = [
    (1, "Block<>", 70),
    (3, "Block<128>", 128),
    (4, "Block<64>", 64),
    (2, "Tile<8>", 61),
    (5, "Tile<32>", 96),
    (1, "Block<>", 1),
    (2, "Block<>", 512),
]
ALL = [(kind, *group) for kind in TYPES for group in GROUPS]
CASES = [(arch, *size) for arch in LANES for size in FEW]
CASES += [pytest.param((arch, *size), marks=pytest.mark.slow) for arch in LANES for size in ALL]
CASES += [pytest.param(("gfx942", kind, 4, "Tile<64>", 200), marks=pytest.mark.slow) for kind in TYPES]


@functools.cache
def made(*parameters):
    return Case(*parameters)


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case)), scope="module")
def case(request):
    return made(*request.param)


def stable(keys, descending=False):
    return np.argsort(-codes(keys) if descending else codes(keys), kind="stable")


def test_sorts(case):
    n = max(1, 3 * case.items * case.groups[0][1] // 4)
    out, _ = case.run("merge")
    case.each(out.view(f"u{out.itemsize}"), lambda x: x[stable(x)].view(f"u{x.itemsize}"), case.x)
    out, also = case.run("merge_down", n)

    def order(x):
        return np.concatenate([stable(x[:n], descending=True), np.arange(min(n, len(x)), len(x))])

    case.each(also[: case.x.size], order, case.x)
    case.each(out, lambda x: x[order(x)], case.x)
    out, _ = case.run("radix")
    case.each(out, lambda x: x[np.argsort(ordered_bits(x), kind="stable")], case.x)


def test_radix_sorts_of_some_bits(case):
    bits = 8 * case.dtype.itemsize
    for begin, end in ((0, bits), (bits // 2 - 1, bits - 2), (3, 3)):
        mask = np.uint64((1 << (end - begin)) - 1)

        def digits(x, begin=begin, mask=mask):
            return (ordered_bits(x) >> np.uint64(begin) & mask).astype(np.int64) ^ np.int64(-(2**63))

        aux = np.array([begin, end])
        out, also = case.run("radix_down", aux=aux)
        case.each(also[: case.x.size], lambda x: np.argsort(~digits(x), kind="stable"), case.x)
        case.each(out, lambda x: x[np.argsort(~digits(x), kind="stable")], case.x)
        _, also = case.run("ranks", aux=aux)
        case.each(also[: case.x.size], lambda x: np.argsort(np.argsort(digits(x), kind="stable")), case.x)


def test_nans_are_the_greatest():
    case = Case("gfx942", "float", 4, "Block<256>", 256)
    x = case.x.copy()
    x[5::97] = np.nan
    out, _ = case.run("merge", x=x)
    np.testing.assert_array_equal(out, np.sort(x))
    _, also = case.run("merge_down", x=x)
    np.testing.assert_array_equal(also[: x.size], stable(x, descending=True))


def test_top_k(case):
    total = case.items * min(size for _, size in case.groups)
    for k in {1, min(5, total), total}:
        out, also = case.run("top_max", k)
        for got, places, x in zip(case.segments(out), case.segments(also), case.segments(case.x), strict=True):
            wanted = stable(x, descending=True)[:k]
            np.testing.assert_array_equal(places[:k], wanted)
            np.testing.assert_array_equal(got[:k], x[wanted])
        valid = max(1, total // 2)
        out, _ = case.run("top_min", k, aux=np.array([valid]))
        for got, x in zip(case.segments(out), case.segments(case.x), strict=True):
            best = x[:valid][stable(x[:valid])][:k]
            np.testing.assert_array_equal(got[: len(best)], best)


def striped(x, size):
    return x.reshape(size, -1).T.ravel()


def blocked(x, size):
    return x.reshape(-1, size).T.ravel()


def test_memory_and_exchanges(case):
    items = case.items
    n = max(1, 2 * items * case.groups[0][1] // 3)
    out, _ = case.run("by_lds", n)
    case.each(out, lambda x: np.where(np.arange(len(x)) < n, x, np.array(7, x.dtype)), case.x)
    out, _ = case.run("by_waves", n)
    case.each(out, lambda x: np.where(np.arange(len(x)) < n, x, np.array(0, x.dtype)), case.x)
    for name, function in (
        ("by_quads", lambda x: striped(x, len(x) // items)),
        ("quads_out", lambda x: blocked(x, len(x) // items)),
        ("to_striped", lambda x: blocked(x, len(x) // items)),
        ("from_striped", lambda x: striped(x, len(x) // items)),
    ):
        out, _ = case.run(name)
        case.each(out, function, case.x)
    width = LANES[case.arch]

    def by_waves(x, function):
        step = width * items
        return np.concatenate(
            [function(x[k : k + step], len(x[k : k + step]) // items) for k in range(0, len(x), step)]
        )

    out, _ = case.run("to_warp_striped")
    case.each(out, lambda x: by_waves(x, blocked), case.x)
    out, _ = case.run("from_warp_striped")
    case.each(out, lambda x: by_waves(x, striped), case.x)


def test_scatters(case):
    def scattered(x, ranks):
        made = np.empty_like(x)
        made[ranks] = x
        return made

    out, _ = case.run("scatter")
    case.each(out, scattered, case.x, case.aux)
    out, _ = case.run("scatter_striped")
    case.each(out, lambda x, ranks: blocked(scattered(x, ranks), len(x) // case.items), case.x, case.aux)
    for name in ("scatter_guarded", "scatter_flagged"):
        out, _ = case.run(name)
        for got, x, ranks in zip(*map(case.segments, (out, case.x, case.aux)), strict=True):
            numbers = blocked(np.arange(len(x)), len(x) // case.items)
            kept = numbers % 2 == 0  # of the others there is none
            np.testing.assert_array_equal(got[kept], scattered(x, ranks)[numbers][kept])


def test_histograms(case):
    aux = case.mod - 3
    _, also = case.run("histogram", aux=aux)
    for (first, size), items in zip(case.groups, case.segments(aux), strict=True):
        bins = min(24, 3 * size)
        wanted = np.bincount(items[(items >= 0) & (items < bins)], minlength=3 * size)
        np.testing.assert_array_equal(also[3 * first : 3 * (first + size)], wanted[: 3 * size])


def test_neighbours(case):
    x = case.x
    one = np.ones(1, bool)

    def edges(part, before=None, after=None):
        changes = part[1:] != part[:-1]
        first = one if before is None else one & (before != part[0])
        last = one if after is None else one & (part[-1] != after)
        return np.concatenate([first, changes]) + 2 * np.concatenate([changes, last])

    x = np.repeat(x[::3], 3)[: x.size].copy()
    x = np.concatenate([x, case.x[: case.x.size - x.size]])
    _, also = case.run("edges", x=x)
    case.each(also[: x.size], edges, x)
    _, also = case.run("edges_beside", x=x)
    case.each(also[: x.size], lambda part: edges(part, x[0], x[0]), x)
    n = max(1, case.items * case.groups[0][1] - 2)

    def left(part):
        made = part.copy()
        made[1:n] = part[1:n] - part[: min(n, len(part)) - 1]
        return made

    def right(part):
        made, last = part.copy(), min(n, len(part)) - 1
        made[:last] = part[:last] - part[1 : last + 1]
        made[last] = (part[last : last + 1] - x[:1])[0]
        return made

    case.each(case.run("left", n, x=x)[0], left, x)
    case.each(case.run("right", n, x=x)[0], right, x)


def test_runs(case):
    window = 3
    out, places = case.run("runs", window)
    into, _ = case.run("runs_into")
    for got, numbers, all_of_them, x, aux in zip(
        *map(case.segments, (out, places, into, case.x, case.aux)), strict=True
    ):
        decoded = x[aux % 2 == 1]
        np.testing.assert_array_equal(all_of_them[: len(decoded)], decoded)
        part = decoded[window:]
        np.testing.assert_array_equal(got[: len(part)], part)
        np.testing.assert_array_equal(numbers, np.where(np.arange(len(x)) < len(part), 0, -1))


def sum_bound(x, dtype):
    """How far a sum may be: at most so many roundings to the type lie on the way of a value through the trees."""
    if dtype.kind in "iu":
        return 0
    wide = np.abs(x.astype(np.float64)).sum()
    return gamma(STEPS, float(ulp(np.ones(1), dtype)[0]) / 2) * wide


def test_reductions_and_scans(case):
    n = max(1, case.items * case.groups[0][1] - 3)
    out, _ = case.run("reduce", n)
    for got, x in zip(case.segments(out), case.segments(case.x), strict=True):
        first = x[:: case.items]
        total = x[:n].astype(np.float64).sum()
        assert np.abs(got[:: case.items].astype(np.float64) - exact(total, case.dtype)).max() <= sum_bound(
            x, case.dtype
        )
        results = {1: x.min(), 2: first[:n].max(), 3: x[3 :: case.items].max() if case.items > 3 else None}
        for k in range(1, case.items):
            if k % 4:
                np.testing.assert_array_equal(got[k :: case.items], results[k % 4])
    for name, before in (("scan", None), ("scan_from", 3), ("scan_after", 5)):
        out, also = case.run(name)
        for (first, _), got, x in zip(case.groups, case.segments(out), case.segments(case.x), strict=True):
            wide = x.astype(np.float64)
            sums = np.cumsum(wide)
            wanted = sums if before is None else sums - wide + before
            bound = sum_bound(np.append(x, x.dtype.type(8)), case.dtype)
            assert np.abs(got.astype(np.float64) - exact(wanted, case.dtype)).max() <= bound
            if name != "scan_from" and case.dtype.itemsize > 2:
                assert abs(also[first] - np.trunc(sums[-1])) <= bound + 1


def exact(value, dtype):
    """Return a sum as it is, or as integers of few bits wrap."""
    return np.asarray(value).astype(np.int64).astype(dtype).astype(np.float64) if dtype.kind in "iu" else value


def test_votes_and_shuffles(case):
    _, also = case.run("votes")
    for got, aux in zip(case.segments(also), case.segments(case.aux), strict=True):
        first = aux[:: case.items]
        np.testing.assert_array_equal(got[:: case.items], (first == 3).any() + 2)
    n = min(3, min(size for _, size in case.groups) - 1)
    out, _ = case.run("shuffles", n)
    for got, x in zip(case.segments(out), case.segments(case.x), strict=True):
        size = len(x) // case.items
        rank = np.arange(size)
        sources = [rank - n, (rank + n) % size, rank ^ n, np.full(size, n)]
        for k in range(min(4, case.items)):
            source = np.where((sources[k] >= 0) & (sources[k] < size), sources[k], rank)
            np.testing.assert_array_equal(got[k :: case.items], x[k :: case.items][source])


def test_the_headers_are_those_of_the_folder():
    assert set(coop.headers()) == {path.name for path in device_library.header_folder().glob("*.h")}


HIP = """
#define __global__ __attribute__((global))
#define DEVICE static __attribute__((device))
struct Thread {
  __attribute__((device)) operator unsigned() const { return __builtin_amdgcn_workitem_id_x(); }
};
struct Group_ {
  __attribute__((device)) operator unsigned() const { return __builtin_amdgcn_workgroup_id_x(); }
};
DEVICE struct { Thread x; } threadIdx;
DEVICE struct { Group_ x; } blockIdx;
"""


def test_the_guides_examples():
    """They compile, and the eight best logits are found."""
    page = Path(__file__).parents[3] / "docs/guides/kernels-on-amd.md"
    texts = re.findall(r"```c\+\+\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(texts) == 2
    made = [compiled(HIP + text, "gfx1201", "-I", str(device_library.header_folder())) for text in texts]
    logits = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float16)
    places = np.zeros((3, 8), np.int32)
    amdgpu.run(made[1], "best", 3, 256, logits, places, np.uint32(1000))
    np.testing.assert_array_equal(places, np.argsort(-logits, axis=1, kind="stable")[:, :8])
