# SPDX-License-Identifier: MIT
"""Older ROCm releases as the host platform presents them: versions, gaps, attribute numbers, and rocpy on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

# Release -> versions of HIP and hipBLASLt, rows of hipBLASLt that are missing.
SM_COUNT = ["hipblasLtSetSmCountTarget", "hipblasLtGetSmCountTarget"]
DRAIN = ["hipblasLtCheckNumericsDrain"]
RELEASES = {
    "6.4": ("6.4.0", "0.12.1", [*SM_COUNT, *DRAIN]),
    "7.0": ("7.0.0", "1.0.0", [*SM_COUNT, *DRAIN]),
    "7.2": ("7.2.0", "1.2.2", [*SM_COUNT, *DRAIN]),
    "10.0": ("7.15.0", "1.4.1", []),
}
OLD, REUSED, CURRENT = "6.4", "7.0", "10.0"


def run(release, program, **environment):
    """What a program leaves in `result`, in a process that sees the release."""
    source = "import json\nresult = {}\n" + textwrap.dedent(program) + "\nprint(json.dumps(result))\n"
    variables = {**os.environ, "ROCPY_PLATFORM": "host", "ROCPY_HOST_ABI": release, **environment}
    done = subprocess.run(
        [sys.executable, "-P", "-c", source], capture_output=True, text=True, env=variables, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_versions_and_missing_rows(release):
    found, _ = run(
        release,
        """
        import rocpy
        from rocpy import _core
        rocpy.platform.current()
        _core.probe_versions()
        result["versions"] = [row[3] for row in _core.library_facts()]
        result["missing"] = {name: sorted(names) for name, names in rocpy.platform.missing().items()}
        result["presented"] = rocpy.platform.current().info["rocm_abi"]
        """,
    )
    hip, lt, missing = RELEASES[release]
    major, minor, patch = map(int, hip.split("."))
    assert found["versions"][0] == major * 10_000_000 + minor * 100_000 + patch
    major, minor, patch = map(int, lt.split("."))
    assert found["versions"][1] == major * 100_000 + minor * 100 + patch
    assert (found["missing"]["hip"], found["missing"]["hipblaslt"]) == ([], sorted(missing))
    assert ("ncclCommShrink" in found["missing"]["rccl"]) == (release in ("6.4", "7.0"))
    assert ("ncclCommRevoke" in found["missing"]["rccl"]) == (release != CURRENT)
    assert found["presented"] == release


def test_an_unknown_release_is_refused():
    found, _ = run(
        "9.9",
        """
        import rocpy
        try:
            rocpy.platform.current()
        except rocpy.InvalidProblemError as error:
            result["message"] = str(error)
        """,
    )
    assert found["message"] == "ROCPY_HOST_ABI: got '9.9', expected 6.4, 7.0, 7.2 or 10.0"


ATTRIBUTES = """
import ctypes, pathlib, rocpy
folder = pathlib.Path(rocpy.platform.current().libraries["hipblaslt"].path)
lt = ctypes.CDLL(str(folder))
desc = ctypes.c_void_p()
assert lt.hipblasLtMatmulDescCreate(ctypes.byref(desc), 2, 0) == 0
buffer = (ctypes.c_char * 8)()
for attribute in (8, 14, 31, 32, 33, 100, 102, 103, 104):
    result[attribute] = [lt.hipblasLtMatmulDescSetAttribute(desc, attribute, buffer, ctypes.c_size_t(size))
                         for size in (4, 8)]
layout = ctypes.c_void_p()
one = ctypes.c_uint64(1)
assert lt.hipblasLtMatrixLayoutCreate(ctypes.byref(layout), 0, one, one, one) == 0
result["batch mode"] = lt.hipblasLtMatrixLayoutSetAttribute(layout, 7, buffer, ctypes.c_size_t(4))
"""


@pytest.mark.parametrize("release", RELEASES)
def test_attribute_numbers(release):
    found, _ = run(release, ATTRIBUTES)
    number, pointer, absent = [0, 0], [3, 0], [3, 3]
    modes = absent if release == OLD else number
    latest = number if release == CURRENT else absent
    assert found == {
        "8": pointer,
        "14": pointer,
        "31": modes,
        "32": modes,
        "33": latest,
        "100": number,
        # A pointer to the factors of rows and columns until 1.0, and from 1.1 on a bound of clamp.
        "102": {OLD: pointer, REUSED: absent}.get(release, number),
        "103": {OLD: pointer, REUSED: absent}.get(release, number),
        "104": latest,
        "batch mode": 0 if release == CURRENT else 3,
    }


PRODUCTS = """
import numpy as np, ml_dtypes, rocpy
generator = np.random.default_rng(1)
a = generator.standard_normal((24, 40), dtype=np.float32)
b = generator.standard_normal((40, 32), dtype=np.float32)
y = a.astype(np.float64) @ b
wanted = {
    "default": y, "relu": np.maximum(y, 0), "silu": y / (1 + np.exp(-y)), "sigmoid": 1 / (1 + np.exp(-y)),
    "clamp": np.clip(y, -1, 2), "drelu": np.where(y[::-1] > 0, y, 0), "drelu_bgrad": np.where(y[::-1] > 0, y, 0),
}
for name, values in wanted.items():
    more = {"clamp": (-1.0, 2.0)} if name == "clamp" else {}
    more |= {"aux": y[::-1].astype(np.float32)} if name.startswith("drelu") else {}
    got = rocpy.matmul(a, b, epilogue=name, **more)
    if name == "drelu_bgrad":
        got, extra = got
        result["sums"] = float(np.max(np.abs(extra["bgrad"] - values.sum(axis=0))))
    result[name] = float(np.max(np.abs(got - values)))
    try:
        with rocpy.options(fallback="error"):
            rocpy.matmul(a, b, epilogue=name, **more)
        result[name + " fused"] = True
    except rocpy.UnsupportedError:
        result[name + " fused"] = False
