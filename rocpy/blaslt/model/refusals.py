# SPDX-License-Identifier: MIT
"""Errors of products whose copies the options forbid, or that the platform has no algorithm for."""

from __future__ import annotations

from rocpy import platform
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.errors import UnsupportedError

# Of a product without elements that sums an operand.
SUMMED_ASIDE = "the bias gradient of a result without elements is computed by the operands' framework"


def no_algorithm(problem: Problem, options: Options) -> str:
    """Return the message for a problem that the platform has no algorithm for."""
    chosen = platform.current()
    if options.reproducible:
        return (
            f"the {chosen.name} platform has no algorithm for {problem} that guarantees reproducible="
            f"{options.reproducible!r} within {options.max_workspace_bytes} bytes of workspace; omit the option, "
            "or use a platform that supports it (see rocpy.blaslt.supported(..., options=...))"
        )
    limit = f"{options.max_workspace_bytes} bytes of workspace"
    why = f"the {chosen.name} platform has no algorithm for {problem} within {limit}"
    if options.fallback == "error" and problem.epilogue != "default":
        return why  # a composition would do, which the options forbid: the message goes on with that
    return (
        f"{why}; try another dtype, epilogue='default' with the epilogue applied afterwards, or a larger "
        "options(max_workspace_bytes=...)"
    )


def readable_form(name: str, *, columns: bool = False, blocks: bool = False, conjugated: bool = False) -> str:
    """Return what to pass so that an operand of this name is read, or the result written, without a copy.

    ``columns``: the result is column-major; ``blocks``: a and b have scales by blocks of K; ``conjugated``: the operand
    is one of torch's lazy conjugates.
    """
    if name in ("a", "b"):
        if blocks:
            weight = ", or a rocpy.Weight" if name == "b" else ""
            return (
                f"pass {name} and its scales contiguous along K, elements of four bits packed "
                f"(torch.float4_e2m1fn_x2){weight}"
            )
        if conjugated:
            return f"pass {name}.resolve_conj()"
        return f"pass {name} with contiguous rows or columns that neither overlap nor run backwards"
    if name == "c":
        return f"pass c of the result's full shape, {'column' if columns else 'row'}-major"
    if name in ("aux", "out"):
        return f"pass {'aux' if name == 'aux' else 'out='} row-major"
    return f"pass a contiguous, aligned {name} in native byte order"


def copy_refused(name: str, layout: str, form: str = "") -> UnsupportedError:
    """Return the error for a copy that the options forbid; ``form`` says what to pass instead."""
    return UnsupportedError(
        f"{name}: {layout}: the library cannot take this layout, and options(copies='error') forbids the copy; "
        f"{form or readable_form(name)}"
    )


def conversion_refused(name: str, layout: str) -> UnsupportedError:
    """Return the error for an operand of which only a copy can be read, where the options forbid copies."""
    return UnsupportedError(
        f"{name}: {layout}: its byte order, alignment or lazy sign must be resolved in a copy, and "
        "options(copies='error') forbids the copy; pass an aligned array in native byte order, or a resolved tensor"
    )


def cast_refused(out: str, dtype: str, name: str = "out") -> UnsupportedError:
    """Return the error for a result that would be computed aside and cast, where the options forbid copies."""
    return UnsupportedError(
        f"{name} is {out} and the result is {dtype}: it would be computed in another array and cast, and "
        f"options(copies='error') forbids that; pass {name}= of {dtype}"
    )


def turning_remedy(epilogue: str, *, is_planned: bool = False) -> str:
    """Return what to pass instead of a bias per row whose result would be copied to row-major.

    ``is_planned``: the result's layout is that of a plan, whatever is passed for it.
    """
    swapped = "multiply b.T by a.T with a bias of length M"
    if EPILOGUES[epilogue].aux == "store":  # whose matrix is row-major, whatever out is
        return f"{swapped}; the results are transposed"
    return f"call rocpy.matmul with a column-major out=, or {swapped}" if is_planned else "pass a column-major out="


def refuse_turning(options: Options, bias: str, epilogue: str) -> None:
    """Refuse the copy of a result that was computed in columns, where the options forbid copies."""
    if options.copies == "error":
        raise UnsupportedError(
            f"bias: {bias} has one value per row; the library can add it only to a column-major result, and "
            f"options(copies='error') forbids copying that to row-major; {turning_remedy(epilogue)}"
        )
