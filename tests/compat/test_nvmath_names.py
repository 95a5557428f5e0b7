# SPDX-License-Identifier: MIT
"""rocpy.compat.nvmath has the names of nvmath-python's matrix products, their parameters and their numbers."""

import dataclasses
import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import rocpy
from rocpy.compat import nvmath

THEIRS = json.loads((Path(__file__).parent / "nvmath_names.json").read_text())
MODULES = {
    "nvmath": nvmath,
    "linalg": nvmath.linalg,
    "advanced": nvmath.linalg.advanced,
    "helpers": nvmath.linalg.advanced.helpers.matmul,
}
ELSEWHERE = {"bindings", "fft", "sparse", "tensor"}
SOLVER = {"DirectSolver", "DirectSolverOptions", "direct_solver", "InvalidDirectSolverState"}
NAMES = [
    (module, name) for module in MODULES for name in THEIRS[module] if name not in ELSEWHERE and name not in SOLVER
]


def parameters_of(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def an_algorithm():
    with nvmath.linalg.advanced.Matmul(np.ones((2, 2)), np.ones((2, 2))) as mm:
        return mm.plan()[0]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_names(module, name):
    ours, theirs = getattr(MODULES[module], name), THEIRS[module][name]
    assert name in MODULES[module].__all__
    if "members" in theirs:
        assert {key: member.value for key, member in ours.__members__.items()} == theirs["members"]
    if "parameters" in theirs:
        assert parameters_of(ours) == theirs["parameters"]
    if "fields" in theirs:
        assert [field.name for field in dataclasses.fields(ours)] == theirs["fields"]
    for method, parameters in theirs.get("methods", {}).items():
        assert parameters_of(getattr(ours, method)) == parameters, method
    instance = an_algorithm() if name == "Algorithm" else ours
    assert [name for name in theirs.get("attributes", []) if not hasattr(instance, name)] == []


def test_formats_are_texts():
    formats = MODULES["helpers"].BlockScalingFormat
    assert isinstance(formats.NVFP4, str)
    assert formats("MXFP8") is formats.MXFP8 == "MXFP8"


@pytest.mark.parametrize("name", ["DirectSolver", "DirectSolverOptions", "direct_solver"])
def test_solvers_say_where_they_are(name):
    with pytest.raises(rocpy.UnsupportedError, match=f"linalg.{name}: systems of equations are hipSOLVER's"):
        getattr(nvmath.linalg, name)()


def test_other_areas_say_where_they_are():
    for name in ELSEWHERE | {"device", "distributed"}:
        assert not hasattr(nvmath, name)
        with pytest.raises(rocpy.UnsupportedError, match=f"nvmath.{name}: ") as caught:
            getattr(nvmath, name)
        assert isinstance(caught.value, AttributeError)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        nvmath.no_such_name  # noqa: B018
