# SPDX-License-Identifier: MIT
"""reproducible=True and "batch": the same bits from run to run, and for a row whatever other rows there are."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from presented import skip_extension

import rocpy
from rocpy import dtypes
from rocpy.blaslt import supported
from rocpy.blaslt.model.problem import RESULT_TYPES
from rocpy.testing import ORACLES

ROWS = (1, 2, 17, 33, 128, 1024)
# Every type that a product of two equal types takes without block scales.
TYPES = tuple(
    name for name in RESULT_TYPES if dtypes.lookup(name).kind in ("float", "int") and dtypes.lookup(name).bits >= 8
)
RESULTS = [(name, result) for name in TYPES for result in RESULT_TYPES[name]]


def operands(name: str, rows: int, k: int, n: int):
    """Operands whose first rows are the same for every number of rows."""
    rng = np.random.default_rng(7)
    draw = (lambda shape: rng.integers(-127, 128, shape)) if name == "int8" else rng.standard_normal
    b = draw((k, n)).astype(dtypes.lookup(name).numpy)
    bias = rng.standard_normal(n)
    return draw((1024, k)).astype(dtypes.lookup(name).numpy)[:rows], b, bias


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize(
    "epilogue",
    ["default", "gelu_aux_bias", *(pytest.param(x, marks=pytest.mark.slow) for x in ("bias", "gelu_bias", "relu"))],
)
@pytest.mark.parametrize("packed", [False, True], ids=["array", "weight"])
@pytest.mark.parametrize(("name", "result"), RESULTS)
def test_a_row_does_not_depend_on_the_number_of_rows(name, result, packed, epilogue):
    if dtypes.lookup(result).kind == "int" and epilogue not in ("default", "relu"):
        pytest.skip("an integer result has no float bias")
    quantized = name.startswith("float8") or (name == "int8" and dtypes.lookup(result).kind == "float")
    kinds = {"scale_a": "scalar", "scale_b": "scalar"} if quantized else {}
    answer = supported(name, dtype=result, epilogue=epilogue, options={"reproducible": "batch"}, **kinds)
    if not answer:
        skip_extension(name, dtype=result, epilogue=epilogue, **kinds)
    assert answer, str(answer)
    k, n = 300, 80
    scales = dict.fromkeys(kinds, 1.0)
    seen = []
    for rows in ROWS:
        a, b, bias = operands(name, rows, k, n)
        given = {"bias": bias.astype(dtypes.lookup("float32" if result.startswith("float8") else result).numpy)}
        right = rocpy.Weight(b) if packed else b
        with rocpy.options(reproducible="batch"):
            more = {**scales, **(given if ORACLES[epilogue].bias else {})}
            found = rocpy.matmul(a, right, dtype=result, epilogue=epilogue, **more)
        parts = (found[0], *found[1].values()) if isinstance(found, tuple) else (found,)
        seen.append([bits(part[0]) for part in parts])
        assert all(bits(part[rows // 2]) for part in parts)
    assert all(row == seen[0] for row in seen)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
def test_every_row_and_long_sums(name):
    k, n = 5000, 33
    a, b, _ = operands(name, 64, k, n)
    with rocpy.options(reproducible="batch"):
        whole = rocpy.matmul(a, b)
        for rows in (1, 3, 8, 40):
            np.testing.assert_array_equal(rocpy.matmul(a[:rows], b), whole[:rows])
            np.testing.assert_array_equal(rocpy.matmul(a[7 : 7 + rows], b), whole[7 : 7 + rows])


def test_packed_or_not_and_batched_or_not():
    a, b, _ = operands("float32", 128, 300, 80)
    with rocpy.options(reproducible="batch"):
        whole = rocpy.matmul(a, b)
        np.testing.assert_array_equal(rocpy.matmul(a, rocpy.Weight(b)), whole)
        np.testing.assert_array_equal(rocpy.matmul(a.reshape(8, 16, 300), b).reshape(128, 80), whole)
        np.testing.assert_array_equal(rocpy.matmul(a.reshape(128, 1, 300), b).reshape(128, 80), whole)
        np.testing.assert_array_equal(rocpy.matmul(a[0], b), whole[0])
        # An out that lies in columns: its rows are the library's columns.
        out = np.empty((80, 128), np.float32).T
        np.testing.assert_array_equal(rocpy.matmul(a, b, out=out), whole)


def test_a_bias_per_row():
    a, b, _ = operands("float32", 128, 300, 80)
    bias = np.arange(128, dtype=np.float32)[:, None]
    with rocpy.options(reproducible="batch"):
        whole = rocpy.matmul(a, b, epilogue="relu_bias", bias=bias)
        for rows in (1, 2, 17):
            found = rocpy.matmul(a[:rows], b, epilogue="relu_bias", bias=bias[:rows])
            np.testing.assert_array_equal(found, whole[:rows])


def test_other_rows_and_their_values_do_not_matter():
    a, b, _ = operands("float32", 128, 300, 80)
    with rocpy.options(reproducible="batch"):
        first = rocpy.matmul(a, b)[:2]
        a = a.copy()
        a[2:] = np.nan
        np.testing.assert_array_equal(rocpy.matmul(a, b)[:2], first)


@pytest.mark.parametrize("name", ["float32", "float8_e4m3fn"])
def test_what_is_nan_is_so_beside_any_rows(name):
    a, b = (np.ones(shape, dtypes.lookup(name).numpy) for shape in ((40, 64), (64, 48)))
    a[:, 0], b[1, ::2] = np.nan, -np.nan  # of which one has to be taken
    scales = {} if name == "float32" else {"scale_a": 1.0, "scale_b": 1.0}
    with rocpy.options(reproducible="batch"):
        for rows in range(1, 41):
            assert np.isnan(rocpy.matmul(a[:rows], b, dtype="float32", **scales)).all()


def test_the_plan_lists_only_what_is_promised():
    a, b, _ = operands("float32", 1, 4096, 512)
    with rocpy.Matmul(a, b) as free, rocpy.Matmul(a, b, options={"reproducible": "batch"}) as bound:
        everything = {(one.id, one.name) for one in free.plan()}
        promised = {(one.id, one.name) for one in bound.plan()}
        assert promised < everything
        assert bound.algorithm.source == "reproducible"
        results = [bits(bound.execute(algorithm=one)) for one in bound.algorithms]
        assert len(set(results)) == 1
        (other, *_) = everything - promised
        lost = next(one for one in free.algorithms if (one.id, one.name) == other)
        with pytest.raises(rocpy.InvalidProblemError):
            bound.execute(algorithm=lost)


def test_explain_and_supported_say_so():
    a, b, _ = operands("float32", 4, 64, 64)
    assert rocpy.explain(a, b, options={"reproducible": True}).source == "reproducible"
    assert supported("float32", options={"reproducible": "batch"})


def test_what_cannot_be_promised_is_refused(without_programs):
    a, b, bias = operands("float32", 4, 64, 64)
    with pytest.raises(rocpy.UnsupportedError, match=r"reproducible='batch'.*gelu_erf.*framework"):
        rocpy.matmul(a, b, epilogue="gelu_erf", options={"reproducible": "batch"})
    answer = supported("float32", epilogue="gelu_erf_bias", options={"reproducible": "batch"})
    assert not answer
    assert "gelu_erf" in answer.reasons[0]
    # From run to run a framework's own operations do repeat.
    one = rocpy.matmul(a, b, epilogue="gelu_erf_bias", bias=bias.astype(np.float32), options={"reproducible": True})
    two = rocpy.matmul(a, b, epilogue="gelu_erf_bias", bias=bias.astype(np.float32), options={"reproducible": True})
    assert bits(one) == bits(two)


def test_a_platform_that_promises_nothing(platform_functions, fresh_plan_cache):
    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 8)
    def nothing(*arguments):
        ctypes.c_uint32.from_address(arguments[-1]).value = 0
        return 0

    a = np.ones((3, 3))
    with platform_functions.replaced({"rocpyExtAlgoTraits": nothing}):
        for value in (True, "batch"):
            with pytest.raises(rocpy.UnsupportedError, match=f"guarantees reproducible={value!r}"):
                rocpy.matmul(a, a, options={"reproducible": value})
            assert not supported("float32", options={"reproducible": value})
        assert rocpy.matmul(a, a)[0, 0] == 3.0


SCRIPT = """
import hashlib, numpy as np, rocpy
digest = hashlib.sha256()
rng = np.random.default_rng(3)
for shape in ((1, 512, 4096), (8, 512, 2048), (64, 96, 300), (300, 200, 100), (4, 4, 9000)):
    m, n, k = shape
    a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    for value in (True, "batch"):
        with rocpy.options(reproducible=value):
            digest.update(rocpy.matmul(a, b, epilogue="gelu_bias", bias=b[0]).tobytes())
            d, sums = rocpy.matmul(a, b, epilogue="drelu_bgrad", aux=rng.standard_normal((m, n), dtype=np.float32))
            digest.update(d.tobytes() + sums["bgrad"].tobytes())
