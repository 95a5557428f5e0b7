# SPDX-License-Identifier: MIT
"""Names are taken as text of any class: numpy's strings, and members of enums that are strings."""

import enum

import numpy as np
import pytest

import rocpy
from rocpy import rccl
from rocpy.blaslt import OperandInfo, Options, Problem

A = np.ones((4, 4), np.float32)


class Name(str, enum.Enum):  # noqa: UP042 (which prints otherwise)
    """Strings that print as members."""

    GELU = "gelu"
    NK = "nk"
    HOST = "host"
    ERROR = "error"
    BATCH = "batch"
    M = "m"
    TF32 = "tf32"
    FLOAT32 = "float32"


def problem_of(**settings):
    operand = OperandInfo.dense((4, 4), "float32")
    return Problem.make(operand, operand, **settings)


def named(**settings):
    return rccl.Communicator.init(1, 0, rccl.UniqueId.make(), **settings)


def names_of_parts(name):
    with named(name=name) as comm, comm.split(0, name=name) as part:
        return comm.name, part.name, comm.status()["name"]


USES = {
    "epilogue": (lambda x: rocpy.matmul(A, A, epilogue=x).tolist(), "gelu"),
    "epilogue of a problem": (lambda x: problem_of(epilogue=x), "gelu"),
    "epilogue of Matmul": (lambda x: rocpy.Matmul(A, A, epilogue=x).execute().tolist(), "gelu"),
    "epilogue of groups": (lambda x: rocpy.grouped_matmul([A], [A], epilogue=x)[0].tolist(), "gelu"),
    "epilogue of supported": (lambda x: str(rocpy.blaslt.supported("float32", epilogue=x)), "gelu"),
    "compute": (lambda x: repr(problem_of(compute=x).compute), "tf32"),
    "dtype": (lambda x: str(rocpy.matmul(A, A, dtype=x).dtype), "float32"),
    "layout": (lambda x: repr(rocpy.Weight(A, layout=x).layout), "nk"),
    "location": (lambda x: repr(rocpy.Buffer(4, location=x).location), "host"),
    "copies": (lambda x: repr(Options(copies=x)), "error"),
    "reproducible": (lambda x: repr(Options(reproducible=x)), "batch"),
    "name of communicators": (names_of_parts, "gelu"),
    "dynamic": (lambda x: repr(Options(dynamic=x)), "m"),
}


@pytest.mark.parametrize("text", [np.str_, Name])
@pytest.mark.parametrize("use", USES)
def test_text_of_other_classes(use, text):
    function, name = USES[use]
    assert function(text(name)) == function(name)


def test_errors_show_the_text():
    class Other(str, enum.Enum):  # noqa: UP042
        GLEU = "gleu"

    with pytest.raises(rocpy.InvalidProblemError, match="^there is no epilogue 'gleu'; did you mean 'gelu'"):
        rocpy.matmul(A, A, epilogue=Other.GLEU)
