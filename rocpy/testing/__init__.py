# SPDX-License-Identifier: MIT
"""Oracles, error bounds and the case list that rocpy's tests, self-test and benchmarks share; open to users."""

from rocpy._signatures import public_names

from .cases import Case, select, to_json
from .oracles import ORACLES, Expected, Oracle, evaluate
from .runner import CaseResult, make_operands, run_case
from .selftest import run_selftest
from .tolerance import Comparison, bounds, compare

__all__ = [
    "ORACLES",
    "Case",
    "CaseResult",
    "Comparison",
    "Expected",
    "Oracle",
    "bounds",
    "compare",
    "evaluate",
    "make_operands",
    "run_case",
    "run_selftest",
    "select",
    "to_json",
]

__dir__ = public_names(globals())
