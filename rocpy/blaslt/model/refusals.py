# SPDX-License-Identifier: MIT
"""Errors of products whose copies the options forbid, or that the platform has no algorithm for."""

from __future__ import annotations

from rocpy import platform
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.errors import UnsupportedError


def no_algorithm(problem: Problem, options: Options) -> str:
    """Return the message for a problem that the platform has no algorithm for."""
    chosen = platform.current()
    if options.reproducible:
        return (
            f"the {chosen.name} platform has no algorithm for {problem} that guarantees reproducible="
            f"{options.reproducible!r} within {options.max_workspace_bytes} bytes of workspace; omit the option, "
            "or use a platform that supports it (see rocpy.blaslt.supported(..., options=...))"
        )
    return (
        f"the {chosen.name} platform has no algorithm for {problem} within {options.max_workspace_bytes} bytes "
        "of workspace; "
        "try another dtype, epilogue='default' with the epilogue applied afterwards, or a larger "
        "options(max_workspace_bytes=...)"
    )


def copy_refused(name: str, layout: str) -> UnsupportedError:
    """Return the error for a copy that the options forbid."""
    return UnsupportedError(
        f"{name}: {layout}: the library cannot take this layout, and options(copies='error') forbids the copy; "
        "pass an array whose last or second-to-last axis is contiguous"
    )


def conversion_refused(name: str, layout: str) -> UnsupportedError:
    """Return the error for an operand of which only a copy can be read, where the options forbid copies."""
    return UnsupportedError(
        f"{name}: {layout}: its byte order, alignment or lazy sign must be resolved in a copy, and "
        "options(copies='error') forbids the copy; pass an aligned array in native byte order, or a resolved tensor"
    )


def cast_refused(out: str, dtype: str) -> UnsupportedError:
    """Return the error for a result that would be computed aside and cast, where the options forbid copies."""
    return UnsupportedError(
        f"out is {out} and the result is {dtype}: it would be computed in another array and cast, and "
        "options(copies='error') "
        f"forbids that; pass out= of {dtype}"
    )


def refuse_turning(options: Options, bias: str) -> None:
    """Refuse the copy of a result that was computed in columns, where the options forbid copies."""
    if options.copies == "error":
        raise UnsupportedError(
            f"bias: {bias} has one value per row; the library can add it only to a column-major result, and "
            "options(copies='error') forbids copying that to row-major; pass a column-major out="
        )
