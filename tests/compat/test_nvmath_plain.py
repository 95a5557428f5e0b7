# SPDX-License-Identifier: MIT
"""``nvmath.linalg``'s plain product: structured operands, sequences, a c of one axis, and where it is computed."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy.compat import nvmath

linalg = nvmath.linalg
General, Diagonal = linalg.GeneralMatrixQualifier, linalg.DiagonalMatrixQualifier
Symmetric, Hermitian = linalg.SymmetricMatrixQualifier, linalg.HermitianMatrixQualifier
Triangular = linalg.TriangularMatrixQualifier
LOWER, UPPER = linalg.FillMode.LOWER, linalg.FillMode.UPPER


@pytest.fixture(params=["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def made(request):
    """Return what makes an operand of one package from numpy's array."""
    return np.asarray if request.param == "numpy" else request.getfixturevalue("torch").from_numpy


def rand(*shape, dtype=np.float64, seed=5):
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape)).astype(dtype) if np.dtype(dtype).kind == "c" else real.astype(dtype)


def close(result, expected):
    expected = np.asarray(expected)
    assert tuple(result.shape) == expected.shape
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-4)


def triangle(a, uplo, strict=False):
    return np.tril(a, -1 if strict else 0) if uplo == LOWER else np.triu(a, 1 if strict else 0)


def reference(a, kind, uplo, unit):
    """Return the matrix that a square array stands for."""
    inner, across = triangle(a, uplo, strict=True), np.eye(a.shape[-1])
    if kind is Triangular:
        return inner + (across if unit else a * across)
    if kind is Symmetric:
        return inner + inner.swapaxes(-1, -2) + a * across
    return inner + inner.conj().swapaxes(-1, -2) + a.real * across


# ---- structured operands ----


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("uplo", [LOWER, UPPER])
@pytest.mark.parametrize("kind", [Triangular, Symmetric, Hermitian])
def test_structured_operands(made, kind, uplo, dtype):
    """Only what the qualifier says is read: the rest is NaN here; on each side, conjugated and in batches."""
    skip_without(dtype)
    square, other = rand(3, 6, 6, dtype=dtype), rand(6, 4, dtype=dtype, seed=6)
    hidden = np.where(triangle(np.ones((6, 6)), uplo) > 0, square, np.nan).astype(dtype)
    for unit in (False, True) if kind is Triangular else (False,):
        extra = {"diag": linalg.DiagType(int(unit))} if kind is Triangular else {}
        full = reference(square, kind, uplo, unit)
        for conjugate in (False, True):
            mine = kind.create(conjugate=conjugate, uplo=uplo, **extra)
            seen = full.conj() if conjugate else full
            left = linalg.matmul(made(hidden), made(other), qualifiers=np.array([mine, General.create()]))
            close(left, seen @ other)
            right = linalg.matmul(made(other.T.copy()), made(hidden), qualifiers=np.array([General.create(), mine]))
            close(right, other.T @ seen)


def test_diagonals_are_vectors(made):
    a, d, c = rand(5, 7), rand(7, seed=8), rand(5, 7, seed=9)
    for incx, seen in ((1, d), (-1, d[::-1])):
        qualifiers = np.array([General.create(), Diagonal.create(incx=incx), General.create()])
        close(linalg.matmul(made(a), made(d), qualifiers=qualifiers[:2]), a * seen)
        close(linalg.matmul(made(a), made(d), made(c), beta=2.0, qualifiers=qualifiers), a * seen + 2 * c)
    first = np.array([Diagonal.create(), General.create()])
    close(linalg.matmul(made(d), made(a.T.copy()), qualifiers=first), d[:, None] * a.T)


def test_structured_operands_are_read_at_each_execution(made):
    a, b = made(rand(4, 4)), made(rand(4, 3, seed=6))
    before = np.array([Triangular.create(uplo=UPPER), General.create()])
    qualifiers = before.copy()
    with linalg.Matmul(a, b, qualifiers=qualifiers) as mm:
        mm.plan()
        close(mm.execute(), np.triu(np.asarray(a)) @ np.asarray(b))
        a[...] = 3 * a
        close(mm.execute(), np.triu(np.asarray(a)) @ np.asarray(b))
        other = made(rand(4, 4, seed=11))
        mm.reset_operands(a=other)
        close(mm.execute(), np.triu(np.asarray(other)) @ np.asarray(b))
        with pytest.raises(ValueError, match="shape"):
            mm.reset_operands(a=made(rand(4, 5)))
    assert (qualifiers == before).all()


def test_the_numbers_of_qualifiers():
    assert General.create().item() == ("ge", False, 2, 0, 0)
    assert General.create(conjugate=True).item() == ("ge", True, 2, 0, 0)
    assert Diagonal.create(incx=-1).item() == ("dg", False, 2, 0, -1)
    assert Hermitian.create().item() == ("he", False, 0, 0, 0)
    assert Symmetric.create(uplo=UPPER).item() == ("sy", False, 1, 0, 0)
    assert Triangular.create(diag=linalg.DiagType.UNIT).item() == ("tr", False, 0, 1, 0)
    assert General.create().dtype == linalg.matrix_qualifiers_dtype
    assert [(member.name, member.value) for member in linalg.SideMode] == [("LEFT", 0), ("RIGHT", 1)]
    both = np.array([Triangular.create(), Triangular.create()])
    assert Triangular.is_valid(both)
    assert not Symmetric.is_valid(both)
    assert Hermitian.to_string(Hermitian.create()) == "(he, conjugate=False, uplo=LOWER, diag=NON_UNIT, incx=0)"