eight = ml_dtypes.float8_e4m3fn
a8, b8 = a.astype(eight), b.astype(eight)
rows = generator.uniform(0.5, 2, (24, 1)).astype(np.float32)
columns = generator.uniform(0.5, 2, (1, 32)).astype(np.float32)
got = rocpy.matmul(a8, b8, scale_a=rows, scale_b=columns, dtype="float32")
exact = (a8.astype(np.float64) * rows) @ (b8.astype(np.float64) * columns)
result["scales"] = float(np.max(np.abs(got - exact)))
x, scale_x = rocpy.quantize_mx(generator.standard_normal((24, 64)), "float4_e2m1fn")
w, scale_w = rocpy.quantize_mx(generator.standard_normal((64, 32)), "float8_e5m2", axis=-2)
got = rocpy.matmul(x, w, scale_a=scale_x, scale_b=scale_w, dtype="float32")
exact = rocpy.dequantize_mx(x, scale_x, "float64") @ rocpy.dequantize_mx(w, scale_w, "float64", axis=-2)
result["blocks"] = float(np.max(np.abs(got - exact)))
with rocpy.Matmul(x, w, scale_a=scale_x, scale_b=scale_w, dtype="float32") as mm:
    result["blocks planned"] = bool(np.array_equal(mm.execute(), got))
    mm.reset_operands(a=x[::-1].copy(), scale_a=scale_x[::-1].copy())
    result["blocks reset"] = float(np.max(np.abs(mm.execute() - exact[::-1])))
kinds = {"scale_a": "block32", "scale_b": "block32"}
result["blocks lowering"] = rocpy.blaslt.supported("float4_e2m1fn", "float8_e5m2", **kinds).lowering
c = (a + 1j * a[::-1]).astype(np.complex64)
try:
    result["complex"] = float(np.max(np.abs(rocpy.matmul(c, b.astype(np.complex64)) - c.astype(np.complex128) @ b)))
except rocpy.UnsupportedError as error:
    result["complex"] = str(error)
"""


@pytest.mark.parametrize("release", RELEASES)
def test_products(release):
    """What the release lacks is composed or refused; nothing is answered wrongly."""
    found, _ = run(release, PRODUCTS)
    for name in ("default", "relu", "silu", "sigmoid", "clamp", "drelu", "drelu_bgrad", "sums"):
        assert found[name] < 1e-4, name
    assert found["relu fused"]
    assert found["silu fused"] == (release != OLD)
    assert found["sigmoid fused"] == (release not in (OLD, REUSED))
    assert found["drelu fused"] == found["drelu_bgrad fused"] == (release == CURRENT)
    assert found["clamp fused"] == (release not in (OLD, REUSED))
    assert found["scales"] < 1e-3
    assert found["blocks"] < 1e-4
    assert found["blocks planned"]
    assert found["blocks reset"] < 1e-4
    assert found["blocks lowering"] == ("unfused" if release == OLD else "native")
    if release == CURRENT:
        assert found["complex"] < 1e-4
    else:
        assert "complex64" in found["complex"]


RELATIVES = """
import numpy as np, rocpy
generator = np.random.default_rng(2)
kinds = {"scale_a": "block32", "scale_b": "block32"}
x, scale_x = rocpy.quantize_mx(generator.standard_normal((24, 64)), "float8_e4m3fn")
w, scale_w = rocpy.quantize_mx(generator.standard_normal((64, 32)), "float8_e5m2", axis=-2)
exact = rocpy.dequantize_mx(x, scale_x, "float64") @ rocpy.dequantize_mx(w, scale_w, "float64", axis=-2)
scales = {"scale_a": scale_x, "scale_b": scale_w, "dtype": "float32"}
own = rocpy.epilogue(lambda y: y * 2 + 1)
after = exact / (1 + np.exp(-exact))
result["own"] = float(np.max(np.abs(rocpy.matmul(x, w, epilogue=own, **scales) - (exact * 2 + 1))))
with rocpy.Matmul(x, w, epilogue=own, **scales) as mm:
    result["ways"] = sorted({one.lowering for one in mm.plan()})
    result["own planned"] = max(
        float(np.max(np.abs(mm.execute(algorithm=one) - (exact * 2 + 1)))) for one in mm.algorithms
    )
