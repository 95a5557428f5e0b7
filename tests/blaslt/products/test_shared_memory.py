# SPDX-License-Identifier: MIT
"""Results that share memory with what is read, or with one another, are refused before anything is written."""

import ml_dtypes
import numpy as np
import pytest

import rocpy

REFUSED = rocpy.InvalidOperandError


def _bytes(seed, *shape):
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.int8)


def _float8(*shape):
    return np.ones(shape, ml_dtypes.float8_e4m3fn)


def _scale_of_columns(out):
    return {"scale_a": 1.0, "scale_b": out[:1]}


def _scale_of_rows(out):
    return {"scale_a": out[:, :1], "scale_b": 1.0}


def _one_scale(out):
    return {"scale_a": out[3:4, 5:6].reshape(()), "scale_b": 1.0}


# Scales that are not adjacent are copied before anything is written.
@pytest.mark.parametrize(
    ("scales", "order"), [(_scale_of_columns, "C"), (_scale_of_rows, "F"), (_one_scale, "C"), (_one_scale, "F")]
)
@pytest.mark.parametrize("operand", [_float8, lambda *shape: _bytes(0, *shape)], ids=["float8", "int8"])
def test_out_and_a_scale(scales, operand, order):
    a, b = operand(16, 8), operand(8, 16)
    out = np.ones((16, 16), np.float32, order=order)
    before = out.copy()
    with pytest.raises(REFUSED, match="out shares memory with scale_"):
        rocpy.matmul(a, b, **scales(out), dtype="float32", out=out)
    product = rocpy.Matmul(a, b, **scales(out), dtype="float32")
    if rocpy.platform.current().host_memory:  # elsewhere a plan reads copies
        with pytest.raises(REFUSED, match="out shares memory with scale_"):
            product.execute(out=out)
    np.testing.assert_array_equal(out, before)
    other = np.empty_like(out)
    assert product.execute(out=other) is other


def test_out_and_the_scale_of_a_group():
    out = np.ones((5, 16), np.float32)
    scale = out.reshape(-1)[:2].reshape(2, 1, 1)
    settings = {"scale_b": 1.0, "dtype": "float32", "out": out}
    with pytest.raises(REFUSED, match="out shares memory with scale_a"):
        rocpy.grouped_matmul(_float8(5, 16), np.ones((2, 16, 16), ml_dtypes.float8_e4m3fn), offsets=[0, 2, 5],
                             scale_a=scale, **settings)  # fmt: skip
    outs = [np.ones((4, 4), np.float32) for _ in range(2)]
    with pytest.raises(REFUSED, match=r"out\[0\] shares memory with scale_b\[1\]"):
        rocpy.grouped_matmul([_float8(4, 4)] * 2, [_float8(4, 4)] * 2, scale_a=1.0, scale_b=[1.0, outs[0][:1]],
                             dtype="float32", out=outs)  # fmt: skip


def _groups():
    rng = np.random.default_rng(0)
    return {name: [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(3)] for name in ("a", "b", "out")}


@pytest.mark.parametrize("name", ["a", "b", "bias"])
@pytest.mark.parametrize(("written", "read"), [(0, 1), (2, 0), (1, 1)])
def test_a_result_is_no_operand_of_another_group(name, written, read):
    groups = _groups()
    bias = [np.zeros(4, np.float32) for _ in range(3)]
    settings = {"epilogue": "bias", "bias": bias}
    if name == "bias":
        bias[read] = groups["out"][written][1]
    else:
        groups["out"][written] = groups[name][read]
    match = (
        f"out shares memory with {name}"
        if written == read
        else rf"out\[{written}\] shares memory with {name}\[{read}\]"
    )
    with pytest.raises(REFUSED, match=match):
        rocpy.grouped_matmul(groups["a"], groups["b"], out=groups["out"], **settings)


def test_results_of_groups_share_no_memory():
    groups = _groups()
    whole = np.zeros((9, 4), np.float32)
    for outs, pair in (
        ([whole[:4], whole[3:7], groups["out"][0]], r"out\[0\] and out\[1\]"),
        ([groups["out"][0], whole[:4], whole[:4]], r"out\[1\] and out\[2\]"),
        ([whole[:4].T, groups["out"][0], whole[2:6]], r"out\[0\] and out\[2\]"),
    ):
        with pytest.raises(REFUSED, match=f"{pair} share memory"):
            rocpy.grouped_matmul(groups["a"], groups["b"], out=outs)
    assert not whole.any()


@pytest.mark.parametrize("place", ["rows", "columns", "columns of F", "every third column", "among operands"])
def test_results_of_groups_may_lie_in_one_array(place):
    groups = _groups()
    whole = np.zeros((12, 12), np.float32, order="F" if place == "columns of F" else "C")
    if place == "rows":
        outs = [whole[:4, :4], whole[4:8, :4], whole[8:, :4]]
    elif place == "every third column":
        outs = [whole[:4, i::3] for i in range(3)]
    else:
        outs = [whole[:4, :4], whole[:4, 4:8], whole[:4, 8:]]
    if place == "among operands":
        outs[1], operand = groups["out"][1], outs[1]
        operand[...] = groups["b"][0]
        groups["b"][0] = operand
        outs[0] = groups["out"][0]
    rocpy.grouped_matmul(groups["a"][:1], groups["b"], out=outs)
    for out, b in zip(outs, groups["b"], strict=True):
        np.testing.assert_allclose(out, groups["a"][0] @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["a", "b", "bias"])
