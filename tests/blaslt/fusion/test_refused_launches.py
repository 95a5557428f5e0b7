# SPDX-License-Identifier: MIT
"""Products whose launch the library refuses after it offered algorithms: composed, once it is known without asking."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.errors import LibraryError, UnsupportedError
from rocpy.testing import Case, make_operands
from rocpy.testing.runner import check_outputs, dtype_of, keywords, reference, to_numpy, to_torch
from tests.support.presented import is_composed

RELU, RELU_BIAS, DGELU_BGRAD, BGRADA, BGRADB = 2, 6, 208, 256, 512
INVALID, INTERNAL, NOT_SUPPORTED = 3, 6, 7


def check(case, arrays, outputs):
    for name, found in check_outputs(reference(case, arrays), outputs, dtype_of(case.result_dtype)).items():
        assert found.ok, f"{name}: {found.message}"


def split(arrays):
    rest = {name: value for name, value in arrays.items() if name not in ("a", "b", "c")}
    return (arrays["a"], arrays["b"], arrays.get("c")), rest


@pytest.mark.parametrize("status", [INTERNAL, NOT_SUPPORTED])
@pytest.mark.parametrize("provider", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_a_gradient_of_few_rows_as_hipblaslt_0_11_0_has_it(status, provider, refusals, request):
    if provider == "torch":
        request.getfixturevalue("torch")
    refusals.of(DGELU_BGRAD, status, below=32)
    for n in (7, 31, 32, 40):
        case = Case(9, n, 14, epilogue="dgelu_bgrad", alpha=0.5)
        arrays = make_operands(case)
        given, rest = split({name: to_torch(x) if provider == "torch" else x for name, x in arrays.items()})
        before = refusals.count
        for _ in range(3):
            check(case, arrays, rocpy.matmul(*given, **rest, **keywords(case)))
        assert refusals.count - before == (n < 32), "it is asked once, and then known"
        explained = rocpy.explain(*given, **rest, **keywords(case))
        assert explained.algorithm.lowering == ("unfused" if n < 32 else "native")
        if n < 32:
            name = {INTERNAL: "HIPBLAS_STATUS_INTERNAL_ERROR", NOT_SUPPORTED: "HIPBLAS_STATUS_NOT_SUPPORTED"}[status]
            assert name in str(explained)


@pytest.mark.parametrize(("epilogue", "number"), [("relu_bias", RELU_BIAS), ("dgelu_bgrad", DGELU_BGRAD)])
def test_a_plan(epilogue, number, refusals):
    case = Case(9, 14, 11, epilogue=epilogue, beta=-1.0)
    arrays = make_operands(case)
    given, rest = split(arrays)
    with rocpy.Matmul(*given, **rest, **keywords(case)) as mm:
        named = mm.plan()[-1]
        check(case, arrays, mm.execute())
        refusals.of(number)
        with pytest.raises(LibraryError, match="INTERNAL_ERROR"):
            mm.execute(algorithm=named)  # of the user's own choice
        assert mm.unfused is None
        for _ in range(3):
            check(case, arrays, mm.execute())
        assert refusals.count == 2
        assert mm.algorithm.lowering == "unfused"
        out = np.empty_like(given[2])
        beside = mm.execute(out=out)
        check(case, arrays, (out, beside[1]) if isinstance(beside, tuple) else out)
        changed = {**arrays, "a": 2 * arrays["a"]}
        mm.reset_operands(a=changed["a"])
        check(case, changed, mm.execute())
    with rocpy.Matmul(*given, **rest, **keywords(case)) as mm:
        check(case, arrays, mm.execute())
    assert refusals.count == 2


def test_where_composing_is_forbidden_the_librarys_error_comes_out(refusals):
    a, b = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
    refusals.of(RELU)
    with rocpy.Matmul(a, b, epilogue="relu", options={"fallback": "error"}) as mm, pytest.raises(LibraryError):
        mm.execute()
    with pytest.raises((LibraryError, UnsupportedError), match=r"INTERNAL_ERROR"):
        rocpy.matmul(a, b, epilogue="relu", options={"fallback": "error"})


def test_other_errors_and_plain_products_are_as_they_were(refusals):
    a, b = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
    refusals.of(RELU, INVALID)
    for _ in range(2):
        with pytest.raises(LibraryError, match="INVALID_VALUE"):
            rocpy.matmul(a, b, epilogue="relu")
    refusals.of(1)
    for _ in range(2):
        with pytest.raises(LibraryError, match="INTERNAL_ERROR"):
            rocpy.matmul(a, b)
    assert refusals.count == 4
    refusals.of(0)
    assert rocpy.explain(a, b, epilogue="relu").algorithm.lowering == "native"


@pytest.mark.parametrize("planned", [False, True])
def test_a_captured_stream_cannot_hold_a_composition(planned, refusals):
    stream = rocpy.Stream()
    a, b = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
    refusals.of(RELU)
    with rocpy.Matmul(a, b, epilogue="relu") as mm:
        mm.plan()
        with pytest.raises(UnsupportedError, match="captured"), stream.capture():
            mm.execute(stream=stream) if planned else rocpy.matmul(a, b, epilogue="relu", stream=stream)
        fresh = rocpy.Stream()
        for result in (mm.execute(stream=fresh), rocpy.matmul(a, b, epilogue="relu", stream=fresh)):
            fresh.synchronize()
            np.testing.assert_array_equal(result, 5.0)


def test_lists_of_products(refusals, rng):
    lefts = [rng.standard_normal((m, 8), dtype=np.float32) for m in (3, 5, 0, 7)]
    right, bias = rng.standard_normal((8, 6), dtype=np.float32), rng.standard_normal(6, dtype=np.float32)
    refusals.status = lambda epilogue, rows, columns: INTERNAL if epilogue == RELU_BIAS and columns == 5 else 0
    for _ in range(2):
        found = rocpy.grouped_matmul(lefts, right, epilogue="relu_bias", bias=bias)
        for left, result in zip(lefts, found, strict=True):
            np.testing.assert_allclose(result, np.maximum(left @ right + bias, 0), rtol=1e-5, atol=1e-5)


FORMS = {"m": ((17, 8), (4, 8, 6)), "n": ((4, 5, 8), (8, 17)), "k": ((6, 17), (17, 5))}


@pytest.mark.parametrize("epilogue", ["relu_bias", "relu_aux"])
@pytest.mark.parametrize("with_out", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_packed_groups(form, streamed, with_out, epilogue, refusals, rng):
    if is_composed("float32", epilogue=epilogue):
        pytest.skip("composed on this release: the library is not asked for it")
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in FORMS[form])
    offsets = [0, 3, 8, 8, 15]  # two are of other sizes, one is empty, and the last two elements are of none
    bias = rng.standard_normal({"m": 6, "n": 17, "k": 5}[form], dtype=np.float32) if epilogue == "relu_bias" else None
    stream = rocpy.Stream() if streamed else None
    arguments = {"epilogue": epilogue, "offsets": offsets, "bias": bias, "stream": stream}

    def run():
        out = None if not with_out else np.full(shape, 9.0, np.float32)
        outputs = rocpy.grouped_matmul(a, b, out=out, **arguments)
        if streamed:
            stream.synchronize()
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        assert out is None or outputs[0] is out
        return [outputs[0], *(x for one in outputs[1:] for x in one.values())]

    shape = rocpy.grouped_matmul(a, b, offsets=offsets).shape
    wanted = run()
    refused = iter([False, True] + [False] * 1000)  # the second launch
    refusals.status = lambda number, rows, columns: INTERNAL if number & RELU and next(refused) else 0
    rocpy.plan_cache.clear()
    for found, exact in zip(run(), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
    assert refusals.count == 1
    refusals.status = lambda number, rows, columns: INTERNAL if number & RELU else 0
    for found, exact in zip(run(), wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
    with pytest.raises((LibraryError, UnsupportedError), match="INTERNAL_ERROR"):
        rocpy.grouped_matmul(a, b, options={"fallback": "error"}, **arguments)
    if not rocpy.platform.current().host_memory:
        return  # a graph holds no copies of arrays in CPU memory
    captured = rocpy.Stream()
    with pytest.raises((LibraryError, UnsupportedError), match="INTERNAL_ERROR"), captured.capture():
        rocpy.grouped_matmul(a, b, **{**arguments, "stream": captured})


@pytest.mark.parametrize("programs", ["with", "without"])
def test_epilogues_of_the_user(programs, refusals, rng, request):
    if programs == "without":
        request.getfixturevalue("without_programs")
    a, b, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((6, 8), (8, 7), (7,)))
    relu = rocpy.epilogue(lambda x, bias: np.maximum(x + bias, 0))
    refusals.of(RELU_BIAS)
    wanted = np.maximum(a @ b + bias, 0)
    with rocpy.Matmul(a, b, epilogue=relu, epilogue_inputs={"bias": bias}) as mm:
        assert mm.plan()[0].lowering == "native"
        for _ in range(2):
            np.testing.assert_allclose(mm.execute(), wanted, rtol=1e-5, atol=1e-5)
    for _ in range(2):
        np.testing.assert_allclose(
            rocpy.matmul(a, b, epilogue=relu, epilogue_inputs={"bias": bias}), wanted, rtol=1e-5, atol=1e-5
        )
    assert refusals.count == 1


def test_a_candidate_that_is_not_launched_is_not_chosen(refusals, rng, tmp_path, monkeypatch):
    from rocpy.blaslt.front.planned import planned_product
    from rocpy.blaslt.selection import tuning_state as _tuning_state
    from rocpy.tuning import Database, _live, database

    monkeypatch.setattr(database, "_current", Database([]))
    _tuning_state.changed()
    a, b = rng.standard_normal((64, 128), dtype=np.float32), rng.standard_normal((128, 256), dtype=np.float32)
    calls = iter(range(1 << 30))
    refusals.status = lambda epilogue, rows, columns: INTERNAL if epilogue == RELU and next(calls) < 2 else 0
    with planned_product(a, b, epilogue="relu") as mm:
        first = mm.plan()[0]
        with pytest.warns(rocpy.RocpyWarning, match="INTERNAL_ERROR"):
            report = _live.tune(mm, budget_ms=50.0)
        assert (report.best.id, report.best.name) != (first.id, first.name)
        np.testing.assert_allclose(to_numpy(mm.execute()), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


def test_a_c_that_was_overwritten_in_part_is_not_read_again(refusals, rng):
    """Several launches write a result into c; where the second fails, the first has changed c already."""
    if not rocpy.platform.current().host_memory:
        pytest.skip("the launches write into a copy of c on the device")
    a = rng.standard_normal((2, 3, 2, 4, 8), dtype=np.float32)[:, ::2]
    b = rng.standard_normal((2, 3, 2, 8, 5), dtype=np.float32)[:, ::2]
    c = rng.standard_normal((2, 2, 2, 4, 5), dtype=np.float32)
    launches = iter(range(1 << 30))
    refusals.status = lambda epilogue, rows, columns: INTERNAL if epilogue == RELU and next(launches) == 1 else 0
    with pytest.raises(LibraryError, match="INTERNAL_ERROR"):
        rocpy.matmul(a, b, c, epilogue="relu", out=c)