A, B = rand(4, 4), rand(4, 4, seed=2)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (Triangular, RuntimeError, "create"),
        (lambda: Triangular.create(uplo=linalg.FillMode.FULL), ValueError, "uplo"),
        (lambda: Triangular.create(diag=7), ValueError, "diag"),
        (lambda: Diagonal.create(incx=2), ValueError, "incx"),
        (lambda: linalg.matmul(A[:3], B[:, :2], qualifiers=np.array([Symmetric.create()] * 2)), ValueError, "square"),
        (lambda: linalg.matmul(A, B, qualifiers=np.array([Diagonal.create()] * 2)), ValueError, "vector"),
        (lambda: linalg.matmul(A, B, qualifiers=np.array([General.create()])), ValueError, "one for each operand"),
        (lambda: linalg.matmul(A, B, A, beta=1.0, qualifiers=np.array([General.create()] * 2)), ValueError, "operand"),
        (lambda: linalg.matmul(A, B, A, beta=1.0, qualifiers=np.array([Symmetric.create()] * 3)), ValueError, "for c"),
        (lambda: linalg.matmul(A, B, qualifiers=np.zeros(2, linalg.matrix_qualifiers_dtype)), ValueError, "for a"),
        (lambda: linalg.matmul(A, B, qualifiers=General.create()), ValueError, "qualifiers"),
    ],
)
def test_qualifiers_that_make_no_sense(call, error, match):
    with pytest.raises(error, match=match) as caught:
        call()
    assert isinstance(caught.value, rocpy.RocpyError)


# ---- c ----


def test_c_has_the_results_shape_of_vectors_too(made):
    a, b = rand(4, 3), rand(3, 5)
    for left, right in ((a[0], b), (a, b[:, 0].copy()), (a[0], b[:, 0].copy())):
        product = left @ right
        c = np.full(product.shape, 2.0)
        close(linalg.matmul(made(left), made(right), made(c), beta=0.5), product + 1)
        kept = made(c.copy())
        assert linalg.matmul(made(left), made(right), kept, beta=0.5, options={"inplace": True}) is kept
        close(kept, product + 1)
        with pytest.raises(ValueError, match="c: got shape"):
            linalg.matmul(made(left), made(right), made(np.ones((9, 9))), beta=1.0)
    batch = rand(2, 4, 3)
    close(linalg.matmul(made(batch), made(b[:, 0].copy()), made(np.ones((2, 4))), beta=1.0), batch @ b[:, 0] + 1)


def test_the_result_lies_in_rows_only_where_both_operands_do():
    a, b = rand(4, 3), rand(3, 5)
    columns = np.asfortranarray
    assert linalg.matmul(a, b).flags.c_contiguous
    for left, right in ((columns(a), b), (a, columns(b)), (columns(a), columns(b))):
        result = linalg.matmul(left, right)
        assert result.flags.f_contiguous
        close(result, a @ b)
    assert linalg.matmul(columns(a), b, np.ones((4, 5)), beta=0.0).flags.c_contiguous


# ---- sequences ----


def test_sequences_of_operands_are_kept_and_reset(made):
    a, b = [rand(2, 3), rand(4, 3, seed=3)], [rand(3, 5, seed=4)]
    c = [rand(2, 5), rand(4, 5)]
    given = [[made(one) for one in many] for many in (a, b, c)]
    with linalg.Matmul(*given[:2], given[2], alpha=[1.0, 2.0], beta=0.5) as mm:
        mm.plan()
        for scale, left, add, result in zip((1, 2), a, c, mm.execute(), strict=True):
            close(result, scale * left @ b[0] + 0.5 * add)
        mm.reset_operands(b=[made(2 * b[0])], alpha=[0.0, 1.0])
        zero, one = mm.execute_unchecked()
        close(zero, 0.5 * c[0])
        close(one, 2 * a[1] @ b[0] + 0.5 * c[1])
        with pytest.raises(ValueError, match="b: 2 of them"):
            mm.reset_operands(b=[made(b[0]), made(b[0])])
        with pytest.raises(ValueError, match="a: it was shape"):
            mm.reset_operands(a=[made(7 * a[0]), made(a[0])])
        close(mm.execute()[1], 2 * a[1] @ b[0] + 0.5 * c[1])
        close(mm.execute()[0], 0.5 * c[0])


def test_a_reset_that_fails_in_one_product_changes_none():
    a = [rand(2, 3), rand(4, 3)]
    with linalg.Matmul(a, [rand(3, 5)]) as mm:
        mm.plan()
        before = mm.execute()
        with pytest.raises(ValueError, match="shape"):
            mm.reset_operands(a=[7 * a[0], a[0]])
        for result, expected in zip(mm.execute(), before, strict=True):
            np.testing.assert_array_equal(result, expected)


