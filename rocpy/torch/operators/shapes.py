# SPDX-License-Identifier: MIT
"""Shapes and checks of products on tensors without memory: what fake and meta tensors, and symbolic extents, need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import has_torch_function

from rocpy._producers.torch_modes import is_fake, is_sharded
from rocpy._producers.torch_refusals import is_unreadable, refuse_layout
from rocpy.blaslt.model.epilogues import EpilogueRow
from rocpy.blaslt.model.options import current_options
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.model.product_types import (
    RESULT_TYPES,
    find_family,
    gradient_type,
    is_float8,
    result_and_compute,
    type_for_out,
)
from rocpy.blaslt.model.settings import check_whole_factors
from rocpy.blaslt.selection.recipes import check_function
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

__all__ = [
    "MLP_OPERANDS",
    "ProductSettings",
    "check_aux",
    "check_devices",
    "check_epilogue_of",
    "check_layer_bias",
    "check_layer_input",
    "check_layer_tensors",
    "check_product",
    "check_scalars",
    "empty_results",
    "gradient_dtype",
    "info_of",
    "needs_one_kind",
    "product_shapes",
    "refuse_composing",
    "refuse_mixed",
    "refuse_unreadable",
    "require",
    "result_dtype",
]


# What users call the operands of two layers in one operator; their modules may have any names.
MLP_OPERANDS = {
    "x": "input",
    "w1": "the first layer's weight",
    "b1": "the first layer's bias",
    "w2": "the second layer's weight",
    "b2": "the second layer's bias",
}


class ProductSettings(NamedTuple):
    """What the operators of products take after the operands and the epilogue, in the order of their schema."""

    alpha: complex
    beta: complex
    clamp: Any
    dtype: torch.dtype | None
    compute: str | None


def info_of(x: Tensor) -> OperandInfo:
    """Return what plans know of an operand."""
    return OperandInfo(tuple(x.shape), tuple(x.stride()), _name(x.dtype))


def _info(x: Tensor | None) -> OperandInfo | None:
    return None if x is None else info_of(x)


def require(condition: Any, message: Callable[[], str]) -> None:
    """Refuse operands whose extents, which may be symbols, do not fit."""
    torch._check_with(InvalidProblemError, condition, message)


def check_devices(**operands: Tensor | None) -> None:
    """Refuse operands on different devices: next to one without memory, torch runs no kernel that would notice."""
    first, *others = ((name, x) for name, x in operands.items() if x is not None)
    for name, x in others:
        if x.device != first[1].device:
            raise InvalidOperandError(
                f"{name} is on {x.device} and {first[0]} on {first[1].device}; move one, so that all are on one device"
            )


def refuse_unreadable(**operands: Any) -> None:
    """Refuse nested, masked and uninitialized tensors by their names: torch has no operators of others for them."""
    if torch.compiler.is_compiling():
        return
    for name, x in operands.items():
        if isinstance(x, Tensor) and is_unreadable(x):
            refuse_layout(x, name)


def needs_one_kind(operands: Iterable[Any]) -> bool:
    """Whether operands are of a kind that torch computes with no others: fake tensors, and DTensors."""
    return any(type(x) is not Tensor and isinstance(x, Tensor) and (is_fake(x) or is_sharded(x)) for x in operands)


def refuse_mixed(**operands: Any) -> None:
    """Refuse fake tensors, and DTensors, beside plain ones, by their names; torch would refuse the operator."""
    if torch.compiler.is_compiling():
        return
    plain = [name for name, x in operands.items() if isinstance(x, Tensor) and _is_plain(x)]
    for name, x in operands.items():
        if not plain or not isinstance(x, Tensor):
            continue
        if is_fake(x) and not x.fake_mode.allow_non_fake_inputs:
            raise InvalidOperandError(
                f"{name}: a fake tensor, beside {plain[0]}, a real one; pass real tensors, or "
                "fake_mode.from_tensor(...) of each"
            )
        if is_sharded(x) and not type(x)._op_dispatcher._allow_implicit_replication:
            cut = [other for other in plain if operands[other].numel() != 1]  # one element is the same on all ranks
            if cut:
                raise InvalidOperandError(
                    f"{cut[0]}: a plain tensor, beside {name}, a DTensor; pass DTensors alone, as "
                    "torch.distributed.tensor.distribute_tensor returns them, or .to_local() of each"
                )


def _is_plain(x: Tensor) -> bool:
    if type(x) is not Tensor and type(x) is not torch.nn.Parameter:
        return False
    return not (torch._C._functorch.is_functorch_wrapped_tensor(x) or torch._is_functional_tensor(x))


def check_layer_tensors(**operands: Any) -> None:
    """Refuse operands of a layer that are no dense tensors, by their names; a bias may be None."""
    for name, x in operands.items():
        # What stands for a tensor, such as a symbol of torch.fx, is torch's to judge.
        if not isinstance(x, Tensor) and not has_torch_function((x,)) and (x is not None or name != "bias"):
            raise InvalidOperandError(f"{name}: got {type(x).__name__}; a layer takes torch tensors")
    if not torch.compiler.is_compiling():
        for name, x in operands.items():
            # Classes of other packages, such as sparse ones, may have products of their own.
            if isinstance(x, Tensor) and (is_unreadable(x) or type(x) in (Tensor, torch.nn.Parameter)):
                refuse_layout(x, name)


def check_layer_input(x: Any, weight: Any, activation: str = "", **others: Any) -> None:
    """Refuse what a layer cannot take, in the words of layers: after its product was refused.

    ``others`` are its other tensors, by the names that users know.
    """
    check_layer_tensors(input=x, weight=weight)
    refuse_mixed(input=x, weight=weight, **others)
    check_devices(input=x, weight=weight, **others)
    takes = weight.shape[-1]
    if x.dim() == 0 or x.shape[-1] != takes:
        seen = "a scalar" if x.dim() == 0 else f"shape {tuple(x.shape)}, whose last axis has {x.shape[-1]} elements"
        raise InvalidProblemError(
            f"input: {seen}; the layer takes {takes} (its weight has shape {tuple(weight.shape)})"
        )
    if x.dtype != weight.dtype and not (_is_cast(x) and _is_cast(weight)):
        raise InvalidProblemError(
            f"input is {_name(x.dtype)} and the layer's weight is {_name(weight.dtype)}; "
            "cast one, so that both have one dtype"
        )
    if _name(x.dtype) not in RESULT_TYPES:
        raise UnsupportedError(
            f"input and weight are {_name(x.dtype)}, of which there are no products; cast both to float16 or wider"
        )
    if is_float8(_name(x.dtype)):
        raise InvalidProblemError(
            f"input and weight are {_name(x.dtype)}, whose products need scales, which a layer does not take; cast "
            "both to float16 or wider, or use rocpy.matmul with scale_a= and scale_b="
        )
    if x.dtype == torch.int8 and activation:
        raise UnsupportedError(
            f"activation: {activation} of int8 operands, whose product is int32, is not supported; cast input and "
            "weight to float16 or wider, or apply the activation to the result of a layer without one"
        )


def _is_cast(x: Tensor) -> bool:
    """Whether autocast is on for a tensor, so that its product may have another type."""
    device = x.device.type
    is_on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return is_on and x.is_floating_point() and x.dtype != torch.float64


def check_layer_bias(bias: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a layer's bias that does not broadcast to its result, which has that shape."""
    try:
        fits = torch.broadcast_shapes(shape, bias.shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise InvalidProblemError(
            f"bias: got shape {tuple(bias.shape)}, expected length N = {shape[-1]}, or broadcast to the result's "
            f"{tuple(shape)}"
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_scalars(a: Tensor, alpha: Any, beta: Any) -> None:
    """Refuse complex factors of a product of real numbers."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if isinstance(value, complex) and not a.is_complex():
            raise InvalidOperandError(f"{name}: got {value!r} (complex), expected a real number on the host")


def check_product(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    aux: Tensor | None,
    epilogue: str,
    settings: ProductSettings,
) -> Problem | None:
    """Refuse what the product itself would refuse, where all extents are known; only K where some are symbols.

    Returns the problem where its extents are known.
    """
    check_devices(a=a, b=b, c=c, bias=bias, aux=aux)
    operands = [x for x in (a, b, c, bias, aux) if x is not None]
    if any(not isinstance(extent, int) for x in operands for extent in (*x.shape, *x.stride())):
        require(a.shape[-1] == b.shape[-1 if b.dim() == 1 else -2], lambda: "a and b: K must be equal")
        return None
    dtype, clamp = settings.dtype, settings.clamp
    problem = Problem.make(
        info_of(a),
        info_of(b),
        _info(c),
        bias=_info(bias),
        aux=_info(aux),
        epilogue=epilogue,
        dtype=None if dtype is None else _name(dtype),
        compute=settings.compute,
        clamp=None if clamp is None else (float(clamp[0]), float(clamp[1])),
    )
    check_function(problem)
    if problem.dtype == "int32" and isinstance(settings.alpha, int | float) and isinstance(settings.beta, int | float):
        check_whole_factors(float(settings.alpha), float(settings.beta))
    return problem


def check_epilogue_of(row: EpilogueRow, a: Tensor, b: Tensor, clamp: Any, dtype: torch.dtype | None) -> None:
    """Refuse an epilogue that products of operands of these types do not have, whatever their shapes."""
    one, other = (OperandInfo.dense((1, 1), _name(x.dtype)) for x in (a, b))
    bias = OperandInfo.dense((1,), _name(result_dtype(a, b, None))) if row.bias else None
    wanted = None if dtype is None else _name(dtype)
    check_function(Problem.make(one, other, bias=bias, epilogue=row.name, dtype=wanted, clamp=clamp))


def check_aux(aux: Tensor, result: Tensor) -> None:
    """Refuse an aux that is not of a result's shape and type, which torch's functions would broadcast and promote."""
    if aux.shape != result.shape:
        raise InvalidProblemError(
            f"aux: got shape {tuple(aux.shape)}, expected the result's shape {tuple(result.shape)}"
        )
    if aux.dtype != result.dtype:
        raise InvalidProblemError(
            f"aux is {_name(aux.dtype)} and the result is {_name(result.dtype)}; they must be equal"
        )


def result_dtype(a: Tensor, b: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Return the type of a product's result, as plans determine it; ``dtype`` is the one that was asked for."""
    left, right = _name(a.dtype), _name(b.dtype)
    wanted = None if dtype is None else _name(dtype)
    result, _ = result_and_compute(find_family(left, right), left, None, wanted, None)
    return _dtype(result)


def dtype_for_out(a: Tensor, b: Tensor, out: Tensor, c: Any, bias: Any, aux: Any) -> torch.dtype:
    """Return the type of a product's result that is written into ``out``, where none was asked for."""
    family = find_family(_name(a.dtype), _name(b.dtype))
    others = [None if x is None else _name(x.dtype) for x in (c, bias, aux)]
    return _dtype(type_for_out(family, _name(out.dtype), others, scaled=False))


def gradient_dtype(result: torch.dtype) -> torch.dtype:
    """Return the type of a bias gradient for results of a type."""
    return _dtype(gradient_type(_name(result)))


def _dtype(name: str) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def empty_results(a: Tensor, b: Tensor, row: EpilogueRow, dtype: torch.dtype | None) -> list[Tensor]:
    """Return the result and what is returned beside it, if anything, without values."""
    shape, extra = product_shapes(a, b, row)
    result = a.new_empty(shape, dtype=result_dtype(a, b, dtype))
    if extra is None:
        return [result]
    return [result, a.new_empty(extra, dtype=gradient_dtype(result.dtype) if row.gradient else result.dtype)]


def product_shapes(a: Tensor, b: Tensor, row: EpilogueRow) -> tuple[tuple[Any, ...], tuple[Any, ...] | None]:
    """Return the shapes of the result and of what is returned beside it, if anything."""
    m, n = (1 if a.dim() == 1 else a.shape[-2]), (1 if b.dim() == 1 else b.shape[-1])
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, *(() if a.dim() == 1 else (m,)), *(() if b.dim() == 1 else (n,)))
    if row.aux == "store":
        return shape, shape
    extras = {"bgrad": (*batch, n), "bgrada": (*a.shape[:-2], m), "bgradb": (*b.shape[:-2], n)}
    return shape, extras.get(row.gradient)


def refuse_composing(epilogue: str, is_exact: bool, why: str, advice: str) -> None:
    """Refuse an epilogue that is computed by torch's functions, as the product does that nothing records.

    Parameters
    ----------
    epilogue
        Its name.
    is_exact
        Whether its functions have one value wherever an element lies.
    why
        What it is composed for, in words.
    advice
        What to do.
    """
    options = current_options()
    if options.fallback == "error":
        raise UnsupportedError(
            f"epilogue {epilogue!r}: {why} it is computed by torch's own functions, which options(fallback='error') "
            f"forbids; {advice}"
        )
    if options.reproducible == "batch" and not is_exact:
        raise UnsupportedError(
            f"options(reproducible='batch'): {why} epilogue {epilogue!r} is computed by torch's own functions, which "
            f"may depend on an array's shape; {advice}"
        )
