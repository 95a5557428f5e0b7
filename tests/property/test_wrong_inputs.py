# SPDX-License-Identifier: MIT
"""Random wrong arguments to every public function: a result or an error of rocpy's own, never another or a crash."""

from __future__ import annotations

import inspect
import resource
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocpy
from rocpy.blaslt import supported
from rocpy.testing.cases import EPILOGUES

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TYPES = [
    np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        *("float64", "float32", "float16", "bfloat16", "int8", "int32", "complex64", "complex128", "bool", "uint8"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "object", "U2", "datetime64[s]", "int16", ">f4"),
    )
]
ARRAY_SHAPES = (
    (),
    (0,),
    (1,),
    (4,),
    (6,),
    (4, 4),
    (4, 6),
    (6, 4),
    (1, 4),
    (4, 1),
    (0, 4),
    (32, 4),
    (4, 32),
    (2, 4, 4),
    (2, 1, 4, 4),
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    1.0,
    0.5,
    -0.0,
    2**31,
    2**40,
    2**63,
    -(2**63),
    10**400,
    1e308,
    1e400,
    float("nan"),
    1j,
    complex("nan"),
    True,
)
OBJECTS = (
    None,
    "",
    "x",
    "relu",
    "gelu_bias",
    "float32",
    "m",
    b"x",
    (),
    [],
    {},
    [1.0],
    (0, 1),
    (1, 0),
    {"relu_aux": 1},
    object(),
    np,
    int,
)


def zeros(shape, dtype):
    if dtype.kind in "OUMb" or dtype.name == "float8_e8m0fnu":
        return np.zeros(shape, dtype=dtype)
    return np.ones(shape, dtype=dtype)


@st.composite
def arrays(draw):
    """An array of any type, its values all equal, in any layout."""
    dtype, shape = draw(st.sampled_from(TYPES)), draw(st.sampled_from(ARRAY_SHAPES))
    array = zeros(shape, dtype)
    kind = draw(st.sampled_from(("as it is", "turned", "reversed", "broadcast", "read-only", "absurd", "unaligned")))
    if kind == "turned":
        return array.T
    if kind == "reversed" and array.ndim:
        return array[::-1]
    if kind == "broadcast":
        return np.broadcast_to(zeros((), dtype), shape)
    if kind == "read-only":
        array.flags.writeable = False
    if kind == "absurd" and shape and dtype.itemsize <= 16:
        place = draw(st.integers(0, len(shape) - 1))
        return absurd((*shape[:place], 2**40, *shape[place + 1 :]), dtype)
    if kind == "unaligned" and dtype.itemsize > 1 and dtype.kind in "fc" and array.size:
        stored = np.zeros(array.nbytes + 1, np.uint8)
        view = stored[1:].view(dtype).reshape(shape)
        view[...] = 1
        return view
    return array


def absurd(shape, dtype):
    """A view with absurd extents over one element."""
    return np.broadcast_to(zeros((), dtype), shape)


