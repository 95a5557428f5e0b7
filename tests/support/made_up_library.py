# SPDX-License-Identifier: MIT
"""A hipBLASLt that is not there, of any version and on any card, and problems to ask it about."""

from __future__ import annotations

import pytest

from rocpy.blaslt import OperandInfo, Problem
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.selection import library as _library


def fake_library(monkeypatch: pytest.MonkeyPatch, version: int, card: str) -> None:
    """Let the loaded library be one of AMD's of a version, on a card."""
    library = _library.Library(version, card, False, f"made up: {version} {card}")
    monkeypatch.setattr(_library, "library", lambda device, version=0: library)


def problem(
    epilogue: str = "default", dtype: str = "float32", m: int = 64, batch: tuple[int, ...] = (), result: str = ""
) -> Problem:
    """Return the problem of an m x 32 x 48 product."""
    row = EPILOGUES[epilogue]
    a, b = OperandInfo.dense((*batch, m, 32), dtype), OperandInfo.dense((*batch, 32, 48), dtype)
    result = result or dtype
    return Problem.make(
        a,
        b,
        bias=OperandInfo.dense((48,), result) if row.bias else None,
        aux=OperandInfo.dense((*batch, m, 48), result) if row.aux == "load" else None,
        epilogue=epilogue,
        dtype=result,
        clamp=(0.0, 1.0) if row.clamp else None,
        scale_a="scalar" if dtype.startswith("float8") else "",
        scale_b="scalar" if dtype.startswith("float8") else "",
    )
