# SPDX-License-Identifier: MIT
"""Whether, and how, a platform computes a product with an epilogue of the user's; nothing is allocated to find out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rocpy import dtypes
from rocpy.blaslt.custom import binding as _custom
from rocpy.blaslt.custom.fused import fused_of
from rocpy.blaslt.custom.generated import generated_of
from rocpy.blaslt.custom.triton_kernel import TritonProduct, check
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.errors import InvalidProblemError, LibraryError, UnsupportedError
from rocpy.runtime.device import Device

if TYPE_CHECKING:
    from rocpy.epilogues import CustomEpilogue, Expression
    from rocpy.epilogues.lowering.match import NativeForm

__all__ = ["custom_answer", "input_infos"]

_KINDS = ("row", "column", "full", "scalar")


def input_infos(epilogue: CustomEpilogue, kinds: Mapping[str, Any] | None, plain: Problem) -> dict[str, OperandInfo]:
    """Return shape and type of each input from what the user says of it: a kind, or a kind and a type.

    Raises
    ------
    InvalidProblemError
        If there is no such input or kind.
    """
    requested = dict(kinds or {})
    shapes = {"row": (plain.n,), "column": (plain.m, 1), "full": plain.result_shape, "scalar": ()}
    if epilogue.expression.halved:
        shapes["full"] = (*plain.result_shape[:-1], plain.n // 2)
    infos = {}
    for name in requested:
        if name not in epilogue.inputs:
            raise InvalidProblemError(f"epilogue_inputs: epilogue {epilogue.name!r} has no input {name!r}")
    for name in epilogue.inputs:
        kind, dtype = (
            requested.get(name, "scalar" if name in dict(epilogue.expression.defaults) else "full"),
            plain.dtype,
        )
        if isinstance(kind, tuple) and len(kind) == 2:
            kind, dtype = kind[0], str(kind[1]) if str(kind[1]) in ("bool", "uint8") else dtypes.lookup(kind[1]).name
        if kind not in _KINDS:
            raise InvalidProblemError(
                f"epilogue_inputs[{name!r}]: got {kind!r}, expected {', '.join(map(repr, _KINDS))}"
            )
        infos[name] = OperandInfo.dense(shapes[kind], dtype)
    return infos


def custom_answer(
    expression: Expression,
    inputs: Mapping[str, OperandInfo],
    plain: Problem,
    options: Options,
    ask: Callable[..., Any],
    device: int | None,
) -> Any:
    """Return the answer for a product with an epilogue of the user's; ``ask`` gives that of a plain problem."""
    bound = _custom.bind(expression, plain, inputs)
    problem = _custom.problem_of(bound)
    strict = replace(options, fallback="error")
    form = _custom.whole_form(bound)
    if form is not None:
        answer = ask(_native(bound, form, bound.out_types[0]), strict)
        if answer:
            return replace(answer, problem=problem, reasons=[])
    base = ask(plain, strict)
    reasons: list[str] = []
    attempts: tuple[tuple[str, str, Callable[[], Any]], ...] = (
        ("tile programs", "fused", lambda: (fused_of(bound), base)[1]),
        ("Triton", "fused", lambda: _by_triton(bound, options, base, device)),
        ("generated kernels", "native+kernel", lambda: _with_kernel(bound, strict, ask, device)),
    )
    for label, lowering, attempt in attempts:
        try:
            answer = attempt()
        except (UnsupportedError, LibraryError) as error:
            reasons.append(f"{label}: {error}")
            continue
        if not answer:
            reasons += [f"{label}: {reason}" for reason in answer.reasons]
            continue
        shown = reasons if lowering == "native+kernel" else []
        return replace(answer, problem=problem, lowering=lowering, reasons=[*shown, *answer.reasons])
    if options.fallback == "error":
        reasons.append("options(fallback='error') forbids composing it from the framework's operations")
        return replace(base, problem=problem, lowering="", algorithms=0, reasons=reasons)
    _custom.check_promise(bound, options)
    base = ask(plain, options)
    return replace(base, problem=problem, lowering="unfused" if base else "", reasons=[*reasons, *base.reasons])


def _native(bound: _custom.Bound, form: NativeForm, dtype: str) -> Problem:
    """Return the problem of a product with one of the library's own epilogues."""
    infos, plain = dict(bound.inputs), bound.problem
    return replace(
        plain,
        epilogue=form.epilogue,
        bias=infos.get(form.bias),
        c=infos.get(form.c, plain.c),
        clamp=form.clamp,
        dtype=dtype,
    )


def _device(device: int | None) -> int:
    return Device.current().index if device is None else device


def _by_triton(bound: _custom.Bound, options: Options, base: Any, device: int | None) -> Any:
    check(bound, options)
    product = TritonProduct(bound, _device(device))
    letters = "".join("n" if info.strides[-1] == 1 else "t" for info in (bound.problem.a, bound.problem.b))
    product.kernel(product.tiles[0], letters, aligned=True)
    return replace(base, algorithms=len(product.tiles))


def _with_kernel(bound: _custom.Bound, strict: Options, ask: Callable[..., Any], device: int | None) -> Any:
    form, rest = _custom.nearest_form(bound)
    dtype = _custom.base_type(bound)
    answer = ask(_native(bound, form, dtype), strict)
    if not answer:
        rest = bound.resolved.expression
        answer = ask(replace(bound.problem, dtype=dtype), strict)
    generated_of(bound, rest, dtype, _device(device))
    return answer
