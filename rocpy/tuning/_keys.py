# SPDX-License-Identifier: MIT
"""What a tuning record is filed under: its environment, and everything that tells problems apart."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from typing import Any

from rocpy import platform
from rocpy.blaslt.model.lowering import Layout, Lowered, lower
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.runtime.device import Device
from rocpy.tuning._files import SCHEMA

__all__ = ["problem_key", "scope"]

# Fields of a problem that the library's terms already hold: shapes and layouts by their extents, strides and orders.
_LOWERED = frozenset({"a", "b", "c", "bias", "aux", "out", "m", "n", "k", "batch_shape", "result_shape"})
# What rocpy leaves at the library's default in every product. Written out, so that a record stays right when one of
# them can be set.
_FIXED = {"pointer_mode": "host", "batch_mode": "strided", "alpha_vector": False, "sm_count": 0, "stream_k": 0,
          "uniform_order": False}  # fmt: skip
_LAYOUT_NAMES = tuple(field.name for field in dataclasses.fields(Layout))
_TERM_NAMES = tuple(field.name for field in dataclasses.fields(Lowered) if field.name not in {"copies", "swapped"})
_FACT_NAMES = tuple(field.name for field in dataclasses.fields(Problem) if field.name not in _LOWERED)


def scope(device: int = 0) -> str:
    """Return the environment for which measurements on a device are valid, as a JSON object.

    Parameters
    ----------
    device
        Number of the device.

    Returns
    -------
    str
        Platform, version and revision of hipBLASLt, HIP's version, architecture, name and number of compute units of
        the device (on the host platform: instruction set, processor and number of threads), the environment variables
        that change what hipBLASLt does, and the schema of the records.

    Raises
    ------
    InvalidProblemError
        If there is no such device.

    Examples
    --------
    >>> import json, rocpy
    >>> sorted(json.loads(rocpy.tuning.scope()))[:4]
    ['arch', 'compute_units', 'device', 'environment']
    """
    return _scope(Device(device).index)


@functools.cache
def _scope(device: int) -> str:
    from rocpy.tuning._timing import library_identity

    chosen = platform.current()
    version, revision = library_identity(device)
    properties = Device(device).properties
    return canonical(
        {
            "schema": SCHEMA,
            "platform": chosen.name,
            "hipblaslt": version,
            "revision": revision,
            "hip": chosen.libraries["hip"].version,
            "arch": properties["arch"],
            "device": properties["name"],
            "compute_units": properties["multiprocessors"],
            "environment": relevant_variables(),
        }
    )


def relevant_variables() -> dict[str, str]:
    """Return the set variables of hipBLASLt and its kernel library that change which kernels run, or how."""
    variables = {
        "HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32": os.environ.get("HIPBLASLT_OVERRIDE_COMPUTE_TYPE_XF32"),
        "HIPBLASLT_TUNING_OVERRIDE_FILE": os.environ.get("HIPBLASLT_TUNING_OVERRIDE_FILE"),
        "HIPBLASLT_TUNING_MODE": os.environ.get("HIPBLASLT_TUNING_MODE"),
        "HIPBLASLT_JIT": os.environ.get("HIPBLASLT_JIT"),
        "HIPBLASLT_TENSILE_LIBPATH": os.environ.get("HIPBLASLT_TENSILE_LIBPATH"),
        "TENSILE_SOLUTION_SELECTION_METHOD": os.environ.get("TENSILE_SOLUTION_SELECTION_METHOD"),
        "TENSILE_STREAMK_DYNAMIC_GRID": os.environ.get("TENSILE_STREAMK_DYNAMIC_GRID"),
        "TENSILE_STREAMK_FIXED_GRID": os.environ.get("TENSILE_STREAMK_FIXED_GRID"),
        "TENSILE_STREAMK_MAX_CUS": os.environ.get("TENSILE_STREAMK_MAX_CUS"),
        "TENSILE_GRIDBASED_KDTREE": os.environ.get("TENSILE_GRIDBASED_KDTREE"),
    }
    return {name: value for name, value in variables.items() if value}


def library_tunes_itself() -> str | None:
    """Return the variable that configures hipBLASLt to override its own choices, ``None`` if there is none."""
    if os.environ.get("HIPBLASLT_TUNING_OVERRIDE_FILE"):
        return "HIPBLASLT_TUNING_OVERRIDE_FILE"
    if os.environ.get("HIPBLASLT_TUNING_MODE", "off") not in ("", "off"):
        return "HIPBLASLT_TUNING_MODE"
    return None


def problem_key(problem: Problem, options: Options | None = None) -> str:
    """Return everything that distinguishes a problem for the library, as a JSON object.

    Parameters
    ----------
    problem
        A problem whose operands the library can read without a copy.
    options
        Options of the product, of which only the workspace limit matters.

    Returns
    -------
    str
        Operations, extents, leading dimensions and batch strides of every operand in hipBLASLt's own terms, all
        element types, compute and scale types, epilogue with its operands, orders, scales, and the workspace limit.

    Raises
    ------
    InvalidOperandError
        If it is no problem.
    InvalidProblemError
        If an operand would be copied first: the copy's problem is the one that is measured.

    Notes
    -----
    ``has_c`` stands for a ``beta`` that is not 0, and nothing for a result written over ``c``: one plan serves all
    values of alpha and beta, and all pointers.

    Examples
    --------
    >>> from rocpy.blaslt import OperandInfo, Problem
    >>> a = OperandInfo.dense((8, 8), "float32")
    >>> rocpy.tuning.problem_key(Problem.make(a, a)) == rocpy.tuning.problem_key(Problem.make(a, a, epilogue="relu"))
    False
    """
    if not isinstance(problem, Problem):
        raise InvalidOperandError(f"problem: got {type(problem).__name__}, expected a rocpy.blaslt.Problem")
    lowered = lower(problem)
    if lowered.copies:
        raise InvalidProblemError(
            f"{lowered.copies[0]}: its layout is copied before the product; the problem with the copy is the one that "
            "is measured"
        )
    terms: dict[str, Any] = {name: getattr(lowered, name) for name in _TERM_NAMES}
    for name in ("a", "b", "c", "d"):
        terms[name] = {part: getattr(terms[name], part) for part in _LAYOUT_NAMES}
    terms |= _FIXED
    for name in ("a", "b", "c", "bias", "aux"):
        operand = getattr(problem, name)
        terms[f"{name}_type"] = None if operand is None else operand.dtype
    terms |= {"has_c": problem.c is not None, "swapped": lowered.swapped, "packed": problem.b.packed}
    # Every other fact of a problem: types, epilogue, and what is added to problems in future.
    for name in _FACT_NAMES:
        value = getattr(problem, name)
        if value not in (None, False, "", ()):
            terms[name] = value
    terms["max_workspace_bytes"] = (options or Options()).max_workspace_bytes
    return canonical(terms)


_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def canonical(value: Any) -> str:
    """Return one JSON text for equal values."""
    return _encoder.encode(value)
