# SPDX-License-Identifier: MIT
"""Whether, and how, a platform computes a product with an epilogue of the user's; nothing is allocated to find out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocpy import dtypes
from rocpy.blaslt import _custom
from rocpy.blaslt._custom_fused import fused_of
from rocpy.blaslt._options import Options
from rocpy.blaslt.problem import OperandInfo, Problem
from rocpy.errors import InvalidProblemError, UnsupportedError

if TYPE_CHECKING:
    from rocpy.epilogues import CustomEpilogue

__all__ = ["custom_answer", "input_infos"]

_KINDS = ("row", "column", "full", "scalar")


def input_infos(epilogue: CustomEpilogue, kinds: Mapping[str, Any] | None, plain: Problem) -> dict[str, OperandInfo]:
    """Return shape and type of each input from what the user says of it: a kind, or a kind and a type.

    Raises
    ------
    InvalidProblemError
        If there is no such input or kind.
    """
    given = dict(kinds or {})
    shapes = {"row": (plain.n,), "column": (plain.m, 1), "full": plain.result_shape, "scalar": ()}
    if epilogue.expression.halved:
        shapes["full"] = (*plain.result_shape[:-1], plain.n // 2)
    found = {}
    for name in given:
        if name not in epilogue.inputs:
            raise InvalidProblemError(f"epilogue_inputs: epilogue {epilogue.name!r} has no input {name!r}")
    for name in epilogue.inputs:
        kind, dtype = given.get(name, "scalar" if name in dict(epilogue.expression.defaults) else "full"), plain.dtype
        if isinstance(kind, tuple) and len(kind) == 2:
            kind, dtype = kind[0], str(kind[1]) if str(kind[1]) in ("bool", "uint8") else dtypes.lookup(kind[1]).name
        if kind not in _KINDS:
            raise InvalidProblemError(f"epilogue_inputs[{name!r}]: {kind!r}; it may be {', '.join(map(repr, _KINDS))}")
        found[name] = OperandInfo.dense(shapes[kind], dtype)
    return found


def custom_answer(
    epilogue: CustomEpilogue, kinds: Mapping[str, Any] | None, plain: Problem, options: Options, ask: Callable[..., Any]
) -> Any:
    """Return the answer for a product with an epilogue of the user's; ``ask`` gives that of a plain problem."""
    bound = _custom.bind(epilogue.expression, plain, input_infos(epilogue, kinds, plain))
    problem = _custom.problem_of(bound)
    form, infos = _custom.whole_form(bound), dict(bound.inputs)
    if form is not None:
        native = replace(
            plain,
            epilogue=form.epilogue,
            bias=infos.get(form.bias),
            c=infos.get(form.c, plain.c),
            clamp=form.clamp,
            dtype=bound.out_types[0],
        )
        answer = ask(native, replace(options, fallback="error"))
        if answer:
            return replace(answer, problem=problem, reasons=[])
    base = ask(plain, replace(options, fallback="error"))
    try:
        fused_of(bound)
        return replace(base, problem=problem, lowering="fused" if base else "", reasons=base.reasons)
    except UnsupportedError as error:
        reason = str(error)
    if options.fallback == "error":
        return replace(
            base, problem=problem, lowering="", algorithms=0,
            reasons=[f"{reason}; options(fallback='error') forbids composing it of the framework's operations"],
        )  # fmt: skip
    _custom.check_promise(bound, options)
    base = ask(plain, options)
    return replace(base, problem=problem, lowering="unfused" if base else "", reasons=[reason, *base.reasons])
