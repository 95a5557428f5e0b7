# SPDX-License-Identifier: MIT
"""The names of nvmath-python's direct solver, which hipBLASLt has nothing for: each says so when it is used."""

from __future__ import annotations

from typing import Any, NoReturn

from rocpy.compat.nvmath._errors import InvalidMatmulState
from rocpy.errors import UnsupportedError

REASON = (
    "systems of equations are hipSOLVER's and rocSOLVER's; rocpy has matrix products only; use "
    "scipy's, torch's or jax's"
)


class InvalidDirectSolverState(InvalidMatmulState):
    """The solver was freed; nothing raises it."""


class DirectSolverOptions:
    """Options of the direct solver: refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise UnsupportedError(f"linalg.DirectSolverOptions: {REASON}")


class DirectSolver:
    """The direct solver: refused."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise UnsupportedError(f"linalg.DirectSolver: {REASON}")


def direct_solver(*_: Any, **__: Any) -> NoReturn:
    """Refuse: AMD's solvers are in other libraries.

    Raises
    ------
    UnsupportedError
        Always.
    """
    raise UnsupportedError(f"linalg.direct_solver: {REASON}")