def test_sequences_with_qualifiers_and_in_place(made):
    a, b = [rand(4, 4), rand(3, 3)], [rand(4, 2), rand(3, 2)]
    c = [made(np.zeros((4, 2))), made(np.zeros((3, 2)))]
    qualifiers = [np.array([kind.create(), General.create(), General.create()]) for kind in (Triangular, General)]
    results = linalg.matmul(
        [made(x) for x in a], [made(x) for x in b], c, beta=0.0, qualifiers=qualifiers, options={"inplace": True}
    )
    assert all(result is kept for result, kept in zip(results, c, strict=True))
    close(c[0], np.tril(a[0]) @ b[0])
    close(c[1], a[1] @ b[1])
    with pytest.raises(ValueError, match="one c for each"):
        linalg.matmul([made(a[0])] * 2, [made(b[0])], [c[0]], beta=1.0, options={"inplace": True})


@pytest.mark.torch
def test_sequences_are_of_one_package(torch):
    with pytest.raises(TypeError, match="one package"):
        linalg.matmul([A, torch.from_numpy(A)], [B, torch.from_numpy(B)])


# ---- where it is computed ----


def test_executions_are_records_that_do_not_change():
    assert linalg.ExecutionCPU().name == "cpu"
    assert linalg.ExecutionCUDA(device_id=1) == linalg.ExecutionCUDA(device_id=1)
    assert (linalg.ExecutionCUDA.name, linalg.ExecutionCUDA().device_id) == ("cuda", 0)
    assert pickle.loads(pickle.dumps(linalg.ExecutionCPU(num_threads=3))).num_threads == 3
    for record in (linalg.ExecutionCPU(), linalg.ExecutionCUDA(), linalg.MatmulOptions()):
        for field in dataclasses.fields(record):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, field.name, 1)
    with pytest.raises(TypeError):
        linalg.ExecutionCPU(4)


def test_where_a_product_is_computed_is_told():
    for given, name in ((None, "cpu"), ("cpu", "cpu"), ("cuda", "cuda"), (linalg.ExecutionCUDA(), "cuda")):
        with linalg.Matmul(A, B, execution=given) as mm:
            assert mm.execution.name == (name if rocpy.platform.current().name == "host" else "cuda")


# ---- names ----


def test_the_numbers_of_enumerations():
    assert nvmath.ComputeType.COMPUTE_32F == 4
    assert nvmath.ComputeType.COMPUTE_TF32 == 4096
    assert linalg.ComputeType.COMPUTE_32F == linalg.advanced.MatmulComputeType.COMPUTE_32F == 68
    assert [member.value for member in nvmath.LibraryPropertyType] == [0, 1, 2]
    assert linalg.advanced.MatmulInnerShape.MMA16816 == 4
    with pytest.raises(ValueError, match="compute_type"):
        linalg.advanced.MatmulOptions(compute_type=nvmath.ComputeType.COMPUTE_32F)


ORDERS = [  # a, b, c as shapes and order, and whether the result lies in columns
    (((3, 1), "C"), ((1, 5), "C"), None, False),
    (((3, 1), "F"), ((1, 5), "F"), None, True),
    (((2, 3, 1), "C"), ((2, 1, 5), "C"), None, False),
    (((3, 4), "C"), ((4, 1), "C"), None, False),
    (((3, 4), "C"), ((4, 5), "F"), None, True),
    (((1, 4), "C"), ((4, 5), "C"), None, False),
    (((3, 4), "F"), ((4, 5), "F"), ((3, 5), "C"), False),
    (((3, 4), "C"), ((4, 5), "C"), ((3, 5), "F"), True),
    (((3, 4), "C"), ((4, 5), "C"), ((5,), "rows"), True),
    (((3, 4), "F"), ((4, 5), "F"), ((3, 1), "columns"), False),
]


@pytest.mark.parametrize("case", range(len(ORDERS)))
def test_the_result_lies_as_nvmaths_does(case, made):
    *operands, in_columns = ORDERS[case]
    arrays = []
    for operand in operands:
        if operand is None:
            arrays.append(None)
        elif operand[1] in "CF":
            shape = operand[0]
            array = rand(*shape) if operand[1] == "C" else rand(*shape[:-2], *shape[:-3:-1]).swapaxes(-1, -2)
            arrays.append(made(array))
        else:  # one row or column for all
            one = made(rand(*operand[0]))
            arrays.append(one.expand(3, 5) if hasattr(one, "expand") else np.broadcast_to(one, (3, 5)))
    a, b, c = arrays
    d = linalg.matmul(a, b) if c is None else linalg.matmul(a, b, c, beta=2.0)
    close(d, np.asarray(a) @ np.asarray(b) + (0 if c is None else 2 * np.asarray(c)))
    rows, columns = d.shape[-2:]
    if min(rows, columns) > 1:
        strides = d.stride() if hasattr(d, "stride") else tuple(stride // d.itemsize for stride in d.strides)
        assert strides[-2:] == ((1, rows) if in_columns else (columns, 1))
