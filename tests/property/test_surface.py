# SPDX-License-Identifier: MIT
"""Random products of every type by every way in: one oracle, the same bits, and `supported` keeps its word."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocpy
from rocpy.blaslt import supported
from rocpy.testing import ORACLES, evaluate
from rocpy.testing.cases import EPILOGUES
from rocpy.testing.runner import check_outputs, dtype_of

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(max_examples=4000, deadline=None, suppress_health_check=[HealthCheck.too_slow])

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
REAL = ("float32", "float64", "float16", "bfloat16")
# Types of a, and the results that such a product gives, the default first.
RESULTS = {
    **{name: (name,) for name in ("float32", "float64", "complex64", "complex128")},
    **{name: (name, "float32") for name in ("float16", "bfloat16")},
    **dict.fromkeys(FLOAT8, ("bfloat16", "float32", "float16")),
    "int8": ("int32", "int8", "float32"),
}


@functools.cache
def types():
    """Types of a that the installed release has products of."""
    return tuple(name for name in RESULTS if supported(name))


extents = st.one_of(st.integers(0, 9), st.sampled_from((16, 31, 33, 64)))
# Whole numbers, which integer results take too.
FACTORS = (0.0, -0.0, 1.0, -1.0, 2.0, -3.0)


def values(rng, shape, dtype):
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind == "i":
        return rng.integers(-9, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@st.composite
def laid_out(draw, array):
    """The same values with another order of axes, steps, directions or an offset in memory."""
    if array.ndim == 0:
        return np.array(array)
    order = draw(st.permutations(range(array.ndim)))
    steps = [draw(st.sampled_from((1, 1, 1, 2, -1, -3))) for _ in range(array.ndim)]
    wide = [abs(steps[axis]) * array.shape[axis] + draw(st.integers(0, 2)) for axis in order]
    view = np.zeros(wide, array.dtype).transpose(np.argsort(order))
    view = view[tuple(slice(None, abs(s) * e, abs(s)) for s, e in zip(steps, array.shape, strict=True))]
    view = view[tuple(slice(None, None, -1 if step < 0 else 1) for step in steps)]
    view[...] = array
    return view


@st.composite
def operands(draw, rng, shape, dtype, *, spread=True):
    """An operand: laid out anyhow, or spread over axes that have no strides."""
    dtype = dtype_of(dtype)
    if spread and shape and draw(st.integers(0, 5)) == 0:
        axis = draw(st.integers(0, len(shape) - 1))
        one = values(rng, (*shape[:axis], 1, *shape[axis + 1 :]), dtype)
        return np.broadcast_to(one, shape)
    return draw(laid_out(values(rng, shape, dtype)))


@st.composite
def products(draw, *, plain=False):
    """Arguments of a product that is right: ``(a, b, keywords)``."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    name = draw(st.sampled_from(REAL if plain else types()))
    result = draw(st.sampled_from(RESULTS[name]))
    full = draw(st.lists(st.integers(0, 3), max_size=2))
    batches = [tuple(draw(st.sampled_from((e, 1))) for e in full[draw(st.integers(0, len(full))) :]) for _ in "ab"]
    batch = np.broadcast_shapes(*batches)
    m, n, k = draw(extents), draw(extents), draw(extents)
    vector_a = not batches[0] and draw(st.integers(0, 7)) == 0
    vector_b = not batches[1] and draw(st.integers(0, 7)) == 0
    m, n = 1 if vector_a else m, 1 if vector_b else n
    a = draw(operands(rng, (k,) if vector_a else (*batches[0], m, k), name))
    b = draw(operands(rng, (k,) if vector_b else (*batches[1], k, n), name))
    shape = (*batch, *(() if vector_a else (m,)), *(() if vector_b else (n,)))
    found = {}
    if result != RESULTS[name][0]:
        found["dtype"] = result
    if name in FLOAT8 or (name == "int8" and result == "float32"):
        found.update(scale_a=1.0, scale_b=draw(st.sampled_from((1.0, 0.5))))
    epilogues = (
        EPILOGUES
        if name in REAL
        else ("default", "bias")
        if name.startswith("complex")
        else ("default", "bias", "relu")
    )
    epilogue = "default" if vector_a or vector_b else draw(st.sampled_from(epilogues))
    oracle = ORACLES[epilogue]
    if epilogue != "default":
        found["epilogue"] = epilogue
    if oracle.takes_clamp:
        found["clamp"] = (-0.5, 1.5)
    if oracle.bias:
        own = {"float": result, "bfloa": result}.get(result[:5], "int32" if name == "int8" else result)
        own = "float32" if result.startswith("float8") or (name == "int8" and result == "float32") else own
        forms = [(n,), (m, 1), *([(*batch, n)] if batch else [])]
        found["bias"] = draw(operands(rng, draw(st.sampled_from(forms)), own))
    if oracle.aux_in:
        found["aux"] = draw(operands(rng, shape, result))
    if draw(st.booleans()):
        found["alpha"] = draw(st.sampled_from((*FACTORS, *((np.nan, np.inf, 0.25) if result[0] in "fb" else ()))))
    if draw(st.booleans()):
        cut = shape[draw(st.integers(0, len(shape))) :]
        found["c"] = draw(operands(rng, tuple(draw(st.sampled_from((e, e, 1))) for e in cut), result))
        if draw(st.booleans()):
            found["beta"] = draw(st.sampled_from((*FACTORS, *((np.nan, np.inf, 0.5) if result[0] in "fb" else ()))))
    return a, b, found


