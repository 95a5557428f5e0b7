# SPDX-License-Identifier: MIT
"""Each epilogue x dtype x layout x batch against the float64 oracle, from numpy and torch operands."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.testing import ORACLES, Case, run_case, run_selftest
from rocpy.testing import cases as case_list
from rocpy.testing.runner import keywords, make_operands
from tests.support.presented import is_native

QUICK, FULL, SLOW = (dict.fromkeys(case_list.cases(tier)) for tier in ("quick", "full", "slow"))
# Each tier has the cases of the one before, which are the others' tests.
SLOW = tuple(case for case in SLOW if case not in FULL)
FULL = tuple(case for case in FULL if case not in QUICK)
QUICK = tuple(QUICK)
# torch has no type of six bits, and packs those of four.
TORCH = tuple(case for case in QUICK if not {case.dtype, case.dtype_b} & set(case_list.MX[2:]))[::3]
COMPOSED = tuple(name for name, row in EPILOGUES.items() if row.enumerator is None)


def names(cases):
    return [case.name for case in cases]


def check(case: Case, **kwargs) -> None:
    try:
        result = run_case(case, **kwargs)
    except rocpy.UnsupportedError as error:
        # Devices differ in the types that they have; every one has these.
        if case.dtype in case_list.DTYPES:
            raise
        pytest.skip(str(error))
    assert result.ok, result.message


@pytest.mark.parametrize("case", QUICK, ids=names(QUICK))
def test_numpy(case):
    check(case)


@pytest.mark.torch
@pytest.mark.parametrize("case", TORCH, ids=names(TORCH))
def test_torch(case, torch):
    check(case, provider="torch")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fnuz"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt", "pq", "qp"])
def test_arrays_of_no_framework(dtype, layout):
    check(Case(8, 16, 32, dtype, epilogue="gelu_bias", layout=layout, scale="scalar" * dtype.startswith("float8")),
          provider="device")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", FULL, ids=names(FULL))
def test_numpy_full(case):
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=names(SLOW))
def test_numpy_slow(case):
    check(case)


def test_every_epilogue_has_an_oracle_and_every_native_one_has_cases():
    assert set(EPILOGUES) == set(ORACLES)
    assert {name for name, row in EPILOGUES.items() if row.enumerator is not None} == set(case_list.EPILOGUES)


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue_rows_agree_with_the_oracles(name):
    row, oracle = EPILOGUES[name], ORACLES[name]
    assert row.bias == oracle.bias
    assert row.clamp == oracle.takes_clamp
    assert (row.aux == "load") == (oracle.aux_in is not None)
    assert row.outputs == tuple(key for key in (oracle.aux_out, oracle.sums) if key)


@pytest.mark.parametrize("name", case_list.EPILOGUES)
def test_members_are_the_strings(name):
    case = Case(4, 5, 6, epilogue=name)
    operands = make_operands(case)
    member = rocpy.Epilogue(name)
    check(case, matmul=lambda *args, **kw: rocpy.matmul(*args, **{**kw, "epilogue": member}), operands=operands)


@pytest.mark.parametrize(("alias", "name"), [("swish", "silu"), ("swish_bias", "silu_bias")])
def test_aliases(alias, name):
    case = Case(4, 5, 6, epilogue=name)
    check(case, matmul=lambda *args, **kw: rocpy.matmul(*args, **{**kw, "epilogue": alias}))


@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.usefixtures("without_programs")
def test_epilogues_without_an_enumerator_are_composed_or_refused(name):
    case = Case(3, 5, 4, dtype="float64", epilogue=name)
    check(case)
    if is_native("float64", epilogue=name):
        pytest.skip("this release has an enumerator for it")
    operands = make_operands(case)
    given = {key: value for key, value in operands.items() if key in ("bias", "aux")}
    with pytest.raises(rocpy.UnsupportedError, match=name):
        rocpy.matmul(operands["a"], operands["b"], epilogue=name, options=rocpy.options(fallback="error"), **given)


def test_out_receives_every_epilogue():
    for name in case_list.EPILOGUES:
        case = Case(9, 12, 7, epilogue=name)
        out = np.full((9, 12), np.nan, dtype=np.float32)

        def into_out(*args, out=out, **kw):
            outputs = rocpy.matmul(*args, out=out, **kw)
            assert (outputs[0] if isinstance(outputs, tuple) else outputs) is out
            return outputs

        check(case, matmul=into_out)


def test_operands_are_not_written():
    for name in case_list.EPILOGUES:
        case = Case(9, 12, 7, epilogue=name, alpha=0.5, beta=0.5)
        operands = make_operands(case)
        before = {key: value.copy() for key, value in operands.items()}
        check(case, operands=operands)
        for key, value in before.items():
            np.testing.assert_array_equal(operands[key], value)


def test_selftest_reports_every_case(tmp_path):
    chosen = (Case(4, 5, 6), Case(4, 5, 6, "bfloat16", epilogue="gelu_aux_bias"))
    seen = []
    report = run_selftest(selection=chosen, progress=lambda done, total, name: seen.append((done, total, name)))
    assert seen == [(1, 2, chosen[0].name), (2, 2, chosen[1].name)]
    assert report["summary"]["total"] == report["summary"]["ok"] == 2
    assert report["summary"]["worst_ratio"] <= 1
    assert all(row["algorithm"] for row in report["cases"])
    assert report["platform"]["name"]


def test_selftest_finds_a_wrong_platform(monkeypatch):
    honest = rocpy.matmul

    def wrong(*args, **kw):
        outputs = honest(*args, **kw)
        outputs[0, 0] += 1
        return outputs

    monkeypatch.setattr(rocpy, "matmul", wrong)
    report = run_selftest(selection=(Case(4, 5, 6),), with_algorithms=False)
    assert report["summary"]["failed"] == 1
    assert "times its bound" in report["cases"][0]["message"]


def test_selftest_reports_what_is_unsupported_or_fails():
    rows = run_selftest(selection=(Case(4, 5, 6, "float64", "float32"), Case(4, 5, 6, epilogue="clamp", layout="zz")))
    assert [row["status"] for row in rows["cases"]] == ["unsupported", "error"]


def test_keywords_leave_defaults_out():
    assert keywords(Case(4, 5, 6)) == {}
