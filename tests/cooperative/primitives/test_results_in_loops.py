# SPDX-License-Identifier: MIT
"""A primitive whose value is its own result of the iteration before."""

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.testing import amdgpu

_X = np.array([5, 1, 4, 2, 8, 7, 3, 6])
_LEAST = np.iinfo(np.int64).min


def _differences(x):
    return np.r_[x[0], np.diff(x)]


# What a call makes of all items in order: two of each of four threads.
_PLAIN = {
    "coop.exclusive_sum(b, a)": lambda x: np.r_[0, np.cumsum(x)[:-1]],
    'coop.exclusive_scan(b, a, "max")': lambda x: np.r_[_LEAST, np.maximum.accumulate(x)[:-1]],
    "coop.adjacent_difference(b, a)": _differences,
    "coop.adjacent_difference(b, a, valid_items=5)": lambda x: np.r_[_differences(x[:5]), x[5:]],
    'coop.exchange(b, a, "blocked_to_striped")': lambda x: x.reshape(2, 4).T.ravel(),
}
_DEBUG = _PLAIN | {
    "coop.inclusive_sum(b, a)": np.cumsum,
    "coop.broadcast(b, a, 1)": lambda x: np.tile(x[2:4], 4),
    "coop.radix_sort_keys(b, a)": np.sort,
    'coop.reduce_batched(b, a, "+", all=True)': lambda x: np.tile(x.reshape(4, 2).sum(0), 4),
}


def _kernel(calls, *, debug=False):
    lines = [
        f"""
    a[0] = x[2 * i]; a[1] = x[2 * i + 1]
    for _ in range(n):
        a = {call}
    o[{row}, 2 * i] = a[0]; o[{row}, 2 * i + 1] = a[1]
"""
        for row, call in enumerate(calls)
    ]
    names = {"coop": coop, "np": np}
    begin = "def kernel(x, o, n):\n    i, b, a = coop.threadIdx.x, coop.this_block(), coop.ThreadData(2, np.int64)\n"
    exec(begin + "".join(lines), names)
    return coop.jit(debug=debug)(names["kernel"])


def _wanted(calls):
    return {call: make(make(_X)).tolist() for call, make in calls.items()}


@pytest.mark.parametrize("debug", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_result_that_is_the_next_value(debug):
    calls = _DEBUG if debug else _PLAIN
    out = np.zeros((len(calls), 8), np.int64)
    _kernel(calls, debug=debug)[1, 4](_X, out, 2)
    assert dict(zip(calls, out.tolist(), strict=True)) == _wanted(calls)


def test_a_result_that_is_the_next_value_on_gpus():
    code = coop.compile(_kernel(_PLAIN), "void(int64[::1],int64[:,::1],int64)", threads=64)
    out = np.zeros((len(_PLAIN), 8), np.int64)
    amdgpu.run(code.code, code.name, 1, 4, _X, 8, 8, out, *out.shape, *out.strides, np.int64(2))
    assert dict(zip(_PLAIN, out.tolist(), strict=True)) == _wanted(_PLAIN)


def test_two_results_that_are_each_other_s_next_values():
    @coop.jit
    def kernel(x, o, n):
        i, b = coop.threadIdx.x, coop.this_block()
        a, c = coop.ThreadData(2, np.int64), coop.ThreadData(2, np.int64)
        a[0], a[1], c[0], c[1] = x[2 * i], x[2 * i + 1], -x[2 * i], -x[2 * i + 1]
        for _ in range(n):
            c, a = coop.merge_sort_pairs(b, a, c)
        o[0, 2 * i], o[0, 2 * i + 1], o[1, 2 * i], o[1, 2 * i + 1] = a[0], a[1], c[0], c[1]

    out = np.zeros((2, 8), np.int64)
    kernel[1, 4](_X, out, 2)
    assert out.tolist() == [np.sort(_X)[::-1].tolist(), np.sort(-_X).tolist()]


@pytest.mark.parametrize("debug", [False, True])
def test_a_structured_result_that_is_the_next_value(debug):
    pair = np.dtype([("a", np.int64), ("b", np.int64)])

    @coop.jit(debug=debug)
    def kernel(x, out):
        i = coop.threadIdx.x
        value = x[i]
        for j in range(2):
            value = coop.broadcast(coop.this_block(), value, 3 - 3 * j)
        out[i] = value

    x, out = np.array([(1, 2), (3, 4), (5, 6), (7, 8)], pair), np.zeros(4, pair)
    kernel[1, 4](x, out)
    assert out.tolist() == [(7, 8)] * 4