def oracle_of(a, b, found):
    rest = {key: value for key, value in found.items() if key not in ("dtype", "c")}
    return evaluate(a, b, found.get("c"), **rest)


def check(outputs, a, b, found):
    result = outputs[0] if isinstance(outputs, tuple) else outputs
    wanted = dtype_of(found.get("dtype", RESULTS[a.dtype.name][0]))
    with np.errstate(all="ignore"):
        compared = check_outputs(oracle_of(a, b, found), outputs, wanted)
    for name, item in compared.items():
        assert item.ok, (name, item.message)
    return result


def same_bits(x, y):
    x, y = ([item[0], *item[1].values()] if isinstance(item, tuple) else [item] for item in (x, y))
    for one, other in zip(x, y, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def check_every_way(product, data):
    a, b, found = product
    outputs = rocpy.matmul(a, b, **found)
    result = check(outputs, a, b, found)
    out = data.draw(laid_out(np.zeros_like(result)))
    if out.size < 2 or all(stride >= 0 for stride in out.strides):
        into = rocpy.matmul(a, b, **found, out=out)
        assert (into[0] if isinstance(into, tuple) else into) is out
        check(into, a, b, found)
    by_rows = "bias" in found and found["bias"].ndim > 1 and found["bias"].shape[-1] == 1 and result.shape[-1] > 1
    if by_rows and "c" in found and not rocpy.platform.current().host_memory:
        return  # a plan cannot turn a c on the device into columns
    with rocpy.Matmul(a, b, **found) as mm:
        same_bits(outputs, mm.execute())
        assert bool(supported(mm.problem))
        other = np.roll(a, 1, axis=-1)
        mm.reset_operands(a=other)
        same_bits(rocpy.matmul(other, b, **found), mm.execute())
        mm.reset_operands(a=a, b=b)
        same_bits(outputs, mm.execute())


@QUICK
@given(products(), st.data())
def test_any_product_by_every_way(product, data):
    check_every_way(product, data)


@pytest.mark.slow
@LONG
@given(products(), st.data())
def test_any_product_by_every_way_for_long(product, data):
    check_every_way(product, data)


@QUICK
@given(products(plain=True), st.booleans())
def test_a_weight_is_its_array(product, turned):
    a, b, found = product
    if b.ndim != 2:
        return
    weight = rocpy.Weight(b.T if turned else b, layout="nk" if turned else "kn")
    check(rocpy.matmul(a, weight, **found), a, b, found)


@QUICK
@given(st.lists(products(plain=True), max_size=4), st.sampled_from(("default", "relu", "bias", "gelu_aux")))
def test_lists_are_their_products(items, epilogue):
    items = [(a, b) for a, b, _ in items if a.ndim >= 2 and b.ndim >= 2]
    biases = [np.ones(b.shape[-1], b.dtype) for _, b in items] if epilogue == "bias" else None
    outputs = rocpy.grouped_matmul([a for a, _ in items], [b for _, b in items], epilogue=epilogue, bias=biases)
    if epilogue == "gelu_aux" and items:
        outputs = [(d, {"gelu_aux": aux}) for d, aux in zip(outputs[0], outputs[1]["gelu_aux"], strict=True)]
    assert len(outputs) == len(items)
    for g, (a, b) in enumerate(items):
        check(outputs[g], a, b, {"epilogue": epilogue, **({"bias": biases[g]} if biases else {})})


@st.composite
def packed_groups(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    form, name = draw(st.sampled_from("mnk")), draw(st.sampled_from(REAL))
    sizes = draw(st.lists(st.one_of(st.integers(0, 5), st.just(17)), min_size=1, max_size=5))
    first, last = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    bounds = [first, *(first + np.cumsum(sizes)).tolist()]
    total, p, q = bounds[-1] + last, draw(st.integers(0, 9)), draw(st.integers(0, 9))
    shapes = {
        "m": ((total, p), (len(sizes), p, q)),
        "n": ((len(sizes), q, p), (p, total)),
        "k": ((p, total), (total, q)),
    }[form]
    return form, bounds, *(draw(operands(rng, shape, name)) for shape in shapes)


@QUICK
@given(packed_groups(), st.sampled_from((list, tuple, np.int32, np.int64)))
def test_packed_groups_are_their_products(groups, kind):
    form, bounds, a, b = groups
    offsets = kind(bounds) if kind in (list, tuple) else np.array(bounds, kind)
    d = rocpy.grouped_matmul(a, b, offsets=offsets)
    covered = np.zeros(d.shape, bool)
    for g, (start, stop) in enumerate(itertools.pairwise(bounds)):
        rows = slice(start, stop)
        if form == "m":
            place, left, right = (rows,), a[rows], b[g]
        elif form == "n":
            place, left, right = (slice(None), rows), a[g], b[:, rows]
        else:
            place, left, right = (g,), a[:, rows], b[rows]
        check(d[place], left, right, {})
        covered[place] = True
    assert not d[~covered].any()


TYPES = (*RESULTS, "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
questions = st.fixed_dictionaries(
    {"a": st.sampled_from(TYPES)},
    optional={
        "b": st.sampled_from(TYPES),
        "dtype": st.sampled_from((*TYPES, "int32")),
        "epilogue": st.sampled_from(EPILOGUES),
        "layout": st.sampled_from(("nn", "nt", "tn", "tt")),
        "k": st.sampled_from((0, 8, 32, 33, 64)),
        "batch": st.sampled_from(((), 3, (2, 1))),
        "c": st.booleans(),
        "scale_a": st.sampled_from(("scalar", "vector", "block32")),
        "scale_b": st.sampled_from(("scalar", "vector", "block32")),
        "scale_c": st.booleans(),
        "scale_d": st.booleans(),
        "amax": st.booleans(),
        "options": st.sampled_from(({"fallback": "error"}, {"copies": "error"}, {"reproducible": True})),
    },
)


def array_of(info):
    """An array that is laid out as a problem says."""
    order = np.argsort([-stride for stride in info.strides], kind="stable")
    packed = np.ones([info.shape[axis] for axis in order], dtype_of(info.dtype))
    return packed.transpose(np.argsort(order))


def scale_of(kind, extents, batch):
    lines, k, side = extents
    if kind == "block32":
        shape = (lines, k // 32) if side == 0 else (k // 32, lines)
        return np.full((*batch, *shape), 127, np.uint8)
    return np.float32(1) if kind == "scalar" else np.ones(lines, np.float32)


def check_answer(question):
    question = dict(question)
    m, n, k = 5, 6, question.get("k", 32)
    a, b = question.pop("a"), question.pop("b", None)
    answer = supported(a, b, **{"m": m, "n": n, "k": k, **question})
    call = {key: question[key] for key in ("dtype", "epilogue", "options", "amax") if key in question}
    oracle = ORACLES[question.get("epilogue", "default")]
    operands_ = {"clamp": (0.0, 1.0)} if oracle.takes_clamp else {}
    if answer.problem is None:
        # There is no problem to read the operands' types from; without further operands there is nothing to guess.
        if oracle.bias or oracle.aux_in or question.get("c"):
            return
        layout, batch = question.get("layout", "nn"), ()
        left = np.ones((m, k), dtype_of(a)) if layout[0] == "n" else np.ones((k, m), dtype_of(a)).T
        right = np.ones((k, n), dtype_of(b or a)) if layout[1] == "n" else np.ones((n, k), dtype_of(b or a)).T
    else:
        problem = answer.problem
        left, right, batch = array_of(problem.a), array_of(problem.b), problem.a.shape[:-2]
        for name in ("c", "bias", "aux"):
            if getattr(problem, name) is not None:
                operands_[name] = array_of(getattr(problem, name))
    for name, extents in (("scale_a", (m, k, 0)), ("scale_b", (n, k, 1))):
        if question.get(name):
            operands_[name] = scale_of(question[name], extents, batch)
    for name in ("scale_c", "scale_d"):
        if question.get(name):
            operands_[name] = 1.0
    said = ""
    try:
        rocpy.matmul(left, right, operands_.pop("c", None), **operands_, **call)
    except rocpy.RocpyError as error:
        said = str(error)
    assert bool(answer) == (not said), (str(answer), said)


@settings(QUICK, max_examples=400)
@given(questions)
def test_supported_says_what_matmul_does(question):
    check_answer(question)


@pytest.mark.slow
@LONG
@given(questions)
def test_supported_says_what_matmul_does_for_long(question):
    check_answer(question)


@QUICK
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=3),
    st.integers(0, 2**32 - 1),
    st.sampled_from((*FLOAT8, "int8")),
    st.sampled_from(("float64", "float32", "float16", "bfloat16")),
    st.integers(-20, 20),
    st.data(),
)
def test_quantized_numbers_come_back_and_stay(shape, seed, kind, source, exponent, data):
    scale = 2.0 ** (exponent if source in ("float64", "float32", "bfloat16") else exponent // 4)
    x = (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype_of(source))
    axis = data.draw(st.sampled_from((None, *range(-len(shape), len(shape)))))
    x = data.draw(laid_out(x))
    codes, scales = rocpy.quantize(x, kind, axis)
    assert codes.shape == x.shape
    assert codes.dtype == dtype_of(kind)
    back = rocpy.dequantize(codes, scales, "float64")
    wide = x.astype(np.float64)
    largest = np.max(np.abs(wide), axis=axis, keepdims=axis is not None, initial=0.0)
    # Half a step: of int8 half a scale, of floats half a unit in the last place, or of the smallest step.
    last = {"float8_e4m3fn": 4, "float8_e4m3fnuz": 4, "float8_e5m2": 3, "float8_e5m2fnuz": 3, "int8": 0}[kind]
    step = np.float64(scales) / 2 if kind == "int8" else np.abs(wide) * 2.0**-last + largest * 2.0**-14
    assert (np.abs(back - wide) <= step * (1 + 1e-6) + 1e-45).all()
    again = rocpy.quantize(rocpy.dequantize(codes, scales, "float64"), kind, axis)
    # The largest number is among the codes, so that the scale stays, but for its rounding to float32.
    assert np.allclose(again[1], scales, rtol=1e-6)


@QUICK
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=2),
    st.integers(0, 2**32 - 1),
    st.sampled_from(("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")),
    st.integers(-60, 60),
    st.data(),
)
def test_blocks_come_back_and_stay(shape, seed, kind, exponent, data):
    x = np.random.default_rng(seed).standard_normal(shape) * 2.0**exponent
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    codes, scales = rocpy.quantize_mx(data.draw(laid_out(x)), kind, axis)
    back = rocpy.dequantize_mx(codes, scales, "float64", axis)
    assert back.shape == x.shape
    if x.size:
        assert np.max(np.abs(back - x)) <= np.max(np.abs(x)) * 2.0**-2
    again = rocpy.quantize_mx(back, kind, axis)
    assert np.array_equal(rocpy.dequantize_mx(*again, "float64", axis), back)


def test_a_number_is_added_to_a_vector_with_steps():
    out = np.zeros(48, np.float32)[::3]
    rocpy.matmul(np.ones(2, np.float32), np.ones((2, 16), np.float32), np.array(0.5, np.float32), out=out)
    assert (out == 2.5).all()
