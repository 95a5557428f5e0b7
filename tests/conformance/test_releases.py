# SPDX-License-Identifier: MIT
"""The binding's table of releases against what the host platform, written from AMD's sources, does as each of them."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_up_library import fake_library, problem

from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import releases as _releases
from rocpy.testing import evaluate

PRESENTED = ("6.4", "7.0", "7.2", "10.0")

# hipBLASLt as any C program calls it: a product of 3 x 4 with every number of an epilogue, bias, aux and bounds of
# clamp set, and the attributes that the release takes.
PROGRAM = """
import ctypes, json, sys
import numpy as np
import rocpy
lt = ctypes.CDLL(rocpy.platform.current().libraries["hipblaslt"].path)
numbers = json.loads(sys.argv[1])
made = lambda function, *arguments: (box := ctypes.c_void_p(), check(function(ctypes.byref(box), *arguments)))[0]

def check(status):
    assert status == 0, status

def set_to(desc, attribute, value):
    return lt.hipblasLtMatmulDescSetAttribute(desc, attribute, ctypes.byref(value), ctypes.c_size_t(8))

def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)

handle = made(lt.hipblasLtCreate)
version = ctypes.c_int()
check(lt.hipblasLtGetVersion(handle, ctypes.byref(version)))
desc = made(lt.hipblasLtMatmulDescCreate, 2, 0)
taken = [number for number in range(128) if set_to(desc, number, ctypes.c_int64(0)) == 0]
a, b, aux = (np.asarray(values, np.float32, order="F") for values in json.loads(sys.argv[2]))
scratch = (ctypes.c_char * (1 << 20))()
bias = np.asarray([0.5, -3.0, 0.25, 0.125], np.float32)
size = lambda rows, columns: (0, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
found = {}
for number in numbers:
    d, e, given = np.zeros((3, 4), np.float32, order="F"), aux.copy(order="F"), bias.copy()
    desc = made(lt.hipblasLtMatmulDescCreate, 2, 0)
    for attribute, value in ((2, ctypes.c_uint32(number)), (3, pointer(given)), (10, pointer(e)),
                             (11, ctypes.c_int64(3)), (12, ctypes.c_int64(12))):
        check(set_to(desc, attribute, value))
    for attribute, bound in ((102, -0.5), (103, 0.75)):
        if version.value >= 100000:
            set_to(desc, attribute, ctypes.c_float(bound))
    layouts = [made(lt.hipblasLtMatrixLayoutCreate, *size(*shape)) for shape in ((3, 2), (2, 4), (3, 4), (3, 4))]
    preference = made(lt.hipblasLtMatmulPreferenceCreate)
    check(lt.hipblasLtMatmulPreferenceSetAttribute(preference, 1, ctypes.byref(ctypes.c_uint64(len(scratch))),
                                                   ctypes.c_size_t(8)))
    results, count = (ctypes.c_char * 56)(), ctypes.c_int()
    check(lt.hipblasLtMatmulAlgoGetHeuristic(handle, desc, *layouts, preference, 1, results, ctypes.byref(count)))
    assert count.value == 1, number
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    check(lt.hipblasLtMatmul(handle, desc, ctypes.byref(one), pointer(a), layouts[0], pointer(b), layouts[1],
                             ctypes.byref(zero), pointer(d), layouts[2], pointer(d), layouts[3], results, scratch,
                             ctypes.c_size_t(len(scratch)), None))
    assert ctypes.CDLL(rocpy.platform.current().libraries["hip"].path).hipDeviceSynchronize() == 0
    found[number] = [d.tolist(), e.tolist(), given.tolist()]
print(json.dumps([version.value, taken, found]))
"""

A = np.array([[1.0, -2.0], [0.5, 0.75], [-1.25, 3.0]])
B = np.array([[0.5, -1.0, 2.0, 0.25], [1.5, -0.5, -0.75, 1.0]])
AUX = np.array([[1.0, -1.0, 0.5, -0.25], [-2.0, 0.75, -0.5, 2.0], [0.125, -3.0, 1.5, -1.5]])
BIAS = np.array([0.5, -3.0, 0.25, 0.125])


def numbers() -> list[int]:
    """Every number that some release gives an epilogue, and two that none has."""
    known = {
        number for row in _releases.ROWS if row.kind == "epilogue" for _, number in row.numbers if number is not None
    }
    return [*sorted(known), 3, 1 << 20]


@pytest.fixture(scope="module", params=PRESENTED)
def release(request):
    """Version, attributes taken and results by number, of the host platform as one release."""
    operands = json.dumps([values.tolist() for values in (A, B, AUX)])
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, json.dumps(numbers()), operands],
        env={**os.environ, "ROCPY_PLATFORM": "host", "ROCPY_HOST_ABI": request.param},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, taken, found = json.loads(done.stdout)
    return request.param, version, taken, {int(number): values for number, values in found.items()}


@functools.cache
def wanted(name: str | None) -> list[np.ndarray]:
    """Result, aux matrix and bias vector after a product with an epilogue, ``None`` for a number that is none."""
    row = EPILOGUES["default" if name is None else name]
    # The library's product is the transposed one of rocpy's, whose bias lies along the last axis.
    more = {"bias": BIAS[:3]} if row.bias else {}
    more |= {"aux": AUX.T} if row.aux == "load" else {}
    more |= {"clamp": (-0.5, 0.75)} if row.clamp else {}
    # What the library calls the sum along its A is that along rocpy's b, and a sum may be longer than the bias.
    swapped = {"bgrada": "bgradb", "bgradb": "bgrada"}.get(row.name, row.name)
    expected = evaluate(B.T, A.T, epilogue=swapped, **more)
    sums = (
        expected.aux[{"bgrada": "bgradb", "bgradb": "bgrada"}.get(row.gradient, row.gradient)] if row.gradient else None
    )
    aux = expected.aux[row.aux_name].T if row.aux_name else AUX
    return [expected.result.T, aux, BIAS if sums is None else sums]


def test_each_number_does_what_the_binding_believes(release):
    _, version, _, found = release
    names = {}
    for row in _releases.ROWS:
        number = row.number(version) if row.kind == "epilogue" else None
        if number is not None:
            assert number not in names
            names[number] = row.name
    for number, results in found.items():
        for actual, expected in zip(results, wanted(names.get(number)), strict=True):
            length = min(len(actual), len(expected))
            np.testing.assert_allclose(
                actual[:length], expected[:length], rtol=1e-5, atol=1e-5, err_msg=f"{number} as {names.get(number)}"
            )


def test_each_attribute_is_taken_where_the_binding_believes_it(release):
    _, version, taken, _ = release
    believed = [row.number(version) for row in _releases.ROWS if row.kind == "attribute"]
    assert sorted(number for number in believed if number is not None) == sorted(taken)


def refused(believed, release) -> bool:
    """Whether the comparison finds a difference between a table of the binding's and what a platform did."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_releases, "ROWS", believed)
        try:
            test_each_attribute_is_taken_where_the_binding_believes_it(release)
            test_each_number_does_what_the_binding_believes(release)
        except AssertionError:
            return True
    return False


def test_a_change_of_the_bindings_table_alone_is_found(release):
    """Of each row that this release has or lacks: one that came later or sooner, is missing, or has another number."""
    _, version, _, _ = release
    assert not refused(_releases.ROWS, release)
    for row in _releases.ROWS:
        if row.kind == "combination" or row.name == "default":
            continue
        number = row.number(version)
        if number is None:
            later = next((each for _, each in row.numbers if each is not None), None)
            changes = [] if later is None or row.name == "sigmoid_bias" else [((0, later),)]
        else:
            changes = [((version + 1, number),), ((0, None),), ((0, 3 if row.kind == "epilogue" else 99),)]
        for numbers_then in changes:
            changed = row._replace(numbers=numbers_then)
            believed = tuple(changed if each is row else each for each in _releases.ROWS)
            assert refused(believed, release), f"{row.name} as {numbers_then} in {version}"


def test_a_change_of_the_platforms_table_alone_is_found(release):
    """Of each number: one that does nothing, does what another does, or does something in a release that lacks it."""
    name, version, taken, found = release
    plain = found[3]
    known = {row.number(version): row.name for row in _releases.ROWS if row.kind == "epilogue"}
    known.pop(None, None)
    relu = [values.tolist() for values in wanted("relu")]
    gelu = [values.tolist() for values in wanted("gelu")]
    for number in found:
        if known.get(number) not in (None, "default"):
            assert refused(_releases.ROWS, (name, version, taken, {**found, number: plain})), f"{number} without effect"
        other = gelu if known.get(number) == "relu" else relu
        assert refused(_releases.ROWS, (name, version, taken, {**found, number: other})), f"{number} as another"
    for attribute in range(128):
        assert refused(_releases.ROWS, (name, version, sorted({*taken} ^ {attribute}), found)), f"attribute {attribute}"


def test_the_tables_share_nothing():
    """Neither is made of the other, nor both of a third: a mistake in one is not in the other."""
    root = Path(__file__).resolve().parents[2]
    platform = (root / "csrc/platforms/host/hipblaslt/problem/hipblaslt_releases.cpp").read_text(encoding="utf-8")
    assert re.findall(r'#include "(.*)"', platform) == ["hipblaslt_releases.hpp", "window.hpp"]
    binding = (root / "rocpy/blaslt/selection/releases.py").read_text(encoding="utf-8")
    imported = set(re.findall(r"^(?:from|import) ([\w.]+)", binding, re.MULTILINE))
    assert imported <= {"__future__", "bisect", "collections.abc", "dataclasses", "typing"}
    assert not re.search(r"open\(|read_text|csrc/", binding)
    tools = {path.name: path.read_text(encoding="utf-8") for path in (root / "tools").glob("*.py")}
    assert [name for name, text in tools.items() if "hipblaslt_releases" in text or "releases.py" in text] == []


def test_every_row_names_its_source_and_rises():
    for row in _releases.ROWS:
        assert row.source
        versions = [version for version, _ in row.numbers]
        assert versions == sorted(set(versions))
        assert all(one.since < one.until and one.reason for one in row.doubts)
    assert {row.name for row in _releases.ROWS if row.kind == "epilogue"} == {
        name for name, row in EPILOGUES.items() if row.enumerator is not None
    } | {"sigmoid_bias"}


@pytest.mark.parametrize(
    ("version", "card", "asked", "reason"),
    [
        (1100, "gfx942", problem("drelu"), "no epilogue 'drelu'"),
        (100202, "gfx942", problem("drelu_bgrad"), "no epilogue 'drelu_bgrad'"),
        (100401, "gfx942", problem("drelu"), ""),
        (100300, "gfx942", problem("drelu"), "1.3.0"),
        (100000, "gfx942", problem("sigmoid"), "ROCm 7.2.1"),
        (100401, "gfx942", problem("sigmoid"), "is_act_enabled"),
        (100100, "gfx942", problem("relu_aux_bias"), "tensileUseBias"),
        (100100, "gfx942", problem("clamp_aux_bias"), "tensileUseBias"),
        (100100, "gfx942", problem("relu_aux"), ""),
        (100401, "gfx942", problem("dgelu_bgrad", m=6), "fewer than 32 rows"),
        (100401, "gfx942", problem("dgelu_bgrad", m=16), ""),
        (100401, "gfx942", problem("dgelu_bgrad", m=33), ""),
        (100401, "gfx942", problem("dgelu_bgrad", batch=(2,)), "first entry"),
        (1100, "gfx942", problem("dgelu", "bfloat16"), "wrong half"),
        (1100, "gfx942", problem("gelu_aux_bias", "bfloat16"), "in place"),
        (1100, "gfx942", problem("gelu_aux", "float16"), ""),
        (100401, "gfx942", problem("gelu_aux", "bfloat16"), ""),
        (100401, "gfx942", problem("dgelu", "bfloat16"), ""),
        (1100, "gfx942", problem(dtype="float8_e4m3fn", result="float32"), "float8 OCP on this card"),
        (100401, "gfx942", problem(dtype="float8_e4m3fnuz", result="float32"), ""),
        (100401, "gfx950", problem(dtype="float8_e5m2fnuz", result="float32"), "float8 FNUZ on this card"),
        (100401, "gfx1201", problem(dtype="float8_e5m2", result="bfloat16"), ""),
        (100401, "gfx90a", problem(dtype="float8_e5m2", result="bfloat16"), "float8 OCP on this card"),
        (100000, "gfx90a", problem(dtype="bfloat16", result="float32"), "before hipBLASLt 1.2"),
        (100401, "gfx942", problem(dtype="complex64"), ""),
        (100300, "gfx942", problem(dtype="complex64"), "no complex products"),
    ],
)
def test_what_a_release_is_not_asked_for(monkeypatch, version, card, asked, reason):
    fake_library(monkeypatch, version, card)
    found = _library.refusal(asked)
    assert reason in found
    assert bool(found) == bool(reason)