def test_the_result_of_groups_in_one_array_is_no_operand(name):
    whole = np.ones((3, 4, 4), np.float32)
    operands = {
        "a": np.ones((4, 4), np.float32),
        "b": np.ones((2, 4, 4), np.float32),
        "bias": np.ones((2, 4), np.float32),
    }
    operands[name] = {"a": whole[0], "b": whole[:2], "bias": whole[0, 2:]}[name]
    with pytest.raises(REFUSED, match=f"out shares memory with {name}"):
        rocpy.grouped_matmul(
            operands.pop("a"), operands.pop("b"), offsets=[0, 2, 4], epilogue="bias", out=whole[0], **operands
        )
    assert (whole == 1).all()


@rocpy.epilogue
def both(x, r):
    return x * 2, x + r


def test_results_of_an_epilogue_share_no_memory():
    a, whole = np.ones((4, 4), np.float32), np.zeros((5, 4), np.float32)
    for outs in ((whole[:4], whole[1:]), (whole[:4], whole[:4].T), (whole[1:], whole[:4])):
        with pytest.raises(REFUSED, match="results 0 and 1 share memory"):
            rocpy.matmul(a, a, epilogue=both, epilogue_inputs={"r": a}, out=outs)
        with pytest.raises(REFUSED, match="results 0 and 1 share memory"):
            rocpy.Matmul(a, a, epilogue=both, epilogue_inputs={"r": a}).execute(out=outs)
    assert not whole.any()


SIDES = {
    "columns": (lambda z: z[:, 4:], lambda z: z[:, :4]),
    "every second column": (lambda z: z[:, ::2], lambda z: z[:, 1::2]),
    "rows": (lambda z: z.T[4:].T, lambda z: z.T[:4].T),
}


def _written(form, a, b, out, **keywords):
    if form == "plan":
        with rocpy.Matmul(a, b, **keywords) as planned:
            return planned.execute(out=out)
    return rocpy.matmul(a, b, out=out, **keywords)


@pytest.mark.parametrize("form", ["function", "plan"])
@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "aux"])
def test_out_beside_an_operand_in_one_array(form, sides, name):
    one, other = SIDES[sides]
    z = np.arange(32, dtype=np.float32).reshape(4, 8)
    operands = {"a": np.eye(4, dtype=np.float32), "b": np.eye(4, dtype=np.float32)}
    keywords = {"bias": {"epilogue": "bias"}, "aux": {"epilogue": "drelu"}}.get(name, {})
    operands[name] = one(z)[0] if name == "bias" else one(z)
    plain = {key: value.copy() for key, value in operands.items()}
    out = other(z)
    wanted = rocpy.matmul(plain.pop("a"), plain.pop("b"), **plain, **keywords)
    before = one(z).copy()
    assert _written(form, operands.pop("a"), operands.pop("b"), out, **operands, **keywords) is out
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(one(z), before)


@pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="there a plan reads copies, which out is apart from"
)
@pytest.mark.parametrize("form", ["function", "plan"])
def test_out_beside_an_operand_that_it_shares_one_column_with(form):
    z = np.ones((4, 8), np.float32)
    with pytest.raises(REFUSED, match="^out shares memory with a"):
        _written(form, z[:, 3:7], np.eye(4, dtype=np.float32), z[:, :4])


def test_out_beside_scales_in_one_array():
    z = np.ones((4, 8), np.float32)
    a = _float8(4, 4)
    rocpy.matmul(a, a, scale_a=z[:, 7], scale_b=1.0, dtype="float32", out=z[:, :4])
    np.testing.assert_array_equal(z[:, :4], 4)


@pytest.mark.skipif(
    not rocpy.platform.current().host_memory, reason="there a plan reads copies, which out is apart from"
)
@pytest.mark.parametrize("form", ["function", "plan"])
@pytest.mark.parametrize("name", ["a", "b"])
def test_out_is_no_operand_that_is_copied(form, name):
    operand = np.arange(64, dtype=np.float32).reshape(8, 8)[:4, ::2]  # of no layout that libraries take
    operands = {"a": np.eye(4, dtype=np.float32), "b": np.eye(4, dtype=np.float32), name: operand}
    before = operand.copy()
    with pytest.raises(REFUSED, match=f"^out shares memory with {name}"):
        _written(form, operands["a"], operands["b"], operand)
    np.testing.assert_array_equal(operand, before)


def test_axes_of_out_that_interleave():
    a, b = np.ones((5, 2), np.float32), np.ones((2, 3), np.float32)
    out = np.lib.stride_tricks.as_strided(np.zeros(100, np.float32), (5, 3), (48, 32))
    with pytest.raises(REFUSED, match=r"^out: .* has elements that share memory, or axes that interleave"):
        rocpy.matmul(a, b, out=out)
