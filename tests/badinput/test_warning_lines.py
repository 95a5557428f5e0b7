# SPDX-License-Identifier: MIT
"""Warnings name the line that called rocpy, so that filters by module and "once for each line" are about that line."""

from __future__ import annotations

import contextlib
import json
import warnings

import numpy as np
import pytest

import rocpy
from rocpy.compat import nvmath
from rocpy.tuning import Database, Record, export_hipblaslt, export_tunableop, import_json

A = np.ones((4, 4), np.float32)
RECORD = Record("{}", "1", "{}", "k", 1, 0, 1.0, 0.0, 2.0, 1.0)
DAMAGED = b"SQLite format 3\0" + bytes(52) + bytes.fromhex("72637079") + b"x" * 5000


def plan_with_inputs():
    with nvmath.linalg.advanced.Matmul(A, A) as mm:
        mm.plan(epilog_inputs={"bias": A})


def reset_beta(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mm = kind(A, A, beta=1.0)
    with mm:
        mm.reset_operands(beta=2.0)


CALLS = {
    "beta of a function": lambda _: nvmath.linalg.advanced.matmul(A, A, beta=1.0),
    "beta of a plain function": lambda _: nvmath.linalg.matmul(A, A, beta=1.0),
    "beta of a product": lambda _: nvmath.linalg.advanced.Matmul(A, A, beta=1.0).free(),
    "inputs of a function": lambda _: nvmath.linalg.advanced.matmul(A, A, epilog_inputs={"bias": A}),
    "inputs of a plan": lambda _: plan_with_inputs(),
    "beta of a reset": lambda _: reset_beta(nvmath.linalg.advanced.Matmul),
    "beta of a plain reset": lambda _: reset_beta(nvmath.linalg.Matmul),
    "records": lambda _: import_json(json.dumps({"format": "rocpy tuning records", "schema": 1, "records": [{}]})),
    "TunableOp": lambda _: export_tunableop([RECORD]),
    "hipBLASLt": lambda _: export_hipblaslt([RECORD]),
    "foreign file": lambda path: path.write_text("text") and Database(path).records(),
    "foreign file to find in": lambda path: path.write_text("text") and Database(path).find("", ""),
    "damaged file": lambda path: path.write_bytes(DAMAGED) and Database(path).records(),
}


@pytest.mark.parametrize("name", CALLS)
def test_warnings_name_the_line_of_the_caller(name, tmp_path):
    with pytest.warns(rocpy.RocpyWarning) as told:
        CALLS[name](tmp_path / "file")
    assert {warning.filename for warning in told} == {__file__}


def test_a_file_that_a_product_cannot_read_is_told_at_the_product(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("text")
    monkeypatch.setattr(rocpy.tuning.database, "_current", Database(file))
    with pytest.warns(rocpy.RocpyWarning, match="is ignored") as told, contextlib.ExitStack() as stack:
        stack.callback(rocpy.matmul, A, A)
    assert [warning.filename for warning in told] == [__file__]


def test_filters_by_module_see_the_callers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module=f"^{__name__}$")
        with pytest.raises(rocpy.RocpyWarning, match="beta"):
            nvmath.linalg.advanced.matmul(A, A, beta=1.0)
