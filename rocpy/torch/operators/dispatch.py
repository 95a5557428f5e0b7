# SPDX-License-Identifier: MIT
"""From rocpy.matmul's arguments to the operators: for tensors that are recorded, traced or transformed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy

from rocpy import dtypes
from rocpy._fp_environment import read_complex
from rocpy._producers.torch_modes import kind_reason
from rocpy._producers.torch_refusals import TorchLayerRequired, advice
from rocpy.blaslt.front.call import compute_product
from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.grouped.groups import aligned, check_epilogue, in_group, read_each
from rocpy.blaslt.model.epilogues import EpilogueRow, find_epilogue, is_custom, refuse_inputs, stored_aux
from rocpy.blaslt.model.options import block_of, resolve_options
from rocpy.blaslt.model.product_types import check_cast
from rocpy.blaslt.model.refusals import cast_refused
from rocpy.blaslt.model.settings import clamp_bounds
from rocpy.blaslt.operands.weight import Weight
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.torch.operators.autograd import needs_grad
from rocpy.torch.operators.below import refuse_inside
from rocpy.torch.operators.explanation import explained
from rocpy.torch.operators.forms import (
    check_custom,
    check_groups,
    custom_arguments,
    custom_product,
    grouped_with_epilogue,
    read_weight,
)
from rocpy.torch.operators.products import (
    product,
    product_extra,
    recorded_name,
    run_product,
    run_product_extra,
)
from rocpy.torch.operators.registration import check_without_values, route_of
from rocpy.torch.operators.shapes import dtype_for_out, refuse_mixed, refuse_unreadable
from rocpy.torch.operators.sharding import register_for
from rocpy.torch.operators.tangents import refuse_tangents

__all__ = ["dispatch", "dispatched_grouped", "dispatched_matmul"]

_DEFAULTS = {"stream": None, "algorithm": None, "autotune": None, "amax": False}


def dispatch(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one of rocpy's functions through torch's dispatcher; what the function form calls."""
    refuse_inside()
    if name == "explain":
        function, operands = args
        return explained(function, *_with_options(kwargs.get("options"), _as_computed, operands, kwargs))
    if name == "grouped_matmul":
        return dispatched_grouped(*args, **kwargs)
    return dispatched_matmul(*args, **kwargs)


def _check_tensor(x: Any, name: str) -> None:
    if x is not None and not isinstance(x, (Tensor, Proxy)):
        raise InvalidOperandError(
            f"{name}: got {type(x).__name__} together with torch tensors that need autograd, a transform or a "
            "compiler; pass a torch tensor"
        )
    refuse_unreadable(**{name: x})


def _scalar(x: Any, name: str) -> Any:
    # As it is: torch's compiler makes a changing number an input of its graph, and float() would fix it.
    if isinstance(x, float) or (isinstance(x, int) and -(2**63) <= x < 2**63):  # torch's integers have 64 bits
        return x
    if isinstance(x, Tensor):
        raise UnsupportedError(
            f"{name}: got a tensor; the operators accept only Python numbers, which carry no gradient: pass "
            f"float({name}), or multiply by the tensor"
        )
    try:
        if isinstance(x, str):  # of which complex() reads digits
            raise TypeError("text")
        number = read_complex(x)
    except (TypeError, ValueError, OverflowError):
        raise InvalidOperandError(f"{name}: got {x!r} ({type(x).__name__}), expected a number on the host") from None
    return number if number.imag or isinstance(x, complex) else number.real


def _scalars(alpha: Any, beta: Any, c: Any) -> tuple[Any, Any]:
    """Return alpha and beta as numbers; without beta an addend counts once."""
    numbers = _scalar(alpha, "alpha"), (0.0 if c is None else 1.0) if beta is None else _scalar(beta, "beta")
    if c is None and numbers[1] != 0:
        raise InvalidProblemError(f"beta = {beta} scales c, and there is no c; pass c= or omit beta")
    return numbers


def _dtype(dtype: Any) -> Any:
    return (
        getattr(torch, dtypes.lookup(dtype).name) if dtype is not None and not isinstance(dtype, torch.dtype) else dtype
    )


