# SPDX-License-Identifier: MIT
"""What the function forms do by operators, for epilogues of the user's and for groups in one operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Proxy

from rocpy.blaslt.custom.binding import complete, plain_numbers, refuse_operands
from rocpy.blaslt.grouped import groups as _groups
from rocpy.blaslt.model.epilogues import EPILOGUES, EpilogueRow
from rocpy.blaslt.model.options import forbids_composing
from rocpy.blaslt.model.weight_operand import WeightOperand, snapshot_of
from rocpy.blaslt.operands.weight import Weight
from rocpy.blaslt.selection.recipes import has_exact_function
from rocpy.epilogues import CustomEpilogue, Expression
from rocpy.epilogues.expressions.resolve import is_exact
from rocpy.errors import ClosedError, InvalidOperandError, InvalidProblemError
from rocpy.torch.operators.custom_products import composed, operator, run_operator
from rocpy.torch.operators.grouped import covered_by, grouped
from rocpy.torch.operators.products import apply_epilogue, plain_name, product
from rocpy.torch.operators.registration import check_without_values, route_of
from rocpy.torch.operators.shapes import check_epilogue_of, refuse_composing
from rocpy.torch.operators.sharding import lacks_lists, register_for

__all__ = ["check_custom", "check_groups", "custom_arguments", "custom_product", "grouped_with_epilogue", "read_weight"]


def _text_with(text: str, numbers: tuple[tuple[str, Any], ...]) -> str:
    """Return an epilogue's text with numbers in the place of inputs."""
    return Expression.from_json(text).with_values(dict(numbers)).to_json()


_text_with._dynamo_marked_constant = True  # type: ignore[attr-defined]  # the compiler runs it, and keeps its answer


def read_weight(b: Any) -> Any:
    """Return what a product reads of a Weight; anything else as it is. A graph reads the source, whenever it runs."""
    if not torch.compiler.is_compiling():
        return snapshot_of(b)
    # The compiler has the graph made again once this changes.
    if isinstance(b, Weight) and b.closed:
        raise ClosedError("b: this Weight was closed")
    return b


def custom_arguments(
    a: Any,
    b: Any,
    c: Any,
    epilogue: CustomEpilogue,
    epilogue_inputs: Any,
    scalars: tuple[float, float],
    **settings: Any,
) -> tuple[Any, ...]:
    """Return what :func:`custom_product` takes: the arguments, checked, with inputs that are numbers by themselves."""
    refuse_operands(bias=settings["bias"], aux=settings["aux"], clamp=settings["clamp"])
    b = read_weight(b)
    named = complete(epilogue, epilogue_inputs, b)
    if isinstance(b, WeightOperand):
        b = b.source if b.layout == "kn" else b.source.transpose(-1, -2)
    if torch.compiler.is_dynamo_compiling():  # of numpy's numbers it makes arrays without axes
        for name, value in named.items():
            if isinstance(value, np.ndarray) and value.ndim == 0:
                named[name] = torch.as_tensor(value)
    numbers = plain_numbers(named)
    for name, value in named.items():
        if name not in numbers and not isinstance(value, (Tensor, Proxy)):
            raise InvalidOperandError(
                f"epilogue_inputs[{name!r}]: got {type(value).__name__} together with torch tensors that need "
                "autograd, a transform or a compiler; pass a torch tensor"
            )
    if torch.compiler.is_dynamo_compiling() and a.is_floating_point():
        # A changed number would be another graph each time: the graph makes a tensor of it.
        wide = torch.float64 if a.dtype == torch.float64 else torch.float32
        for name, value in list(numbers.items()):
            if not isinstance(value, bool):
                named[name] = torch.ones((), dtype=wide, device=a.device) * numbers.pop(name)
    tensors = {name: value for name, value in named.items() if name not in numbers}
    return a, b, c, epilogue, numbers, tensors, (*scalars, settings["dtype"], settings["compute"])


def custom_product(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    epilogue: CustomEpilogue,
    numbers: dict[str, Any],
    tensors: dict[str, Any],
    arguments: tuple[Any, ...],
) -> Any:
    """Return what ``rocpy.matmul`` returns for an epilogue of the user's, by the operator."""
    operands = (a, b, c, *tensors.values())
    if not torch.compiler.is_compiling() and lacks_lists(operands):
        # torch knows how its own functions are computed on the parts of a DTensor, and on the entries of a batch.
        register_for((a, b, c))
        expression = epilogue.expression.with_values(numbers)
        why = "for a DTensor or the entries of a batch"
        refuse_composing(epilogue.name, is_exact(expression), why, "apply it to the plain product, or omit the option")
        results = composed(product, a, b, c, tensors, expression, arguments)
    else:
        results = run_operator(
            route_of(*operands), *_operator_arguments(a, b, c, epilogue, numbers, tensors, arguments)
        )
    # One by one: a symbol of torch.fx cannot be iterated over.
    return results[0] if epilogue.expression.single else tuple([results[i] for i in range(epilogue.outputs)])


