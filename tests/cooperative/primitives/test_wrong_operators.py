# SPDX-License-Identifier: MIT
"""Functions that a primitive cannot use as `op` or `prefix`: the error names it, the argument, and what is accepted."""

import re

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelTypeError


def one(a):
    return a


CALLS = {
    "reduce": "coop.reduce(block, x[i], {})",
    "reduce_batched": "coop.reduce_batched(block, items, {})[0]",
    "inclusive_scan": "coop.inclusive_scan(block, x[i], {})",
    "exclusive_scan": "coop.exclusive_scan(block, items, {}, initial=0)[0]",
    "merge_sort_keys": "coop.merge_sort_keys(block, x[i], {})",
    "merge_sort_pairs": "coop.merge_sort_pairs(block, items, items, {})[0][0]",
    "discontinuity": "coop.discontinuity(block, x[i], 'heads', {})",
    "adjacent_difference": "coop.adjacent_difference(block, x[i], 'left', {})",
}
WRONG = {
    "one": "the function one, which cannot be called with (int64, int64): a function of (a) is called with",
    "lambda a: a": "a lambda, which cannot be called with (int64, int64): a function of (a) is called with",
    "np.sin": "np.sin, which cannot be called with (int64, int64); pass",
    "len": "the function len, which cannot be called with (int64, int64); pass",
    "np.divmod": "np.divmod, which returns UniTuple(int64 x 2) of (int64, int64); it must return",
    "lambda a, b: (a, b)": "a lambda, which returns UniTuple(int64 x 2) of (int64, int64); it must return",
    "lambda a, b: 'a'": "a lambda, which returns unicode_type of (int64, int64); it must return",
    "lambda a, b: a.foo": "a lambda, which cannot be called with (int64, int64): int64 has no attribute 'foo'",
}
# Each call with one wrong function, and each wrong function in one call.
CASES = [*((name, "one") for name in CALLS), *(("reduce", each) for each in WRONG if each != "one")]


def _refusal(call, tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(
        f"""def kernel(x, out):
    block, i = coop.this_block(), coop.threadIdx.x
    state, items = coop.shared.array(1, np.int64), coop.ThreadData(1, np.int64)
    items[0] = x[i]
    out[i] = {call}
"""
    )
    names = {"coop": coop, "np": np, "one": one}
    exec(compile(path.read_text(), str(path), "exec"), names)
    with pytest.raises(KernelTypeError) as raised:
        coop.jit(cache=False)(names["kernel"])[1, 2](np.arange(2), np.zeros(2, int))
    assert str(raised.value).endswith(f"({path}:5)")
    return str(raised.value)


@pytest.mark.parametrize(("name", "function"), CASES)
def test_operators(name, function, tmp_path):
    said = _refusal(CALLS[name].format(function), tmp_path)
    assert f"{name}: op is {WRONG[function]}" in said
    assert re.search(r"; (pass .* a Python function of two (values|keys|items)|it must return int64) \(", said)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("one", "cannot be called with (array(int64, 1d, C), int64)"),
        ("lambda state, total: 'a'", "returns unicode_type of (array(int64, 1d, C), int64); it must return int64"),
    ],
)
def test_a_prefix(function, reason, tmp_path):
    said = _refusal(f"coop.inclusive_sum(block, x[i], prefix={function}, state=state)", tmp_path)
    assert "inclusive_sum: prefix is" in said
    assert reason in said
