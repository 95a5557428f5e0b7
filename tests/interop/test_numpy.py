# SPDX-License-Identifier: MIT
"""numpy arrays as operands: read in place, copied where their values can be kept, refused otherwise."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from dlpack_producers import OnlyDlpack
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rocpy
from rocpy import dtypes
from rocpy._operand import allocate_like, array_types, describe
from rocpy.errors import InvalidOperandError, InvalidProblemError, OutOfMemoryError

BUILT_IN = [
    "float64",
    "float32",
    "float16",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
EXTENSION = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


def dtype_of(name):
    return np.dtype(name) if name in BUILT_IN else np.dtype(getattr(ml_dtypes, name))


@pytest.mark.parametrize("name", BUILT_IN + EXTENSION)
def test_describes_and_allocates_every_type(name):
    x = np.zeros((3, 4), dtype_of(name))
    for _ in range(2):
        seen = describe(x)
        assert seen.pop("kept") is x
        assert seen == {
            "data": x.ctypes.data, "dtype": name, "shape": (3, 4), "strides": (4, 1), "device_type": 1, "device_id": 0,
            "provider": "numpy", "read_only": False, "copied": False,
        }  # fmt: skip
        made = allocate_like(x, (2, 5))
        assert type(made) is np.ndarray
        assert (made.dtype, made.shape, made.flags.c_contiguous, made.flags.writeable) == (x.dtype, (2, 5), True, True)


def test_the_rows_of_rocpy_dtypes_are_those_of_the_core():
    whole = {name: row for name, row in dtypes.DTYPES.items() if row.bits >= 8}
    ours = array_types()
    assert {name: (row.hip, row.bits, *row.dlpack, row.module == "numpy") for name, row in whole.items()} == {
        name: ours[name][:5] for name in whole
    }


@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=5), elements=st.just(1.0)),
    st.data(),
)
def test_any_view_is_described_as_numpy_sees_it(base, data):
    view = base.transpose(data.draw(st.permutations(range(base.ndim))))
    view = view[tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1, -2]))) for _ in range(view.ndim))]
    seen = describe(view)
    assert seen["shape"] == view.shape
    assert seen["data"] == view.ctypes.data
    assert all(
        stride * 4 == expected
        for stride, expected, extent in zip(seen["strides"], view.strides, view.shape, strict=True)
        if extent > 1 and view.size
    )
    assert seen["copied"] is False


def test_broadcast_views_and_scalars_arrays():
    assert describe(np.broadcast_to(np.float32(1), (3, 4)))["strides"] == (0, 0)
    assert describe(np.array(1.0))["shape"] == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(6, dtype=">f4").reshape(2, 3),
        lambda: np.frombuffer(bytearray(25), dtype="f4", offset=1, count=6).reshape(2, 3),
        lambda: np.zeros((2, 3), [("x", "f4"), ("y", "i1")])["x"],
        lambda: np.zeros((2, 3), [("pad", "i2"), ("x", "f4")])["x"],
    ],
)
def test_awkward_memory_is_copied_with_its_values(make):
    x = make()
    seen = describe(x)
    assert (seen["copied"], seen["dtype"], seen["strides"]) == (True, "float32", (3, 1))
    assert seen["kept"] is not x
    assert np.array_equal(seen["kept"], x)
    assert seen["kept"].dtype.isnative
    with pytest.raises(InvalidOperandError, match=r"out: .*cannot be written in place"):
        describe(x, "out", output=True)


@pytest.mark.parametrize(
    "x",
    [
        np.array([object()]),
        np.zeros(2, bool),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "U3"),
        np.zeros(2, "V4"),
        np.zeros(2, [("x", "f4"), ("y", "f4")]),
        np.zeros(2, np.longdouble),
        np.zeros(2, ml_dtypes.int4),
        np.zeros(2, ml_dtypes.float8_e3m4),
    ],
    ids=lambda x: str(x.dtype),
)
def test_types_without_a_place_are_refused(x):
    for _ in range(2):
        with pytest.raises(InvalidOperandError, match=r"bias: numpy array of dtype .* and shape \(\d,\).*astype"):
            describe(x, "bias")


def test_too_many_dimensions():
    with pytest.raises(InvalidOperandError, match="x: got 33 dimensions, expected at most 32"):
        describe(np.zeros((1,) * 33), "x")
    assert describe(np.zeros((1,) * 32))["shape"] == (1,) * 32


def test_read_only_arrays_go_in_but_not_out():
    x = np.zeros((2, 2))
    x.flags.writeable = False
    assert describe(x)["read_only"] is True
    with pytest.raises(InvalidOperandError, match=r"out: .*read-only"):
        describe(x, "out", output=True)


@pytest.mark.parametrize(
    ("view", "overlaps"),
    [
        (lambda x: x, False),
        (lambda x: x.T, False),
        (lambda x: x[::2, ::-1], False),
        (lambda x: x[:, :0], False),
        (lambda x: np.lib.stride_tricks.as_strided(x, (3, 3), (8, 8)), True),
        (lambda x: np.lib.stride_tricks.as_strided(x, (2, 4), (0, 8)), True),
        (lambda x: np.lib.stride_tricks.as_strided(x, (2, 2), (24, 8)), False),
    ],
)
def test_outputs_that_share_elements_are_refused(view, overlaps):
    out = view(np.zeros((4, 4)))
    if overlaps:
        with pytest.raises(InvalidOperandError, match="share memory"):
            describe(out, "out", output=True)
    else:
        assert describe(out, "out", output=True)["kept"] is out


def test_subclasses(tmp_path):
    mapped = np.memmap(tmp_path / "x", dtype="f4", mode="w+", shape=(2, 2))
    assert describe(mapped)["data"] == mapped.ctypes.data
    mapped._mmap.close()

    class Plain(np.ndarray):
        pass

    class Unit(np.ndarray):
        def __array_ufunc__(self, *args, **kwargs):
            return NotImplemented

    assert describe(np.zeros((2, 2)).view(Plain))["shape"] == (2, 2)
    with pytest.raises(InvalidOperandError, match="Unit defines its own arithmetic"):
        describe(np.zeros(2).view(Unit))
    with pytest.raises(InvalidOperandError, match=r"mask; pass array\.filled.*, array\.data to write"):
        describe(np.ma.masked_array([1.0, 2.0], mask=[True, False]))


@pytest.mark.parametrize(
    "value", [None, 1, 1.5, 2j, True, "text", [1.0], (1.0,), {}, np.float32(1), np.ndarray, object(), print, {1}]
)
def test_what_is_no_array_is_refused(value):
    with pytest.raises(InvalidOperandError, match=r"weight: got .*supported are numpy and torch arrays"):
        describe(value, "weight")


def test_objects_with_only_array_method_are_told_what_to_do():
    class Table:
        def __array__(self, dtype=None, copy=None):
            return np.zeros(2)

    with pytest.raises(InvalidOperandError, match=r"Table, which does not share its memory; pass numpy\.asarray"):
        describe(Table())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_results_of_every_extent(shape):
    assert allocate_like(np.zeros(1, "f4"), shape).shape == shape
    assert allocate_like(np.zeros(1, "f4"), shape, "bfloat16").dtype == ml_dtypes.bfloat16


def test_results_too_large_are_refused():
    for x in (np.zeros(1), np.zeros(1, ml_dtypes.bfloat16)):
        with pytest.raises((OutOfMemoryError, InvalidProblemError)):
            allocate_like(x, (2**40, 2**12))
        with pytest.raises(InvalidProblemError, match="address space"):
            allocate_like(x, (2**40, 2**40))


def test_ml_dtypes_is_not_imported_for_numpy_types():
    code = (
        "import sys, numpy, rocpy._operand as o\n"
        "o.allocate_like(numpy.zeros(2, 'f4'), (2,))\n"
        "assert 'ml_dtypes' not in sys.modules and 'torch' not in sys.modules\n"
        "assert o.allocate_like(numpy.zeros(2, 'f4'), (2,), 'bfloat16').dtype.name == 'bfloat16'\n"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


STRINGS = np.array([["a", "b"], ["c", "d"]], np.dtypes.StringDType())  # a type without a byte order
EYE = np.eye(2, dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: rocpy.matmul(STRINGS, EYE), "a"),
        (lambda: rocpy.matmul(EYE, STRINGS), "b"),
        (lambda: rocpy.matmul(EYE, EYE, STRINGS), "c"),
        (lambda: rocpy.matmul(EYE, EYE, epilogue="bias", bias=STRINGS[0]), "bias"),
        (lambda: rocpy.matmul(EYE, EYE, out=STRINGS), "out"),
        (lambda: rocpy.Matmul(STRINGS, EYE), "a"),
        (lambda: rocpy.Weight(STRINGS), "w"),
        (lambda: rocpy.grouped_matmul([STRINGS], [EYE]), "a"),
        (lambda: rocpy.explain(STRINGS, EYE), "a"),
        (lambda: rocpy.quantize(STRINGS, "float8_e4m3fn"), "x"),
    ],
)
def test_strings_are_refused_by_name(call, name):
    with pytest.raises(rocpy.RocpyError, match=rf"^{name}: .*StringDType"):
        call()


def test_operands_are_not_leaked():
    arrays = [np.zeros((2, 2)), np.zeros((2, 2), ">f4"), np.zeros((2, 2), ml_dtypes.bfloat16)]
    for x in arrays:
        describe(x)
    counts = [(sys.getrefcount(x), sys.getrefcount(x.dtype)) for x in arrays]
    for _ in range(100):
        for x in arrays:
            describe(x)
            allocate_like(x, (2, 2))
    after = [(sys.getrefcount(x), sys.getrefcount(x.dtype)) for x in arrays]
    assert after == counts


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
@pytest.mark.parametrize("beta", [None, 0.0, 2.0])
def test_an_addend_beside_a_result_in_columns(dtype, batch, beta):
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal((*batch, *shape)).astype(dtype) for shape in ((4, 2), (2, 3), (4, 3)))
    expected = a @ b + (1 if beta is None else beta) * c
    misaligned = np.frombuffer(b"x" + c.tobytes(), np.uint8)[1:].view(dtype).reshape(c.shape)
    for addend in (c, c.astype(f">{dtype}"), np.asfortranarray(c).astype(f">{dtype}"), misaligned, OnlyDlpack(c)):
        for left in (a, a.astype(f">{dtype}")):
            out = np.empty((*batch, 3, 4), dtype).swapaxes(-1, -2)
            assert rocpy.matmul(left, b, addend, beta=beta, out=out) is out
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
