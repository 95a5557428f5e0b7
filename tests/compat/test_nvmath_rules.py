# SPDX-License-Identifier: MIT
"""nvmath-python's rules: numbers of its enumerations, shapes, layouts, errors, and what is refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.compat import nvmath

advanced = nvmath.linalg.advanced
Epilog = advanced.MatmulEpilog


def rand(*shape):
    return np.random.default_rng(3).standard_normal(shape, dtype=np.float32)


def strides(array):
    return tuple(stride // array.itemsize for stride in array.strides)


def test_epilogs_are_the_sixteen_with_their_numbers():
    assert {member.name: member.value for member in Epilog} == {
        "DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36, "RELU_AUX": 130,
        "RELU_AUX_BIAS": 134, "DRELU": 136, "DRELU_BGRAD": 152, "GELU_AUX": 160, "GELU_AUX_BIAS": 164, "DGELU": 192,
        "DGELU_BGRAD": 208, "BGRADA": 256, "BGRADB": 512,
    }  # fmt: skip


def test_an_epilog_by_number_and_the_default_one():
    a, b = rand(4, 3), rand(3, 5)
    np.testing.assert_array_equal(advanced.matmul(a, b, epilog=2), advanced.matmul(a, b, epilog=Epilog.RELU))
    np.testing.assert_allclose(advanced.matmul(a, b, epilog=Epilog.DEFAULT), a @ b, rtol=1e-4, atol=1e-5)


# ---- layouts ----


@pytest.mark.parametrize("epilog", [None, Epilog.RELU, Epilog.GELU, Epilog.BGRADA])
def test_the_result_lies_as_a_does(epilog):
    a, b = rand(4, 3), rand(3, 5)
    for left, expected in ((a, (5, 1)), (np.asfortranarray(a), (1, 4))):
        result = advanced.matmul(left, b, epilog=epilog)
        assert strides(result[0] if isinstance(result, tuple) else result) == expected


def test_the_result_lies_as_c_does():
    a, b, c = rand(4, 3), rand(3, 5), rand(4, 5)
    assert strides(advanced.matmul(a, b, np.asfortranarray(c), beta=1.0)) == (1, 4)
    assert strides(advanced.matmul(np.asfortranarray(a), b, c, beta=1.0)) == (5, 1)


@pytest.mark.parametrize("epilog", [Epilog.RELU_AUX, Epilog.GELU_AUX, Epilog.BGRADB])
def test_other_epilogs_give_column_major_results_and_aux(epilog):
    result, auxiliary = advanced.matmul(rand(2, 20, 3), rand(3, 5), epilog=epilog)
    assert strides(result)[-2:] == (1, 20)
    for name, array in auxiliary.items():
        if name.endswith("_aux"):
            assert strides(array)[-2] == 1


def test_vectors_are_promoted_and_dropped():
    a, b = rand(4, 3), rand(3, 5)
    for left, right in ((a[0], b), (a, b[:, 0]), (a[0], b[:, 0])):
        result = advanced.matmul(left, right)
        assert isinstance(result, np.ndarray)
        assert result.shape == (left @ right).shape
        np.testing.assert_allclose(result, left @ right, rtol=1e-4, atol=1e-5)
    result = advanced.matmul(a[0], b, epilog=Epilog.BIAS, epilog_inputs={"bias": np.ones(1, np.float32)})
    np.testing.assert_allclose(result, a[0] @ b + 1, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("epilog", list(Epilog))
def test_thin_products_with_every_epilog(m, n, k, epilog):
    a, b, full = rand(m, k), rand(k, n), rand(m, n)
    bias = np.linspace(-1, 1, m, dtype=np.float32)
    inputs = {}
    if "BIAS" in epilog.name:
        inputs["bias"] = bias
    if epilog.name.startswith("D") and epilog != Epilog.DEFAULT:
        name = "relu_aux" if "RELU" in epilog.name else "gelu_aux"
        forward = Epilog.RELU_AUX if "RELU" in epilog.name else Epilog.GELU_AUX
        inputs[name] = advanced.matmul(full, np.eye(n, dtype=np.float32), epilog=forward)[1][name]
    result = advanced.matmul(a, b, epilog=epilog, epilog_inputs=inputs or None)
    before = a @ b + (bias[:, None] if "bias" in inputs else 0)
    result, auxiliary = result if isinstance(result, tuple) else (result, {})
    if epilog in (Epilog.DEFAULT, Epilog.BIAS, Epilog.BGRADA, Epilog.BGRADB):
        np.testing.assert_allclose(result, before, rtol=1e-4, atol=1e-5)
    elif "DRELU" in epilog.name:
        np.testing.assert_allclose(result, np.where(full > 0, before, 0), rtol=1e-4, atol=1e-5)
    elif "RELU" in epilog.name:
        np.testing.assert_allclose(result, np.maximum(before, 0), rtol=1e-4, atol=1e-5)
    for name, length in (("bgrada", m), ("bgradb", n), ("drelu_bgrad", m), ("dgelu_bgrad", m)):
        if name in auxiliary:
            assert auxiliary[name].shape == (length,)


# ---- what is refused ----

A, B, C = rand(4, 3), rand(3, 5), rand(4, 5)
BIAS = np.ones(4, np.float32)


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda: advanced.matmul(A, A), ValueError, "K is 3"),
        (lambda: advanced.matmul(A[:0], B), ValueError, "empty"),
        (lambda: advanced.matmul(rand(2, 4, 3), rand(1, 3, 5)), ValueError, "batch"),
        (lambda: advanced.matmul(A, B.astype(np.float64)), ValueError, "float64"),
        (lambda: advanced.matmul(A.astype(np.int8), B.astype(np.int8)), ValueError, "int8"),
        (lambda: advanced.matmul(A.astype(np.int64), B.astype(np.int64)), ValueError, "a: .*int64"),
        (lambda: nvmath.linalg.matmul(A, B.astype(bool)), ValueError, "b: .*bool"),
        (lambda: nvmath.linalg.matmul(A.astype(object), B), ValueError, "a: .*object"),
        (lambda: advanced.matmul(A, B, C.astype("M8[s]"), beta=1.0), ValueError, "c: .*datetime64"),
        (lambda: advanced.matmul([[1.0]], B), TypeError, "list"),
        (lambda: advanced.matmul(A, B, C), ValueError, "beta"),
        (lambda: advanced.matmul(A, B, C[0], beta=1.0), ValueError, "c: got shape"),
        (lambda: advanced.matmul(A, B, C[:1], beta=1.0), ValueError, "c: got shape"),
        (lambda: advanced.matmul(A, B, C[:, :1], beta=1.0, options={"inplace": True}), ValueError, "c: got shape"),
        (lambda: advanced.matmul(A, B, options={"inplace": True}), ValueError, "inplace"),
        (lambda: advanced.matmul(A, B, alpha="x"), ValueError, "alpha"),
        (lambda: advanced.matmul(A, B, alpha=1j), ValueError, "alpha"),
        (lambda: advanced.matmul(A, B, options={"compute_type": 70}), ValueError, "COMPUTE_64F"),
        (lambda: advanced.matmul(A, B, options={"compute_type": 12345}), ValueError, "compute_type"),
        (lambda: advanced.matmul(A, B, options={"scale_type": 1}), ValueError, "scale_type"),
        (lambda: advanced.matmul(A, B, options={"result_type": 9999}), ValueError, "result_type"),
        (lambda: advanced.matmul(A, B, options={"memory_limit": "many"}), ValueError, "memory_limit"),
        (lambda: advanced.matmul(A, B, options={"blocking": False}), ValueError, "blocking"),
        (lambda: advanced.matmul(A, B, options={"result_amax": True}), ValueError, "result_amax"),
        (lambda: advanced.matmul(A, B, options={"in_place": True}), TypeError, "in_place"),
        (lambda: advanced.matmul(A, B, options=3), TypeError, "options"),
        (lambda: advanced.matmul(A, B, epilog="relu"), ValueError, "epilog"),
        (lambda: advanced.matmul(A, B, epilog=Epilog.BIAS), ValueError, "bias"),
        (lambda: advanced.matmul(A, B, epilog=Epilog.RELU, epilog_inputs={"bias": BIAS}), ValueError, "bias"),
        (lambda: advanced.matmul(A, B, epilog=Epilog.BIAS, epilog_inputs={"bias": BIAS[:3]}), ValueError, "M = 4"),
        (lambda: advanced.matmul(A, B, epilog=Epilog.BIAS, epilog_inputs={"bias": [1.0] * 4}), TypeError, "bias"),
        (lambda: advanced.matmul(A, B, epilog=Epilog.DRELU, epilog_inputs={"relu_aux": C}), ValueError, "relu_aux"),
        (lambda: advanced.matmul(A, B, epilog=Epilog.DGELU, epilog_inputs={"gelu_aux": C}), ValueError, "gelu_aux"),
        (lambda: advanced.matmul(A, B, qualifiers=[1, 0, 0]), TypeError, "qualifiers"),
        (lambda: advanced.matmul(A, B, algorithm="best"), TypeError, "algorithm"),
        (lambda: advanced.MatmulEpilogPreferences(aux_amax=True), rocpy.UnsupportedError, "aux_amax"),
        (lambda: nvmath.linalg.Matmul([A], B), ValueError, "a: a sequence"),
        (lambda: nvmath.linalg.Matmul([A], [[B]]), ValueError, "b: it must"),
        (lambda: nvmath.linalg.Matmul([], []), ValueError, "a: it must"),
        (lambda: nvmath.linalg.matmul([A, A.astype("f8")], [B, B.astype("f8")]), ValueError, "one dtype"),
        (lambda: nvmath.linalg.matmul(A, B, options=[{}]), TypeError, "options"),
        (lambda: nvmath.linalg.matmul(A, B, execution=["cpu"]), TypeError, "execution"),
        (lambda: nvmath.linalg.matmul(A, B, execution={}), ValueError, "execution"),
        (lambda: nvmath.linalg.matmul(A, B, stream=[None]), TypeError, "stream"),
        (lambda: nvmath.linalg.matmul(A, B, alpha=[1.0]), ValueError, "alpha"),
        (lambda: nvmath.linalg.matmul(A, B, options={"blocking": False}), ValueError, "blocking"),
        (lambda: nvmath.linalg.matmul(A, B, options={"allocator": 3}), TypeError, "allocator"),
        (lambda: nvmath.linalg.matmul(A, B, C[:, :1], beta=1.0), ValueError, "c: got shape"),
        (lambda: advanced.matmul(A, B, qualifiers=np.zeros(3)), ValueError, "qualifiers"),
        (lambda: advanced.matmul(A[0], B, C[0], beta=1.0), ValueError, "c: got shape"),
        (lambda: advanced.matmul(A, B, C[:, 0].copy(), beta=1.0, options={"inplace": True}), ValueError, "c: got"),
        (lambda: nvmath.linalg.matmul([A, A, A], [B, B]), ValueError, "2 of them for 3"),
        (lambda: nvmath.linalg.matmul(A, B, execution="gpu"), ValueError, "execution"),
        (lambda: nvmath.linalg.matmul(A, B, qualifiers=np.zeros(2, "i4")), TypeError, "qualifiers"),
    ],
)  # fmt: skip
def test_mistakes_raise_nvmaths_kind_and_name_the_operand(call, error, named):
    with pytest.raises(error, match=named) as caught:
        call()
    assert isinstance(caught.value, rocpy.RocpyError)


def test_a_conjugated_c_is_refused():
    qualifiers = np.zeros(3, advanced.matrix_qualifiers_dtype)
    qualifiers["is_conjugate"][2] = 1
    with pytest.raises(ValueError, match="c cannot be conjugated"):
        advanced.matmul(A, B, C, beta=1.0, qualifiers=qualifiers)


def test_surplus_arguments_are_told():
    with pytest.warns(rocpy.RocpyWarning, match="beta"):
        advanced.matmul(A, B, beta=2.0)
    with pytest.warns(rocpy.RocpyWarning, match="epilog"):
        advanced.matmul(A, B, epilog_inputs={"bias": BIAS})


def test_integers_of_numpys_are_numbers():
    one = np.int64(1)
    assert advanced.MatmulPlanPreferences(limit=one).limit == 1
    assert advanced.MatmulOptions(memory_limit=one).workspace_bytes() == 1
    assert advanced.MatmulOptions(result_type=one * 0).result_dtype == "float32"
    with advanced.Matmul(A, B) as mm:
        mm.plan()
        mm.autotune(iterations=one, prune=one)
        assert len(mm.algorithms) == len(mm.applicable_algorithm_ids(one)) == 1
    scales = advanced.helpers.matmul.create_mxfp8_scale(np.zeros((128, 128), np.int8), one)
    assert scales[0] == 128


def test_none_is_the_default_where_nvmath_has_it_so():
    for kind in (advanced.MatmulOptions, advanced.MatmulPlanPreferences):
        given = ("sm_count_target", "fast_accumulation", "device_id", "memory_limit", "logger")
        if kind is advanced.MatmulPlanPreferences:
            given = ("reduction_scheme_mask", "max_waves_count", "numerical_impl_mask", "limit")
        assert kind(**dict.fromkeys(given)) == kind()
    d = nvmath.linalg.matmul(A, B, options=nvmath.linalg.MatmulOptions(logger=None))
    np.testing.assert_allclose(d, A @ B, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(1024, 1024), ("1024", 1024), ("12 MiB", 12 << 20), ("50MB", 50_000_000), ("1.5 KiB", 1536), ("2 b", 2)],
)
def test_memory_limits_are_read(limit, expected):
    assert advanced.MatmulOptions(memory_limit=limit).workspace_bytes() == expected


def test_memory_limits_as_parts_of_the_device():
    total = rocpy.Device().memory.total_bytes
    assert advanced.MatmulOptions(memory_limit=0.5).workspace_bytes() == total // 2
    assert advanced.MatmulOptions(memory_limit="100%").workspace_bytes() == total
    for wrong in (-1, 1.5, "120%", "1.5", "", True, None):
        if wrong is None:
            assert advanced.MatmulOptions(memory_limit=None).memory_limit == "80%"
        else:
            with pytest.raises(ValueError, match="memory_limit"):
                advanced.MatmulOptions(memory_limit=wrong)


@pytest.mark.torch
def test_packages_are_not_mixed(torch):
    for call in (
        lambda: advanced.matmul(A, torch.from_numpy(B)),
        lambda: advanced.matmul(A, B, epilog=Epilog.BIAS, epilog_inputs={"bias": torch.ones(4)}),
        lambda: advanced.matmul(torch.from_numpy(A), torch.from_numpy(B), C, beta=1.0),
    ):
        with pytest.raises(TypeError, match="package"):
            call()


@pytest.mark.torch
def test_a_gradient_is_not_dropped_in_silence(torch):
    a = torch.ones(4, 3, requires_grad=True)
    with pytest.raises(rocpy.UnsupportedError, match="grad"):
        advanced.matmul(a, torch.ones(3, 5))
    with torch.no_grad():
        assert advanced.matmul(a, torch.ones(3, 5)).shape == (4, 5)


def test_reproducible_is_asked_for_by_the_reduction_scheme():
    preferences = advanced.MatmulPlanPreferences(reduction_scheme_mask=advanced.MatmulReductionScheme.NONE)
    first = advanced.matmul(A, B, preferences=preferences)
    np.testing.assert_array_equal(advanced.matmul(A, B, preferences=preferences), first)


def _target(kind):
    base = np.ones((6, 3))
    match kind:
        case "overlaps itself":
            return base[:3], np.lib.stride_tricks.as_strided(np.ones(9), (3, 3), (8, 8))
        case "is one row":
            return base[:3], np.lib.stride_tricks.as_strided(np.ones(9), (3, 3), (0, 8))
        case "read-only":
            return base[:3], np.broadcast_to(np.ones((3, 3)), (3, 3))
        case "is a":
            return base[:3], base[:3]
        case _:
            return base[:3], base[2:5]


@pytest.mark.parametrize("kind", ["overlaps itself", "is one row", "read-only", "is a", "is a part of a"])
@pytest.mark.parametrize("module", [nvmath.linalg, nvmath.linalg.advanced], ids=["linalg", "advanced"])
def test_a_c_that_cannot_be_written_is_refused_by_name(module, kind):
    a, c = _target(kind)
    settings = {"beta": 1.0, "options": {"inplace": True}}
    with pytest.raises(ValueError, match="^c: ") as caught:
        module.Matmul(a, np.ones((3, 3)), c, **settings)
    assert isinstance(caught.value, rocpy.RocpyError)
    if not kind.startswith("is a"):
        with module.Matmul(a, np.ones((3, 3)), np.ones((3, 3)), **settings) as mm:
            with pytest.raises(ValueError, match="^c: "):
                mm.reset_operands(c=c)
            mm.plan()
            assert (mm.execute() == 4).all()


@pytest.mark.torch
@pytest.mark.parametrize("lazy", ["conj", "neg"])
@pytest.mark.parametrize("module", [nvmath.linalg, nvmath.linalg.advanced], ids=["linalg", "advanced"])
def test_a_lazy_c_cannot_be_written(module, lazy, torch):
    c = torch.ones(3, 3, dtype=torch.complex128).conj()
    c = c if lazy == "conj" else c.imag
    a = torch.ones(3, 3, dtype=c.dtype)
    with pytest.raises(ValueError, match="^c: .*cannot be written in place"):
        module.matmul(a, a, c, beta=1.0, options={"inplace": True})


ONES = np.ones((3, 3))
WRONG = {
    "alpha": (lambda module: module.matmul(ONES, ONES, alpha=10**400), ValueError, "alpha: an integer of 1329 bits"),
    "beta": (lambda module: module.matmul(ONES, ONES, ONES, beta=-(10**5000)), ValueError, "beta: an integer of"),
    "logger": (lambda module: module.matmul(ONES, ONES, options={"logger": 3}), TypeError, "logger: got int"),
    "a": (lambda module: module.matmul(None, ONES), TypeError, "a: got builtins.NoneType"),
    "b": (lambda module: module.matmul(ONES, None), TypeError, "b: got builtins.NoneType"),
    "c": (lambda module: module.matmul(ONES, ONES, 3, beta=1.0), TypeError, "c: got builtins.int"),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("module", [nvmath.linalg, nvmath.linalg.advanced], ids=["linalg", "advanced"])
def test_wrong_arguments_are_refused_by_name(module, name):
    call, kind, match = WRONG[name]
    with pytest.raises(kind, match=f"^{match}") as caught:
        call(module)
    assert isinstance(caught.value, rocpy.RocpyError)


@pytest.mark.parametrize("operands", [([ONES, None], [ONES, ONES]), ([ONES, ONES], [None, ONES]), ([None], [ONES])])
def test_a_sequence_without_an_operand_is_refused(operands):
    with pytest.raises(TypeError, match="^[ab]: got builtins.NoneType"):
        nvmath.linalg.matmul(*operands)


def test_wrong_arguments_of_a_planned_product_are_refused_by_name():
    with nvmath.linalg.advanced.Matmul(ONES, ONES) as mm:
        for limit in ("x", None, 1.5):
            with pytest.raises(rocpy.InvalidOperandError, match="^limit: got"):
                mm.applicable_algorithm_ids(limit)
        with pytest.raises(rocpy.InvalidOperandError, match="^algorithms: got int"):
            mm.plan(algorithms=3)
        mm.plan()
        with pytest.raises(rocpy.InvalidOperandError, match="^epilog_inputs: got int"):
            mm.reset_operands(epilog_inputs=3)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*nested tensors.*:UserWarning")
@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("module", [nvmath.linalg, nvmath.linalg.advanced], ids=["linalg", "advanced"])
def test_a_nested_tensor_is_refused_by_name(module, at, torch):
    operands = [torch.ones(3, 3)] * 3
    operands[at] = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)])
    with pytest.raises(rocpy.InvalidOperandError, match=f"^{'abc'[at]}: got a nested tensor"):
        module.matmul(*operands, beta=1.0)