def _custom_arguments(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    *,
    alpha: Any = 1.0,
    beta: Any = None,
    epilogue: Any,
    bias: Any = None,
    aux: Any = None,
    clamp: Any = None,
    epilogue_inputs: Any = None,
    dtype: Any = None,
    compute: str | None = None,
    **others: Any,
) -> tuple[Any, ...]:
    """Return what a product with an epilogue of the user's is computed from; refuses what no operator takes."""
    _refuse_untraced(others, a, b)
    scalars = _scalars(alpha, beta, c)
    if out is not None:
        raise UnsupportedError("out: not available with a custom epilogue that torch records or traces; omit it")
    _check_tensor(a, "a")
    if isinstance(b, Weight):
        refuse_unreadable(b=b)
    else:
        _check_tensor(b, "b")
    _check_tensor(c, "c")
    for name, value in zip(("alpha", "beta"), scalars, strict=True):
        if isinstance(value, complex):
            raise InvalidOperandError(f"{name}: got {value!r} (complex), expected a real number on the host")
    refuse_tangents(a=a, b=b, c=c)
    if isinstance(epilogue_inputs, Mapping):
        refuse_unreadable(**{f"epilogue_inputs[{name!r}]": value for name, value in epilogue_inputs.items()})
        refuse_tangents(**{str(name): value for name, value in epilogue_inputs.items()})
    settings = {"bias": bias, "aux": aux, "clamp": clamp, "dtype": _dtype(dtype), "compute": compute}
    return custom_arguments(a, b, c, epilogue, epilogue_inputs, scalars, **settings)


def _source_of(weight: Weight) -> tuple[Any, Any]:
    """Return the tensor that a Weight was made of, as (K, N), and its bias."""
    read = read_weight(weight)
    return read.source if read.layout == "kn" else read.source.transpose(-1, -2), read.bias


def dispatched_matmul(a: Any, b: Any, /, c: Any = None, *, out: Any = None, **arguments: Any) -> Any:
    """Return what ``rocpy.matmul`` returns, by the operators: recorded, traced or transformed as torch wants it."""
    if out is None:
        return _dispatched(a, b, c, **arguments)
    _check_tensor(a, "a")
    if any(isinstance(x, Proxy) for x in (a, b, c, out)):
        raise UnsupportedError("out: not available where torch.fx traces with symbols; omit it")
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        raise UnsupportedError("out: not available under a transform of torch.func; omit it")
    if not (torch.amp.is_autocast_available(a.device.type) and torch.is_autocast_enabled(a.device.type)):
        return _dispatched(a, b, c, out=out, **arguments)
    # As torch's own functions, one with out= computes in the types of its operands.
    with torch.autocast(a.device.type, enabled=False):
        return matmul(a, b, c, out=out, **arguments)


def _arguments(
    a: Any,
    b: Any,
    c: Any,
    out: Any,
    *,
    alpha: Any = 1.0,
    beta: Any = None,
    epilogue: Any = None,
    bias: Any = None,
    aux: Any = None,
    clamp: Any = None,
    epilogue_inputs: Any = None,
    dtype: Any = None,
    compute: str | None = None,
    **others: Any,
) -> tuple[Any, ...]:
    """Return a product's epilogue, how its operands can be used, and its operator's arguments; refuses all others."""
    if others:
        _refuse_untraced(others, a, b)
    scalars = _scalars(alpha, beta, c)
    if epilogue_inputs is not None:
        refuse_inputs(epilogue)
    row = find_epilogue(epilogue)
    if isinstance(b, Weight):
        b, own_bias = _source_of(b)
        bias = own_bias if bias is None and row.bias else bias
    aux = stored_aux(aux) if isinstance(aux, dict) else aux
    access = 0 if out is not None else route_of(a, b, c, bias, aux)
    if access == 0:
        for operand, name in ((a, "a"), (b, "b"), (c, "c"), (bias, "bias"), (aux, "aux"), (out, "out")):
            _check_tensor(operand, name)
        refuse_mixed(a=a, out=out)
        refuse_tangents(a=a, b=b, c=c, bias=bias, aux=aux)
        if not torch.compiler.is_compiling():
            register_for((a, b))
    if out is not None and needs_grad(a, b, c, bias, aux, out):
        raise UnsupportedError("out: a product that autograd records cannot write to an existing tensor; omit out=")
    dtype = dtype_for_out(a, b, out, c, bias, aux) if out is not None and dtype is None else _dtype(dtype)
    bounds = None if clamp is None else list(clamp_bounds(clamp))
    return row, access, a, b, c, bias, aux, row.name, *scalars, bounds, dtype, compute