@pytest.fixture(scope="module", autouse=True)
def little_memory():
    """Little address space, so that an attempt to allocate what is absurd fails at once and does no harm."""
    rocpy.matmul(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


junk = st.one_of(arrays(), st.sampled_from(NUMBERS), st.sampled_from(OBJECTS))
# What is mostly right, so that the argument that is wrong gets far.
right = st.sampled_from(
    [np.ones((4, 4), dtype) for dtype in TYPES[:4] + TYPES[6:8]]
    + [np.ones((4, 4), np.int8), np.ones((2, 4, 4), np.float32), np.ones((4, 4), TYPES[10])]
)
ARRAY_NAMES = ("c", "bias", "aux", "out", "scale_a", "scale_b", "scale_c", "scale_d")
OTHER_NAMES = (
    "alpha",
    "beta",
    "epilogue",
    "clamp",
    "dtype",
    "compute",
    "options",
    "algorithm",
    "autotune",
    "stream",
    "epilogue_inputs",
)


@st.composite
def calls(draw):
    """Operands and keywords of a product, one to three of which may be anything."""
    a = draw(right)
    b = draw(st.sampled_from((a, a, a, np.swapaxes(a, -1, -2))))
    options = {}
    if draw(st.booleans()):
        options["epilogue"] = draw(st.sampled_from(EPILOGUES))
        if draw(st.booleans()):
            options["bias"] = np.ones(4, a.dtype)
    if draw(st.booleans()):
        options["c"] = a
    for name in draw(st.lists(st.sampled_from(("a", "b", *ARRAY_NAMES, *OTHER_NAMES)), min_size=1, max_size=3)):
        value = draw(arrays() if name in ARRAY_NAMES and draw(st.booleans()) else junk)
        if name == "a":
            a = value
        elif name == "b":
            b = value
        else:
            options[name] = value
    return a, b, options


def accepts(call, *args, **options):
    """Call; True when it was accepted. Whatever is raised that is not rocpy's own gets through and fails the test."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        said = None
        try:
            call(*args, **options)
        except rocpy.RocpyError as error:
            said = str(error)
    assert said is None or len(said) > 10, said
    return said is None


def planned(a, b, c=None, *, out=None, **options):
    with rocpy.Matmul(a, b, c, **options) as mm:
        mm.plan()
        mm.execute(out=out)


GROUPED_KEYWORDS = frozenset(inspect.signature(rocpy.grouped_matmul).parameters)


def check_products(call):
    a, b, options = call
    c = options.pop("c", None)
    one = {name: value for name, value in options.items() if name not in ("algorithm", "autotune", "epilogue_inputs")}
    accepted = accepts(rocpy.matmul, a, b, c, **options)
    if one == options:
        assert accepts(planned, a, b, c, **one) == accepted
    explained = {name: value for name, value in one.items() if name != "out"}
    if isinstance(a, list | tuple) or isinstance(b, list | tuple):  # groups, which have fewer keywords
        explained = {name: value for name, value in explained.items() if name in GROUPED_KEYWORDS}
        c = None
    accepts(rocpy.explain, a, b, c, **explained)


@QUICK
@given(calls())
def test_products_of_anything(call):
    check_products(call)


@pytest.mark.slow
@LONG
@given(calls())
def test_products_of_anything_for_long(call):
    check_products(call)


@QUICK
@given(
    st.dictionaries(
        st.sampled_from(("a", "b", "c", "bias", "alpha", "beta", "scale_a", "scale_b", "scale_d")), junk, max_size=2
    ),
    st.sampled_from((None, "m")),
)
def test_new_operands_that_are_anything(changes, dynamic):
    a, bias = np.ones((4, 4), np.float32), np.ones(4, np.float32)
    with rocpy.Matmul(a, a, a, epilogue="bias", bias=bias, options={"dynamic": dynamic}) as mm:
        if not accepts(mm.reset_operands, **changes):
            assert (mm.execute() == 6).all()
        else:
            accepts(mm.execute)


junk_lists = st.one_of(junk, st.lists(st.one_of(right, junk), max_size=3))


@QUICK
@given(
    junk_lists,
    junk_lists,
    st.dictionaries(
        st.sampled_from(
            ("offsets", "groups", "epilogue", "bias", "clamp", "alpha", "dtype", "out", "options", "stream")
        ),
        junk_lists,
        max_size=2,
    ),
)
def test_groups_of_anything(a, b, options):
    accepts(rocpy.grouped_matmul, a, b, **options)


OFFSETS = st.one_of(junk, st.lists(st.one_of(st.integers(-2, 8), st.sampled_from(NUMBERS)), max_size=5))


@QUICK
@given(
    OFFSETS,
    st.one_of(st.sampled_from((None, 3)), junk),
    st.dictionaries(st.sampled_from(("bias", "out", "dtype", "epilogue", "scale_a")), junk, max_size=2),
)
def test_packed_groups_with_any_offsets(offsets, groups, options):
    rows, experts = np.ones((6, 4), np.float32), np.ones((3, 4, 5), np.float32)
    accepts(rocpy.grouped_matmul, rows, experts, offsets=offsets, groups=groups, **options)
    accepts(rocpy.grouped_matmul, rows.T, rows, offsets=offsets, groups=groups, **options)
    accepts(
        rocpy.grouped_matmul, np.ones((3, 5, 4), np.float32), rows.T.copy(), offsets=offsets, groups=groups, **options
    )


@QUICK
@given(junk, st.dictionaries(st.sampled_from(("bias", "scale", "layout")), junk, max_size=2))
def test_weights_of_anything(w, options):
    accepts(lambda: rocpy.matmul(np.ones((2, 4), np.float32), rocpy.Weight(w, **options)))


@QUICK
@given(
    st.one_of(right, junk),
    st.one_of(st.sampled_from(("float8_e4m3fn", "int8", "float4_e2m1fn")), junk),
    st.one_of(st.sampled_from((-1, -2, 0, None)), junk),
    st.one_of(arrays(), junk),
    st.one_of(st.just("float32"), junk),
)
def test_quantization_of_anything(x, dtype, axis, scales, back):
    for call in (rocpy.quantize, rocpy.quantize_mx):
        accepts(call, x, dtype, axis)
    accepts(rocpy.dequantize, x, scales, back)
    accepts(rocpy.dequantize_mx, x, scales, back, axis)


@QUICK
@given(
    st.one_of(st.sampled_from(("float32", "int8", "float8_e4m3fn")), junk),
    st.dictionaries(
        st.sampled_from(
            (
                "b",
                "dtype",
                "epilogue",
                "layout",
                "m",
                "n",
                "k",
                "batch",
                "compute",
                "c",
                "bias",
                "scale_a",
                "scale_b",
                "amax",
                "options",
                "device",
            )
        ),
        junk,
        max_size=2,
    ),
)
def test_questions_about_anything(a, options):
    b = options.pop("b", None)
    accepts(supported, a, b, **options)


EIGHT = np.ones((4, 4), TYPES[10])
ROWS, EXPERTS = np.ones((6, 4), np.float32), np.ones((3, 4, 5), np.float32)
# What once raised an error that is not rocpy's, or asked for memory before it was refused.
FOUND = {
    "text of absurd size": lambda: rocpy.matmul(np.broadcast_to(np.array("x"), (2**40, 4)), EXPERTS[0]),
    "byte-swapped operand of absurd size": lambda: rocpy.matmul(
        np.broadcast_to(np.array(1, ">f4"), (2**40, 4)), EXPERTS[0]
    ),
    "scale that is no float": lambda: rocpy.matmul(EIGHT, EIGHT, scale_b=10**400),
    "bound that is no float": lambda: rocpy.matmul(ROWS, EXPERTS[0], epilogue="clamp", clamp=(0, 10**400)),
    "groups beyond 64 bits": lambda: rocpy.grouped_matmul(ROWS, EXPERTS, offsets=[0, 1, 2], groups=2**64),
    "offset beyond 64 bits": lambda: rocpy.grouped_matmul(ROWS, EXPERTS, offsets=[0, 1, 2, 2**64]),
    "offset below 64 bits": lambda: rocpy.grouped_matmul(ROWS, EXPERTS, offsets=[-(2**64), 1, 2, 3]),
    "offsets of absurd size": lambda: rocpy.grouped_matmul(
        ROWS, EXPERTS, offsets=np.broadcast_to(np.int64(0), (2**40,))
    ),
    "absurdly many groups": lambda: rocpy.grouped_matmul(ROWS.T, ROWS, offsets=np.broadcast_to(np.int64(0), (2**40,))),
    "layout of a weight": lambda: rocpy.Weight(ROWS, layout=1),
    "dtype": lambda: rocpy.quantize(ROWS, np),
    "quantize": lambda: rocpy.quantize(np.broadcast_to(np.float32(1), (2**40, 4))),
    "quantize_mx": lambda: rocpy.quantize_mx(np.broadcast_to(np.float32(1), (2**40, 4)), axis=0),
    **{
        f"supported, {name}": lambda name=name, value=value: supported("float32", **{name: value})
        for name, value in (
            *(("layout", np.ones(3)), ("m", 1.5), ("k", "8"), ("batch", 2.0), ("batch", (2, "3"))),
            *(("c", np.ones(0)), ("compute", np.ones(0)), ("scale_a", 1j), ("scale_b", True), ("device", "0")),
            *(("device", 2**40), ("device", -1), ("amax", "x")),
        )
    },
}


@pytest.mark.parametrize("name", FOUND)
def test_refused(name):
    with pytest.raises(rocpy.RocpyError):
        FOUND[name]()