def check_custom(*call: Any) -> None:
    """Refuse what :func:`custom_product` refuses of tensors without memory."""
    check_without_values(operator, _operator_arguments(*call))


def _operator_arguments(
    a: Any, b: Any, c: Any, epilogue: CustomEpilogue, numbers: Any, tensors: dict[str, Any], arguments: Any
) -> tuple[Any, ...]:
    text = _text_with(epilogue.text, tuple(numbers.items())) if numbers else epilogue.text
    return a, b, c, list(tensors.values()), ",".join(tensors), text, *arguments


def grouped_with_epilogue(
    a: Tensor,
    b: Tensor,
    offsets: Any,
    groups: Any,
    epilogue: str,
    bias: Tensor | None,
    *,
    clamp: Any,
    alpha: float,
    dtype: torch.dtype | None,
) -> Any:
    """Return what ``rocpy.grouped_matmul`` with offsets returns: the recorded product, then torch's functions."""
    row = EPILOGUES[epilogue]
    boundaries = _checked_boundaries(a, b, offsets, groups, row, bias, clamp, dtype)
    pre = grouped(a, b, boundaries, bias, alpha, dtype)
    if row.name == plain_name(row):
        return pre
    if not pre.is_floating_point() and not torch.compiler.is_compiling():
        check_epilogue_of(row, a, b, clamp, dtype)
    y = apply_epilogue(row, pre, None, clamp)
    if pre.dim() == 2:
        # No epilogue runs where no group is.
        covered = covered_by(boundaries, pre, 0 if a.dim() == 2 else 1)
        y = torch.where(covered.unsqueeze(-1) if a.dim() == 2 else covered, y, 0)
    return (y, {row.outputs[0]: pre}) if row.outputs else y


def check_groups(
    a: Tensor,
    b: Tensor,
    offsets: Any,
    groups: Any,
    epilogue: str,
    bias: Tensor | None,
    *,
    clamp: Any,
    alpha: float,
    dtype: torch.dtype | None,
) -> None:
    """Refuse what :func:`grouped_with_epilogue` refuses."""
    boundaries = _checked_boundaries(a, b, offsets, groups, EPILOGUES[epilogue], bias, clamp, dtype)
    check_without_values(grouped, (a, b, boundaries, bias, alpha, dtype))


def _checked_boundaries(
    a: Tensor, b: Tensor, offsets: Any, groups: Any, row: EpilogueRow, bias: Any, clamp: Any, dtype: Any
) -> Tensor:
    """Return the boundaries of groups; refuses an epilogue that the product does not have."""
    if bias is not None and not row.bias:
        raise InvalidProblemError(f"bias: given, but epilogue {row.name!r} adds none; pass an epilogue with a bias")
    if bias is None and row.bias:
        raise InvalidProblemError(f"epilogue {row.name!r} needs bias=")
    if (clamp is not None) != row.clamp:
        check_epilogue_of(row, a, b, clamp, dtype)
    if row.name != plain_name(row) and forbids_composing():
        why = "of groups in one operand, recorded, traced or transformed,"
        refuse_composing(row.name, has_exact_function(row), why, "pass lists of operands, or omit the option")
    count_ = -1 if groups is None else _groups.count_of(groups)
    stacked = b if b.dim() == 3 else a if a.dim() == 3 else None
    if stacked is not None:
        _groups.check_count(count_, stacked.shape[0])
        count_ = stacked.shape[0]
    # The axis that the groups share out: of a, unless they are groups of b's columns.
    return _boundaries(offsets, count_, a, b.shape[-1] if a.dim() == 3 else a.shape[-1 if b.dim() == 2 else 0])


def _boundaries(offsets: Any, groups: int, a: Tensor, total: int) -> Tensor:
    """Return E + 1 boundaries, from those or from the E ends; ``total`` is the extent of what they divide."""
    if isinstance(offsets, Tensor):
        line = offsets
        if line.is_meta and not a.is_meta:
            raise InvalidOperandError(f"offsets is on meta and a on {a.device}; move one, or pass a list")
    else:
        numbers = _groups.offset_numbers(offsets)
        if numbers != sorted(numbers) or (numbers and (numbers[0] < 0 or numbers[-1] > total)):
            raise _groups.wrong_offsets(numbers, total)
        line = torch.tensor(numbers, dtype=torch.int64)
    if line.dim() != 1 or line.is_floating_point() or line.is_complex() or line.dtype == torch.bool:
        raise InvalidOperandError(
            f"offsets: {line.dtype} of shape {tuple(line.shape)}; pass integers along one axis, where the groups begin "
            "and end"
        )
    length = line.shape[0]
    if groups >= 0 and length == groups:
        return torch.cat((line.new_zeros(1), line))
    if length < 1 or (groups >= 0 and length != groups + 1):
        raise _groups.wrong_count(length, groups)
    return line
