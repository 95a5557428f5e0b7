# SPDX-License-Identifier: MIT
"""What overflows, underflows or wraps around on the way is no wrong result: tuning takes it and records nothing."""

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import selftest_record as _selftest_record
from rocpy.errors import UnsupportedError
from rocpy.testing import run_selftest, select
from rocpy.tuning._retrial import Retrial

LARGE = np.array([[3e38, 3e38, -3e38, -3e38]] * 4, np.float32)
TINY = np.full((4, 4), 1e-45, np.float32)
ONES = np.ones((4, 4), np.float32)
AUX = {"drelu_bgrad", "dgelu_bgrad", "dsilu_bgrad"}
EPILOGUES = [
    "gelu", "relu", "bias", "clamp", "gelu_aux", "relu_aux", "drelu_bgrad", "dgelu_bgrad", "dsilu_bgrad", "bgrada",
    "bgradb",
]  # fmt: skip


pytestmark = pytest.mark.usefixtures("memory_only")


def arguments_of(epilogue):
    return {
        "bias": {"bias": np.full(4, -3e38, np.float32)},
        "clamp": {"clamp": (-1.0, 1.0)},
    }.get(epilogue, {"aux": ONES} if epilogue in AUX else {})


PRODUCTS = {
    "overflow": (LARGE, ONES, {}),
    "overflow of tf32": (LARGE, ONES, {"compute": "tf32"}),
    "overflow of complex64": (np.full((2, 2), 3e38 + 3e38j, np.complex64), np.ones((2, 2), np.complex64), {}),
    "overflow of complex128": (np.full((2, 2), 1e308 + 1e308j), np.ones((2, 2), np.complex128), {}),
    "underflow": (TINY, np.float32(0.4) * ONES, {}),
    "underflow of bfloat16": (TINY.astype(ml_dtypes.bfloat16), (0.4 * ONES).astype(ml_dtypes.bfloat16), {}),
    "underflow after alpha": (ONES, np.float32(0.7) * ONES, {"alpha": 1e-40}),
    "wrap": (np.full((2, 200000), 127, np.int8), np.full((200000, 2), 127, np.int8), {}),
    "wrap to int8": (np.full((2, 200000), 127, np.int8), np.full((200000, 2), 127, np.int8), {"dtype": "int8"}),
    **{f"{name} overflow": (LARGE, ONES, {"epilogue": name, **arguments_of(name)}) for name in EPILOGUES},
    **{f"{name} underflow": (TINY, ONES / 3, {"epilogue": name, **arguments_of(name)}) for name in EPILOGUES},
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", PRODUCTS)
def test_no_algorithm_is_struck_off_for_a_legal_result(kind, selftest_record):
    a, b, more = PRODUCTS[kind]
    rocpy.matmul(a, b, autotune=True, **more)
    with rocpy.Matmul(a, b, **more) as mm:
        report = mm.autotune(20)
    assert not [trial.dropped for trial in report.trials if "wrong" in trial.dropped]
    assert not selftest_record.exists()


@pytest.mark.torch
@pytest.mark.parametrize("conjugated", ["a", "b", "ab", "c"])
def test_lazy_conjugates_are_compared_as_what_they_stand_for(conjugated, torch, selftest_record):
    arrays = {name: torch.randn(2, 8, 8, dtype=torch.complex64) for name in "abc"}
    x, y, z = (array.mH if name in conjugated else array for name, array in arrays.items())
    result = rocpy.matmul(x, y, z, autotune=True)
    torch.testing.assert_close(result, x @ y + z)
    with rocpy.Matmul(x, y, z) as mm:
        report = mm.autotune(20)
    assert not [trial.dropped for trial in report.trials if "wrong" in trial.dropped]
    assert not selftest_record.exists()


@pytest.mark.torch
def test_algorithms_of_conjugates_are_tried_again_on_conjugates(torch):
    x = torch.randn(8, 8, dtype=torch.complex64)
    with rocpy.Matmul(x.mH, x) as mm:
        chosen = mm.plan()[0]
        problem = mm.problem
    with Retrial(problem, 0) as retrial:
        assert retrial.wrong((chosen.id, chosen.name)) == ""


def strike_off(epilogue):
    """Have tuning's record say that all algorithms of a class are wrong."""
    with rocpy.Matmul(ONES, ONES, epilogue=epilogue) as mm:
        for algorithm in (*mm.plan(), None):
            _library.keep_wrong(mm.problem, 0, algorithm, "wrong at [0, 0]")


@pytest.mark.parametrize("epilogue", ["default", "relu"])
@pytest.mark.parametrize("cases", [0, 3])
def test_a_selftest_that_passes_forgets_what_tuning_held_for_wrong(epilogue, cases):
    strike_off(epilogue)
    with pytest.raises(UnsupportedError, match=r"wrong at \[0, 0\]"):
        rocpy.explain(ONES, ONES, epilogue=epilogue, options={"fallback": "error"})
    run_selftest(selection=select()[:cases], record=True, with_algorithms=False)
    assert not _selftest_record.of_tuning(_library.library(0).scope)
    assert rocpy.explain(ONES, ONES, epilogue=epilogue).algorithm.lowering == "native"


def test_a_selftest_leaves_what_is_still_wrong(monkeypatch):
    strike_off("relu")
    monkeypatch.setattr(Retrial, "wrong", lambda *_: "wrong at [0, 1]")
    run_selftest(selection=[], record=True)
    assert rocpy.explain(ONES, ONES, epilogue="relu").algorithm.lowering == "unfused"
