# SPDX-License-Identifier: MIT
"""An out of another dtype than the product gives: computed aside and cast into it, or refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy.testing.runner import dtype_of

# Operands, the type that their product gives, and types that it may be cast to.
CASTS = [
    ("float32", "float32", ("float64", "float16", "bfloat16", "float8_e4m3fn", "complex64")),
    ("float64", "float64", ("float32", "complex128")),
    ("float16", "float16", ("bfloat16", "float64")),
    ("float8_e4m3fn", "bfloat16", ("float64", "float8_e5m2fnuz")),
    ("int8", "int32", ("int64", "int16", "float64", "complex64")),
    ("complex64", "complex64", ("complex128",)),
]
REFUSED = [
    ("float32", "int32"),
    ("float16", "int8"),
    ("complex64", "float32"),
    ("complex128", "int64"),
    ("int8", "uint8"),
    ("float32", "float8_e8m0fnu"),
]


def draw(rng, shape, name):
    return rng.integers(-4, 5, shape).astype(dtype_of(name))


def ways():
    """Return the two ways to a product into an out."""

    def planned(a, b, *, out, **arguments):
        with rocpy.Matmul(a, b, **arguments) as mm:
            return mm.execute(out=out)

    return {"matmul": rocpy.matmul, "Matmul": planned}


def skip_unless_there(name):
    kinds = {"scale_a": "scalar", "scale_b": "scalar"} if name.startswith("float8") else {}
    skip_without(name, **kinds)


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize(("name", "given", "out"), [(x, y, z) for x, y, several in CASTS for z in several])
def test_a_result_is_cast_into_out(rng, way, name, given, out):
    skip_unless_there(name)
    a, b = draw(rng, (3, 5, 7), name), draw(rng, (7, 6), name)
    scales = {"scale_a": 1.0, "scale_b": 1.0} if name.startswith("float8") else {}
    expected = rocpy.matmul(a, b, **scales)
    assert expected.dtype == dtype_of(given)
    for target in (np.empty((3, 5, 6), dtype_of(out)), np.empty((3, 6, 10), dtype_of(out)).swapaxes(1, 2)[:, ::2]):
        assert ways()[way](a, b, out=target, **scales) is target
        np.testing.assert_array_equal(target, expected.astype(dtype_of(out)))


@pytest.mark.parametrize("options", [{}, {"scale_a": 1.0, "scale_b": 1.0}, {"dtype": "int8"}], ids=str)
def test_the_types_that_a_refusal_names_are_taken(options):
    a = np.ones((4, 4), np.int8)
    with pytest.raises(rocpy.InvalidProblemError, match="pass out= of") as refused:
        rocpy.matmul(a, a, out=np.empty((4, 4), np.uint8), **options)
    for name in str(refused.value).partition("out= of ")[2].split(" or "):
        out = np.zeros((4, 4), dtype_of(name))
        assert (rocpy.matmul(a, a, out=out, **options) == 4).all()


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize(("name", "out"), REFUSED)
def test_a_cast_that_drops_a_kind_is_refused(way, name, out):
    skip_unless_there(name)
    a, target = np.ones((4, 4), dtype_of(name)), np.full((4, 4), 1, dtype_of(out))
    with pytest.raises(rocpy.InvalidProblemError, match=f"out is {out}, and the result is .*pass out= of"):
        ways()[way](a, a, out=target)
    assert (target == 1).all()


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("epilogue", ["default", "gelu_erf"])
def test_options_refuse_to_compute_aside(way, epilogue):
    a, out = np.ones((4, 4), np.float32), np.full((4, 4), 9.0)
    with pytest.raises(rocpy.UnsupportedError, match=r"out is float64 and the result is float32.*copies='error'"):
        ways()[way](a, a, epilogue=epilogue, out=out, options={"copies": "error"})
    assert (out == 9).all()


def test_dtype_says_what_is_cast():
    a = np.full((2, 3), 0.1, np.float16)
    narrow, wide = np.empty((2, 2)), np.empty((2, 2))
    rocpy.matmul(a, a.T, dtype="float16", out=narrow)
    rocpy.matmul(a, a.T, dtype="float32", out=wide)
    np.testing.assert_array_equal(narrow, rocpy.matmul(a, a.T).astype(np.float64))
    np.testing.assert_array_equal(wide, rocpy.matmul(a, a.T, dtype="float32").astype(np.float64))
    assert (narrow != wide).any()


@pytest.mark.parametrize("epilogue", ["gelu_bias", "gelu_aux_bias", "gelu_erf_bias", "sigmoid_bias"])
@pytest.mark.parametrize("rows", [False, True])
def test_the_rest_of_the_product_is_as_without_out(rng, epilogue, rows):
    a, b = rng.standard_normal((5, 7), np.float32), rng.standard_normal((7, 6), np.float32)
    bias = rng.standard_normal((5, 1) if rows else (6,), np.float32)
    c = rng.standard_normal((5, 6), np.float32)
    out = np.empty((5, 6))
    expected = rocpy.matmul(a, b, c, epilogue=epilogue, bias=bias)
    found = rocpy.matmul(a, b, c, epilogue=epilogue, bias=bias, out=out)
    if isinstance(expected, tuple):
        assert found[1].keys() == expected[1].keys()
        for key, value in expected[1].items():
            assert found[1][key].dtype == np.float32
            np.testing.assert_array_equal(found[1][key], value)
        expected, found = expected[0], found[0]
    assert found is out
    np.testing.assert_array_equal(out, expected.astype(np.float64))


def test_what_is_too_large_becomes_infinite():
    a, out = np.full((1, 1), 1e5, np.float32), np.empty((1, 1), np.float16)
    assert rocpy.matmul(a, a, out=out)[0, 0] == np.inf


def test_memory_that_is_read_is_no_out_of_another_dtype_either():
    memory = np.ones(32, np.float32)
    a = memory[:16].reshape(4, 4)
    with pytest.raises(rocpy.InvalidOperandError, match="shares memory with a"):
        rocpy.matmul(a, a, out=memory.view(np.float64).reshape(4, 4))
    with pytest.raises(rocpy.InvalidProblemError, match="out: shape"):
        rocpy.matmul(a, a, out=np.empty((4, 5)))


def test_an_empty_result_of_another_dtype():
    a, out = np.ones((0, 4), np.float32), np.empty((0, 4))
    assert rocpy.matmul(a, np.ones((4, 4), np.float32), out=out) is out
    with pytest.raises(rocpy.InvalidProblemError, match="out is int32"):
        rocpy.matmul(a, np.ones((4, 4), np.float32), out=np.empty((0, 4), np.int32))


def test_a_buffer_is_cast_into():
    a = rocpy.Buffer((4, 4), "float32")
    a.copy_from(np.full((4, 4), 1.5, np.float32))
    for dtype in ("float64", "float16", ml_dtypes.bfloat16):
        out = rocpy.Buffer((4, 4), dtype)
        assert rocpy.matmul(a, a, out=out) is out
        assert (out.to_numpy() == 9).all()


@pytest.mark.torch
@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize(("name", "out"), [("float32", "bfloat16"), ("bfloat16", "float64"), ("float32", "complex64")])
def test_torch_tensors_are_cast_into(torch, way, name, out):
    a = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(getattr(torch, name))
    target = torch.empty((3, 3), dtype=getattr(torch, out))
    version = target._version
    assert ways()[way](a, a.mT, out=target) is target
    assert target._version > version
    assert torch.equal(target, rocpy.matmul(a, a.mT).to(target.dtype))
    with pytest.raises(rocpy.InvalidProblemError, match="out is int32"):
        ways()[way](a, a.mT, out=torch.empty((3, 3), dtype=torch.int32))


def presented(values, kind, torch):
    """Return a matrix as an array of a framework and type, and a way to read an array of such a kind."""
    name, _, dtype = kind.partition(" ")
    if name == "torch":
        return torch.from_numpy(values.copy()).to(getattr(torch, dtype))
    array = values.astype(dtype_of(dtype))
    return {"numpy": lambda: array, "memoryview": lambda: memoryview(array), "Buffer": lambda: buffer(array)}[name]()


def buffer(array):
    made = rocpy.Buffer(array.shape, array.dtype)
    made.copy_from(array)
    return made


def as_float64(array):
    if isinstance(array, rocpy.Buffer):
        array = array.to_numpy()
    return (array.double().numpy() if hasattr(array, "double") else np.asarray(array)).astype(np.float64)


OTHER_OUTS = {
    "rows": lambda z: z, "columns": lambda z: z.T, "columns apart": lambda z: z.repeat(2, 1)[:, ::2],
}  # fmt: skip


@pytest.mark.torch
@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("operand", ["numpy float32", "numpy bfloat16", "torch float32", "torch bfloat16",
                                     "Buffer float32", "memoryview float32"])  # fmt: skip
def test_an_out_may_be_of_another_framework(torch, way, operand):
    values = np.arange(9, dtype=np.float32).reshape(3, 3)
    on_device = operand.startswith("Buffer") and not rocpy.platform.current().host_memory
    for out in ("numpy", "torch", "Buffer", "memoryview"):
        if not rocpy.platform.current().host_memory and on_device != (out == "Buffer"):
            continue  # an out lies where the operands do
        for dtype in ("float32", "bfloat16", "float64", "float8_e4m3fn"):
            for view in list(OTHER_OUTS.values())[: {"numpy": 3, "torch": 2}.get(out, 1)]:
                if out == "memoryview" and dtype not in ("float32", "float64"):
                    continue
                a, target = presented(values, operand, torch), view(presented(0 * values, f"{out} {dtype}", torch))
                assert ways()[way](a, a, out=target) is target
                np.testing.assert_array_equal(
                    as_float64(target), (values @ values).astype(dtype_of(dtype)).astype(np.float64)
                )
    if on_device:
        return
    a, strided = presented(values, operand, torch), torch.zeros(3, 6)[:, ::2]
    version = strided._version
    assert ways()[way](a, a, out=strided) is strided
    assert strided._version > version
    np.testing.assert_array_equal(strided.numpy(), values @ values)


@pytest.mark.torch
def test_groups_are_written_to_arrays_of_another_framework(torch):
    a, b = np.ones((4, 2), np.float32), np.ones((2, 2, 3), np.float32)
    for target in (torch.zeros(4, 3, dtype=torch.bfloat16), torch.zeros(4, 6)[:, ::2]):
        assert rocpy.grouped_matmul(a, b, offsets=[0, 1, 3], out=target) is target
        assert target.tolist() == [[2, 2, 2]] * 3 + [[0, 0, 0]]
        assert rocpy.grouped_matmul([a], [b[0]], out=[target])[0] is target
        assert (target == 2).all()
        target.zero_()


@pytest.mark.torch
def test_torch_transforms_cast_too(torch):
    def product(a, out):
        return rocpy.matmul(a, a.mT, out=out)

    a, out = torch.ones((3, 4)), torch.empty((3, 3), dtype=torch.float64)
    compiled = torch.compile(product, backend="eager", fullgraph=True)
    compiled(a, out)
    assert torch.equal(out, torch.full((3, 3), 4.0, dtype=torch.float64))
    narrow = torch.empty((3, 3), dtype=torch.float8_e4m3fn)
    for function in (product, compiled):
        function(40 * a, narrow)
        assert torch.equal(narrow.float(), torch.full((3, 3), 448.0))
    overlapping = torch.zeros(9).as_strided((3, 3), (2, 1))
    with pytest.raises(Exception, match="elements that share memory"):
        compiled(a, overlapping)
    assert not overlapping.any()
    with pytest.raises(rocpy.UnsupportedError, match="out"):
        torch.func.vmap(lambda x: rocpy.matmul(x, x.mT, out=torch.empty((3, 3))))(a[None])


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_eight_bits_saturate_whoever_the_array_is_of(name, library, torch):
    largest = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0}.get(name, 57344.0)
    a = np.array([[300.0], [-300.0], [np.inf], [np.nan], [0.5]], np.float32)
    b = np.full((1, 2), 300.0, np.float32)
    expected = np.array([largest, -largest, largest, np.nan, 160.0 if "e5m2" in name else 144.0])
    if library == "torch":
        a, b = torch.from_numpy(a), torch.from_numpy(b)
    for call in (
        lambda out: rocpy.matmul(a, b, out=out),
        lambda out: rocpy.Matmul(a, b).execute(out=out),
        lambda out: rocpy.grouped_matmul([a], [b], out=[out])[0],
    ):
        for order in ("C", "F"):
            if library == "torch":
                out = torch.zeros((5, 2) if order == "C" else (2, 5), dtype=getattr(torch, name))
                out = out if order == "C" else out.t()
                found = call(out).float().numpy()
            else:
                found = call(np.zeros((5, 2), rocpy.dtypes.lookup(name).numpy, order=order)).astype(np.float64)
            np.testing.assert_array_equal(found, np.stack([expected, expected], axis=1))


@pytest.mark.parametrize("out", ["float64", "float8_e4m3fn"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "bfloat16", "float16", "int8"])
def test_a_cast_result_is_not_rounded_to_16_bits_or_to_integers_first(name, out):
    skip_unless_there(name)
    a, b, exact, scales = slightly_more(name)
    target = rocpy.matmul(a, b, out=np.zeros((1, 1), dtype_of(out)), **scales)
    np.testing.assert_array_equal(target, exact.astype(dtype_of(out)))


def slightly_more(name):
    """Operands of which the product is a little more than 17 / 16, halfway between two numbers of FP8; and that."""
    scales = {"scale_a": 1.0, "scale_b": 1.0} if name.startswith("float8") else {}
    a, b = np.array([[1, 1, 2.0**-9]]), np.array([[1], [2.0**-4], [2.0**-9]])
    if name == "int8":
        a, b, scales = np.array([[4, 1]]), np.array([[68], [1]]), {"scale_a": 1.0, "scale_b": 2.0**-8}
    a, b = a.astype(dtype_of(name)), b.astype(dtype_of(name))
    exact = rocpy.matmul(a, b, dtype="float32", **scales)
    assert 1.0625 < exact[0, 0] < 1.07
    return a, b, exact, scales


@pytest.mark.torch
def test_a_traced_product_is_cast_as_others(torch):
    a, b, exact, _ = slightly_more("bfloat16")
    left, right = (torch.from_numpy(x.astype(np.float32)).bfloat16() for x in (a, b))
    target = torch.zeros(1, 1, dtype=torch.float64)
    traced = torch.compile(lambda: rocpy.matmul(left, right, out=target), backend="eager", fullgraph=True)()
    assert traced.item() == float(exact[0, 0])


def test_an_addend_keeps_the_result_in_its_own_type():
    a, b, _, _ = slightly_more("float16")
    c = np.zeros((1, 1), np.float16)
    np.testing.assert_array_equal(rocpy.matmul(a, b, c, out=np.zeros((1, 1))), 1.0625)
