# SPDX-License-Identifier: MIT
"""Complex products: factors, conjugates taken without a copy, and what they have no meaning for."""

from __future__ import annotations

import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy.testing import evaluate
from rocpy.testing.cases import COMPLEX
from rocpy.testing.runner import check_outputs, dtype_of


@pytest.fixture(autouse=True)
def complex_products():
    """Leave out what needs complex products where the library has none; that this is then told is tested there."""
    skip_without("complex64")


def draw(rng, shape, name):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype_of(name))


def check(d, expected):
    found = check_outputs(expected, np.asarray(d), np.asarray(d).dtype)["result"]
    assert found.ok, found.message


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5), (17, 33, 9), (64, 64, 64), (1, 100, 50), (100, 1, 50)])
def test_products(name, shape, rng):
    m, n, k = shape
    a, b = draw(rng, (m, k), name), draw(rng, (k, n), name)
    d = rocpy.matmul(a, b)
    assert d.dtype == dtype_of(name)
    check(d, evaluate(a, b))
    check(rocpy.matmul(a.T.copy().T, b.T.copy().T), evaluate(a, b))


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("alpha", [1j, 2 - 3j, np.complex64(0.5j), np.clongdouble(2j), np.array(1 - 1j), 2, 0.25, 0j])
@pytest.mark.parametrize("beta", [None, 1j, -0.5, 0])
def test_complex_factors(name, alpha, beta, rng):
    a, b, c = draw(rng, (6, 7), name), draw(rng, (7, 5), name), draw(rng, (6, 5), name)
    expected = evaluate(a, b, c, alpha=alpha, beta=beta)
    check(rocpy.matmul(a, b, c, alpha=alpha, beta=beta), expected)
    with rocpy.Matmul(a, b, c, alpha=alpha, beta=beta) as mm:
        check(mm.execute(), expected)
        mm.reset_operands(alpha=1 + 1j, beta=2j)
        check(mm.execute(), evaluate(a, b, c, alpha=1 + 1j, beta=2j))
        mm.reset_operands(beta=0.5)
        check(mm.execute(), evaluate(a, b, c, alpha=1 + 1j, beta=0.5))


@pytest.mark.parametrize("name", COMPLEX)
def test_c_is_not_read_without_a_factor(name):
    a = np.ones((3, 3), dtype_of(name))
    c = np.full((3, 3), np.nan + 1j * np.nan, dtype_of(name))
    assert (rocpy.matmul(a, a, c, beta=0) == 3).all()
    assert np.isnan(rocpy.matmul(a, a, c, beta=1j)).all()


def test_real_operands_take_no_complex_factors():
    a = np.ones((3, 3), np.float32)
    for name in ("alpha", "beta"):
        with pytest.raises(rocpy.InvalidOperandError, match=name):
            rocpy.matmul(a, a, a, **{name: 1j})
        with pytest.raises(rocpy.InvalidOperandError, match=name):
            rocpy.Matmul(a, a, a, **{name: 1j})
    with pytest.raises(rocpy.InvalidProblemError, match="beta = 1j scales c"):
        rocpy.matmul(a.astype(np.complex64), a.astype(np.complex64), beta=1j)
    for value in ("1j", None, object()):
        with pytest.raises(rocpy.InvalidOperandError, match="alpha"):
            rocpy.matmul(a.astype(np.complex64), a.astype(np.complex64), alpha=value)


@pytest.mark.parametrize("name", COMPLEX)
def test_bias(name, rng):
    a, b, bias = draw(rng, (6, 7), name), draw(rng, (7, 5), name), draw(rng, (5,), name)
    check(rocpy.matmul(a, b, epilogue="bias", bias=bias), evaluate(a, b, epilogue="bias", bias=bias))
    with pytest.raises(rocpy.InvalidProblemError, match="bias is float32"):
        rocpy.matmul(a, b, epilogue="bias", bias=np.ones(5, np.float32))


@pytest.mark.parametrize("epilogue", ["relu", "gelu", "sigmoid"])
def test_what_has_no_meaning_is_refused(epilogue):
    a = np.ones((3, 3), np.complex64)
    with pytest.raises((rocpy.UnsupportedError, rocpy.InvalidProblemError), match=epilogue):
        rocpy.matmul(a, a, epilogue=epilogue)


@pytest.mark.parametrize("name", COMPLEX)
def test_batches(name, rng):
    a, b = draw(rng, (2, 1, 4, 9), name), draw(rng, (3, 9, 5), name)
    check(rocpy.matmul(a, b), evaluate(a, b))


@pytest.mark.parametrize("name", COMPLEX)
def test_a_weight(name, rng):
    a, b = draw(rng, (6, 40), name), draw(rng, (40, 9), name)
    check(rocpy.matmul(a, rocpy.Weight(b), alpha=1j), evaluate(a, b, alpha=1j))
    check(rocpy.matmul(a, rocpy.Weight(b.T.copy(), layout="nk")), evaluate(a, b))


def test_few_rows_and_columns_in_every_layout(rng):
    seen = set()
    for few, many, k in [(1, 70, 1), (1, 1, 300), (2, 33, 5), (5, 40, 17), (16, 9, 64)]:
        for m, n in ((few, many), (many, few)):
            a, b = draw(rng, (m, k), "complex64"), draw(rng, (k, n), "complex64")
            expected = evaluate(a, b)
            for left, right in [(a, b), (np.asfortranarray(a), b), (a, np.asfortranarray(b))]:
                with rocpy.Matmul(left, right) as mm:
                    for algorithm in mm.plan():
                        seen.add(algorithm.name)
                        check(mm.execute(algorithm=algorithm), expected)
    if rocpy.platform.current().is_emulated:
        assert seen == {"complex-direct", "complex-blocked", "complex-skinny"}