print(digest.hexdigest())
"""


def digest_of(**environment: str) -> str:
    """Return what the script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_run_to_run_whatever_the_threads():
    expected = digest_of(ROCPY_NUM_THREADS="1")
    assert len(expected) == len(hashlib.sha256().hexdigest())
    for environment in ({"ROCPY_NUM_THREADS": "2"}, {"ROCPY_NUM_THREADS": "2", "ROCPY_HOST_STRESS": "1"}, {}):
        assert digest_of(**environment) == expected


def test_run_to_run_beside_other_work():
    a, b, _ = operands("float32", 64, 700, 96)
    expected = bits(rocpy.matmul(a, b, options={"reproducible": True}))
    results = []

    def work():
        with rocpy.options(reproducible=True):
            results.extend(bits(rocpy.matmul(a, b)) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 80


def rows_of(values, scale, rows):
    """Return the first rows of an operand with their scales, whichever form these have."""
    return values[:rows], scale if np.ndim(scale) == 0 else scale[:rows]


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("epilogue", ["default", "relu", "gelu_bias"])
@pytest.mark.parametrize("of_b", [-2, None], ids=["by column", "one"])
@pytest.mark.parametrize("form", ["function", "plan", "weight", "groups"])
def test_one_row_with_a_scale_of_its_own(kind, columns, epilogue, of_b, form):
    rng = np.random.default_rng(1)
    keywords = {"dtype": "float32", "epilogue": epilogue, "alpha": 0.7, "options": {"reproducible": "batch"}}
    if epilogue == "gelu_bias":
        keywords["bias"] = rng.standard_normal(columns, dtype=np.float32)
    if not supported(kind, dtype="float32", epilogue=epilogue, scale_a="vector", scale_b="vector",
                     options={"reproducible": "batch"}):  # fmt: skip
        skip_extension(kind, dtype="float32", epilogue=epilogue, scale_a="vector", scale_b="vector")

    def product(a, scale_a, b, scale_b):
        if form == "plan":
            with rocpy.Matmul(a, b, scale_a=scale_a, scale_b=scale_b, **keywords) as planned:
                return planned.execute()
        if form == "weight":
            return rocpy.matmul(a, rocpy.Weight(b, scale=scale_b), scale_a=scale_a, **keywords)
        if form == "groups":
            return rocpy.grouped_matmul([a], [b], scale_a=[scale_a], scale_b=[scale_b], **keywords)[0]
        return rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, **keywords)

    for _ in range(20):
        a, scale_a = rocpy.quantize(rng.standard_normal((4, 64), dtype=np.float32), kind, axis=-1)
        b, scale_b = rocpy.quantize(rng.standard_normal((64, columns), dtype=np.float32), kind, axis=of_b)
        whole = product(a, scale_a, b, scale_b)
        for scales in (scale_a, scale_a[:, 0]):
            assert bits(product(*rows_of(a, scales, 1), b, scale_b)) == bits(whole[:1])
        one = np.float32(0.3).reshape(1, 1)
        assert bits(product(a[:1], one, b, scale_b)) == bits(product(a, one, b, scale_b)[:1])