def _with_options(options: Any, run: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    if options is None:
        return run(*arguments, **settings)
    _refuse_traced_options()
    with block_of(resolve_options(options)):
        return run(*arguments, **settings)


def _dispatched(a: Any, b: Any, /, c: Any = None, *, out: Any = None, options: Any = None, **arguments: Any) -> Any:
    if is_custom(arguments.get("epilogue")):
        return _with_options(options, custom_product, *_custom_arguments(a, b, c, out, **arguments))
    row, *call = _arguments(a, b, c, out, **arguments)
    result = _with_options(options, run_product_extra if row.outputs else run_product, *call)
    extra = None
    if row.outputs:
        result, extra = result[0], result[1]
    if out is not None:
        result = _write(out, result, options)
    return result if extra is None else (result, {row.outputs[0]: extra})


def dispatched_grouped(a: Any, b: Any, /, *, options: Any = None, **arguments: Any) -> Any:
    """Return what ``rocpy.grouped_matmul`` returns, by the operators: recorded, traced or transformed."""
    row, products, packed, settings = _grouped_arguments(a, b, **arguments)
    if packed:
        return _with_options(options, grouped_with_epilogue, *packed, **settings)
    results = _of_each_group(lambda left, right, own: _product_of_group(left, right, options=options, **own), products)
    if not row.outputs:
        return results
    name = row.outputs[0]
    return [pair[0] for pair in results], {name: [pair[1][name] for pair in results]}


def _grouped_arguments(
    a: Any,
    b: Any,
    /,
    *,
    offsets: Any = None,
    groups: Any = None,
    epilogue: Any = None,
    bias: Any = None,
    clamp: Any = None,
    alpha: Any = 1.0,
    dtype: Any = None,
    **others: Any,
) -> tuple[EpilogueRow, list[tuple[Any, Any, dict[str, Any]]], tuple[Any, ...], dict[str, Any]]:
    """Return the epilogue and either the products of lists or what groups in one operand are computed from.

    That is empty for lists: operands, and settings by name.
    """
    _refuse_untraced(others, a, b)
    row = find_epilogue(epilogue)
    check_epilogue(row)
    if offsets is None:
        lefts, rights, biases, _ = aligned(a, b, bias, None, groups)
        lefts, rights, biases = read_each(lefts, "a"), read_each(rights, "b"), read_each(biases, "bias")
        settings = {"epilogue": row.name, "clamp": clamp, "alpha": alpha, "dtype": dtype}
        products = [
            (left, right, {"bias": vector, **settings})
            for left, right, vector in zip(lefts, rights, biases, strict=True)
        ]
        return row, products, (), {}
    for operand, name in ((a, "a"), (b, "b"), (bias, "bias")):
        _check_tensor(operand, name)
    refuse_tangents(a=a, b=b, bias=bias)
    bounds = None if clamp is None else clamp_bounds(clamp)
    settings = {"clamp": bounds, "alpha": _scalar(alpha, "alpha"), "dtype": _dtype(dtype)}
    return row, [], (a, b, offsets, groups, row.name, bias), settings


def _of_each_group(function: Callable[..., Any], products: list[tuple[Any, Any, dict[str, Any]]]) -> list[Any]:
    """Return what a function returns of each group's product. Its refusals name the group, unless they are traced."""
    if torch.compiler.is_compiling():
        return [function(*operands) for operands in products]
    results = []
    for group, operands in enumerate(products):
        try:
            results.append(function(*operands))
        except (InvalidOperandError, InvalidProblemError, UnsupportedError) as error:
            raise in_group(error, group) from None
    return results


def _product_of_group(a: Any, b: Any, **settings: Any) -> Any:
    """Return the product of one group; one that needs no recording goes its own way."""
    if not torch.compiler.is_compiling() and route_of(a, b, settings["bias"]) != 2:
        try:
            return compute_product(a, b, **settings)
        except TorchLayerRequired:
            pass
    return dispatched_matmul(a, b, **settings)


def _as_computed(operands: tuple[Any, ...], arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return operands and arguments of a call as the operators have them; refuses what they refuse."""
    settings = {name: value for name, value in arguments.items() if name not in ("options", "autotune")}
    a, b, c = operands if len(operands) == 3 else (*operands, None)
    if arguments.get("offsets") is not None or isinstance(a, list | tuple) or isinstance(b, list | tuple):
        _, products, packed, rest = _grouped_arguments(a, b, **settings)
        if packed:
            check_groups(*packed, **rest)
            return operands, arguments

        def computed(left: Any, right: Any, own: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return _as_computed((left, right), own) if route_of(left, right, own["bias"]) != 1 else ((left, right), own)

        each = _of_each_group(computed, products)
        biases = [own.get("bias") for _, own in each]
        more = {} if all(bias is None for bias in biases) else {"bias": biases}
        return ([pair[0] for pair, _ in each], [pair[1] for pair, _ in each]), {**arguments, **more}
    if is_custom(arguments.get("epilogue")):
        a, b, c, epilogue, numbers, tensors, rest = _custom_arguments(a, b, c, None, **settings)
        check_custom(a, b, c, epilogue, numbers, tensors, rest)
        return (a, b, c), {**arguments, "epilogue_inputs": {**numbers, **tensors}}
    row, _, *call = _arguments(a, b, c, None, **settings)
    a, b, c, bias, aux = call[:5]
    composes = needs_grad(a, b, c, bias, aux) and recorded_name(row.name) is None
    check_without_values(product_extra if row.outputs else product, call, composes)
    more = {name: value for name, value in (("bias", bias), ("aux", aux)) if value is not None}
    return (a, b, c), {**arguments, **more}


def _refuse_untraced(others: dict[str, Any], *operands: Any) -> None:
    """Refuse arguments that the operators do not have: by what they are, where the operands are plain tensors."""
    if not torch.compiler.is_compiling() and not any(isinstance(x, Tensor) and kind_reason(x) for x in operands):
        for name, value in others.items():
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, Tensor):
                    _refuse_kind(one, name)
    for name, value in others.items():
        if value is not _DEFAULTS.get(name) and value is not None:
            raise UnsupportedError(
                f"{name}: not available where torch records, traces, transforms or casts the product; omit it, or "
                "call it under torch.no_grad() and outside of autocast, on plain tensors"
            )


def _refuse_kind(x: Tensor, name: str) -> None:
    reason = kind_reason(x)
    if reason is not None:
        raise UnsupportedError(f"{name}: {reason}; {advice(reason)}")


def _refuse_traced_options() -> None:
    """End a graph here, so that the product runs with its options after it; an error where one graph is wanted."""
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(
            msg="options: not traceable; use `with rocpy.options(...)` around the compiled function"
        )


def _overlaps_itself(out: Tensor) -> bool:
    """Whether two indices may name one element; in Python, so that torch can trace it."""
    axes = [(step, extent) for step, extent in zip(out.stride(), out.shape, strict=True) if extent > 1]
    for index, (step, _) in enumerate(axes):
        # What the axes of smaller steps reach, which an axis must step over.
        smaller = [one for other, one in enumerate(axes) if one[0] < step or (one[0] == step and other < index)]
        if step <= sum(before * (extent - 1) for before, extent in smaller):
            return out.numel() > 0
    return False


def _write(out: Tensor, result: Tensor, options: Any) -> Tensor:
    if out.device != result.device:
        raise InvalidOperandError(
            f"out is on {out.device} and the result on {result.device}; pass an out= on the operands' device"
        )
    if out.shape != result.shape:
        raise InvalidProblemError(
            f"out: shape {tuple(out.shape)}, but the result has shape {tuple(result.shape)}; pass out= of that shape"
        )
    if _overlaps_itself(out):
        raise InvalidOperandError(
            "out has elements that share memory, or axes that interleave (an expanded or as_strided view?); pass its "
            "contiguous copy"
        )
    if out.dtype != result.dtype:
        result_type, seen = (str(x.dtype).removeprefix("torch.") for x in (result, out))
        check_cast(result_type, seen)
        if not torch.compiler.is_compiling() and resolve_options(options).copies == "error":
            raise cast_refused(seen, result_type)
        if seen.startswith("float8"):  # of which torch may make infinities and NaN
            limit = torch.finfo(out.dtype).max
            result = result.clamp(-limit, limit)
    return out.copy_(result)