def test_a_complex_operation_counts_four_times():
    a = np.ones((3, 4), np.complex64)
    with rocpy.Matmul(a, a.T) as mm:
        assert mm.problem.flops == 8 * 3 * 3 * 4


@pytest.mark.torch
@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("conj", ["a", "b", "ab"])
@pytest.mark.parametrize("lies", ["plain", "turned"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_lazy_conjugates(name, conj, lies, batch, rng, torch):
    a, b = draw(rng, (*batch, 6, 7), name), draw(rng, (*batch, 7, 5), name)
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    if lies == "turned":
        left, right = (x.mT.contiguous().mT for x in (left, right))
    left, right = (x.conj() if side in conj else x for side, x in (("a", left), ("b", right)))
    expected = evaluate(a.conj() if "a" in conj else a, b.conj() if "b" in conj else b, alpha=2j)
    d = rocpy.matmul(left, right, alpha=2j)
    assert not d.is_conj()
    check(d.numpy(), expected)
    with rocpy.Matmul(left, right, alpha=2j) as mm:
        if rocpy.platform.current().host_memory:  # elsewhere they are resolved on their way to the device
            assert mm.problem.conj_a == ("a" in conj)
            assert mm.problem.conj_b == ("b" in conj)
            # The transposing operation conjugates; what is not transposed is resolved by a copy.
            assert mm.copies == (() if lies == "turned" else tuple(conj))
        check(mm.execute().numpy(), expected)
    # The operands are as they were.
    assert left.is_conj() == ("a" in conj)


@pytest.mark.torch
def test_conjugate_transposes_are_not_copied(rng, torch):
    a, b = torch.from_numpy(draw(rng, (6, 7), "complex64")), torch.from_numpy(draw(rng, (5, 7), "complex64"))
    with rocpy.options(copies="error"):
        d = rocpy.matmul(a, b.mH)
        check(d.numpy(), evaluate(a.numpy(), b.numpy().conj().T))
        with pytest.raises(rocpy.UnsupportedError, match="b: "):
            rocpy.matmul(a, b.mH.contiguous().resolve_conj().conj())
    # The same shapes without the conjugate are another plan.
    check(rocpy.matmul(a, b.mT).numpy(), evaluate(a.numpy(), b.numpy().T))


@pytest.mark.torch
def test_lazily_negated_tensors_are_resolved(rng, torch):
    z = torch.from_numpy(draw(rng, (6, 6), "complex64"))
    negative = z.conj().imag
    assert negative.is_neg()
    check(rocpy.matmul(negative, negative).numpy(), evaluate(-z.imag.numpy(), -z.imag.numpy()))
    both = torch._neg_view(z.conj())
    check(rocpy.matmul(both, z).numpy(), evaluate(-z.numpy().conj(), z.numpy()))


@pytest.mark.torch
def test_conjugates_that_require_a_gradient_are_not_taken_as_memory(torch):
    z = torch.ones((3, 3), dtype=torch.complex64, requires_grad=True).conj()
    with pytest.raises(rocpy.UnsupportedError, match="grad"):
        rocpy.Matmul(z, z)
    with torch.no_grad():
        assert (rocpy.matmul(z, z) == 3).all()


@pytest.mark.torch
def test_conjugates_elsewhere_are_resolved(rng, torch):
    a, b, c = (torch.from_numpy(draw(rng, (5, 5), "complex64")) for _ in range(3))
    d = rocpy.matmul(a, b, c.conj(), beta=1j)
    check(d.numpy(), evaluate(a.numpy(), b.numpy(), c.numpy().conj(), beta=1j))
    with pytest.raises(rocpy.InvalidOperandError, match="out"):
        rocpy.matmul(a, b, out=torch.empty((5, 5), dtype=torch.complex64).conj())


def _aligned_to_a_part(x):
    """Return a copy that lies as far from its alignment as numpy allows."""
    part = x.real.dtype
    copy = np.zeros(2 * x.size + 3, part)
    begin = 1 if copy.ctypes.data % (2 * part.itemsize) == 0 else 2
    copy = copy[begin : begin + 2 * x.size].view(x.dtype).reshape(x.shape)
    copy[...] = x
    assert copy.flags.aligned
    assert copy.ctypes.data % x.itemsize
    return copy


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "out"])
def test_memory_that_is_aligned_to_the_parts(dtype, name):
    values = (np.arange(16).reshape(4, 4) + 1j).astype(dtype)
    operands = {"a": values, "b": values, "c": values, "bias": values[0], "out": np.zeros_like(values)}
    plain = dict(operands)
    operands[name] = _aligned_to_a_part(operands[name])
    wanted = rocpy.matmul(plain.pop("a"), plain.pop("b"), epilogue="bias", **plain).copy()
    out = operands.pop("out")
    a, b = operands.pop("a"), operands.pop("b")
    np.testing.assert_array_equal(rocpy.matmul(a, b, epilogue="bias", **operands, out=out), wanted)
    with rocpy.Matmul(a, b, epilogue="bias", **operands) as planned:
        np.testing.assert_array_equal(planned.execute(out=out), wanted)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_groups_whose_memory_is_aligned_to_the_parts(dtype):
    values = _aligned_to_a_part((np.arange(16).reshape(4, 4) + 1j).astype(dtype))
    (result,) = rocpy.grouped_matmul([values], [values])
    np.testing.assert_allclose(result, values @ values, rtol=1e-5)