def test_one_row_of_groups_with_a_scale_of_its_own():
    rng = np.random.default_rng(2)
    options = {"reproducible": "batch"}
    for _ in range(20):
        a, scale_a = rocpy.quantize(rng.standard_normal((4, 64), dtype=np.float32), "int8", axis=-1)
        b, scale_b = rocpy.quantize(rng.standard_normal((1, 64, 1), dtype=np.float32), "int8", axis=-2)
        keywords = {"scale_b": scale_b, "dtype": "float32", "alpha": 0.7, "options": options}
        whole = rocpy.grouped_matmul(a, b, offsets=[0, 4], scale_a=scale_a, **keywords)
        alone = rocpy.grouped_matmul(a[:1], b, offsets=[0, 1], scale_a=scale_a[:1], **keywords)
        assert bits(alone) == bits(whole[:1])


@pytest.mark.parametrize("name", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("promise", [True, "batch"])
def test_the_bits_do_not_depend_on_how_out_lies(name, promise):
    if not supported(name, options={"reproducible": promise}):
        skip_extension(name)
    a, b = (random_of(name, shape, seed) for seed, shape in enumerate([(8, 200), (200, 200)]))
    keywords = {"options": {"reproducible": promise}}
    wanted = rocpy.matmul(a, b, **keywords)
    with rocpy.Matmul(a, b, **keywords) as planned:
        for order in "CF":
            out = np.zeros_like(wanted, order=order)
            assert bits(rocpy.matmul(a, b, out=out, **keywords)) == bits(wanted)
            assert bits(planned.execute(out=out)) == bits(wanted)


def random_of(name, shape, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if name.startswith("complex") else values).astype(name)