answer = rocpy.blaslt.supported("float8_e4m3fn", "float8_e5m2", dtype="float32", epilogue=own, **kinds)
result["own asked"] = answer.lowering
got, beside = rocpy.matmul(x, w, epilogue="silu_aux", **scales)
result["stand-in"] = float(np.max(np.abs(got - after)) + np.max(np.abs(beside["silu_aux"] - exact)))
answer = rocpy.blaslt.supported("float8_e4m3fn", "float8_e5m2", dtype="float32", epilogue="silu_aux", **kinds)
result["stand-in asked"] = answer.lowering
a, b, bias = (generator.standard_normal(shape) for shape in ((12, 8), (4, 8, 6), (4, 6)))
groups = [a[3 * i : 3 * i + 3] @ b[i] + bias[i] for i in range(4)]
marks = [0, 3, 6, 9, 12]
got = rocpy.grouped_matmul(a, b, offsets=marks, epilogue="bias", bias=bias)
result["rows"] = float(np.max(np.abs(got - np.concatenate(groups))))
matrices, columns, along = b.swapaxes(1, 2).copy(), a.reshape(8, 12), a[:, 0].copy()
got = rocpy.grouped_matmul(matrices, columns, offsets=marks, epilogue="bias", bias=along)
wanted = [matrices[i] @ columns[:, 3 * i : 3 * i + 3] + along[3 * i : 3 * i + 3] for i in range(4)]
result["columns"] = float(np.max(np.abs(got - np.concatenate(wanted, axis=1))))
left, right, sums = a.reshape(8, 12), generator.standard_normal((12, 6)), generator.standard_normal((4, 6))
got = rocpy.grouped_matmul(left, right, offsets=marks, epilogue="bias", bias=sums)
wanted = [left[:, 3 * i : 3 * i + 3] @ right[3 * i : 3 * i + 3] + sums[i] for i in range(4)]
result["sums"] = float(np.max(np.abs(got - np.stack(wanted))))
shared = rocpy.grouped_matmul(a, b, offsets=marks, epilogue="bias", bias=bias[0])
result["shared"] = float(np.max(np.abs(shared - np.concatenate([y - bias[i] + bias[0] for i, y in enumerate(groups)]))))
"""


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_lacks_is_lacking_in_every_kind_of_product(release):
    """Under an epilogue of the user's, a stand-in for one, and in groups: no stride of biases, no scales by blocks."""
    found, _ = run(release, RELATIVES)
    composed = release == OLD
    assert found["own"] < 1e-4
    assert found["own planned"] < 1e-4
    assert found["ways"] == (["unfused"] if composed else ["fused", "unfused"])
    assert found["own asked"] == ("unfused" if composed else "fused")
    assert found["stand-in"] < 1e-4
    assert found["stand-in asked"] == ("unfused" if composed else "fused")
    for form in ("rows", "columns", "sums", "shared"):
        assert found[form] < 1e-12, form


# The part of the product's tests that meets what releases differ in: epilogues, types and scales. `make test-abi` runs
# all of them. What a release lacks the tests learn from rocpy.blaslt.supported.
SUBSET = (
    "tests/blaslt/products/test_complex.py",
    "tests/blaslt/fusion/test_fallback.py",
    "tests/blaslt/scales/test_grouped_scales.py",
    "tests/blaslt/scales/test_mx.py",
    "tests/blaslt/products/test_out_dtype.py",
    "tests/blaslt/plans/test_plans.py",
    "tests/blaslt/scales/test_scales.py",
    "tests/blaslt/fusion/test_supported.py",
    "tests/blaslt/products/test_types.py",
    "tests/property/test_types_properties.py",
)


@pytest.mark.slow
@pytest.mark.parametrize("release", [release for release in RELEASES if release != CURRENT])
def test_part_of_the_suite_on(release, pytestconfig):
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *SUBSET]
    done = subprocess.run(
        command,
        cwd=pytestconfig.rootpath,
        env={**os.environ, "ROCPY_HOST_ABI": release},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
