# SPDX-License-Identifier: MIT
"""Gradients of a product: the forward one keeps the pre-activation by its epilogue, the backward one sums the bias'."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rocpy import dtypes
from rocpy.blaslt.model.epilogues import EPILOGUES, EpilogueRow
from rocpy.blaslt.model.product_types import gradient_type
from rocpy.blaslt.selection.recipes import function_of
from rocpy.jax._activations import activation_of, derivative_spec, plain_spec, relu_slope, row_sums, slope, wide
from rocpy.jax._batching import batched_call
from rocpy.jax._call import Spec, is_column
from rocpy.jax._partition import cut_as, sharding_of, vary_together

__all__ = ["product"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recorded(spec: Spec, a: Any, b: Any, c: Any, bias: Any, aux: Any) -> tuple[Any, ...]:
    return batched_call(spec, (a, b, c, bias, aux))


def product(spec: Spec, a: Any, b: Any, c: Any, bias: Any, aux: Any) -> tuple[Any, ...]:
    """Return the results of a product; absent operands are ``None``.

    Operands that are replicated in ``jax.shard_map`` vary with the others first: their gradients are sums then.
    """
    operands = vary_together((a, b, c, bias, aux))
    _limit_programs(spec)
    results: tuple[Any, ...] = _compiled(spec, *operands)
    return results


# Compiled, so that a call outside ``jax.jit`` is traced once for each shape and not every time. Not inlined into what
# is traced around it: jax.checkpoint runs that operation by operation, and jax holds the program of a bare one forever.
@functools.partial(jax.jit, static_argnums=0)
def _compiled(spec: Spec, a: Any, b: Any, c: Any, bias: Any, aux: Any) -> tuple[Any, ...]:
    return _recorded(spec, a, b, c, bias, aux)


# A call outside ``jax.jit`` compiles a program for each value of alpha, beta, a scale or a bound, of 1 to 2 MB, which
# jax would hold for as long as the process lives. Calls with tracers count too: those of jax.vmap, jax.vjp and
# jax.checkpoint run programs as well, and one inside jax.jit that is traced anew loses nothing but time.
_MOST_SPECS = 128
_seen: set[Spec] = set()


def _limit_programs(spec: Spec) -> None:
    """Give back the programs of calls outside ``jax.jit`` before there are those of too many sets of arguments."""
    if spec not in _seen:
        if len(_seen) >= _MOST_SPECS:
            _compiled.clear_cache()
            _seen.clear()
        _seen.add(spec)


# ---- activations: the derivative reads the pre-activation or the result ----


# From the result alone.
_BY_RESULT: dict[str, Callable[[Any, Any], Any]] = {
    "relu": relu_slope,
    "sigmoid": lambda g, y: g * y * (1 - y),
}


# ---- forward ----


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Addend:
    """Shape, type and cut of an operand whose gradient is a sum; its memory is not kept."""

    shape: tuple[Any, ...]
    dtype: Any
    sharding: Any


def _addend(x: Any) -> _Addend | None:
    return None if x is None else _Addend(tuple(x.shape), x.dtype, sharding_of(x))


def _is_composed(row: EpilogueRow) -> bool:
    """Whether an epilogue is differentiated as the plain product followed by jax's own functions."""
    return bool(row.gradient) or row.aux == "load"


def _composed(spec: Spec, a: Any, b: Any, c: Any, bias: Any, aux: Any) -> tuple[Any, ...]:
    row = spec.row
    y = product(plain_spec(spec), a, b, c, bias, None)[0]
    if row.aux == "load":
        y = slope(derivative_spec(spec), y, aux)
    if not row.gradient:
        return (y,)
    vector_a, vector_b = a.ndim == 1, b.ndim == 1
    if row.gradient == "bgrad":
        return y, row_sums(spec, y, vector_a, vector_b)
    dtype = dtypes.lookup(gradient_type(str(y.dtype), bool(spec.scales))).numpy
    # Neither numbers of eight bits nor their sums are: they are widened first.
    a, b = (x.astype(dtype) if _bits(x.dtype) == 8 else x for x in (a, b))
    if row.gradient == "bgrada":
        sums = a.sum(-1, keepdims=vector_a) if not spec.transpose_a else a.sum(-2)
    else:
        sums = b.sum(-2 if not vector_b else 0, keepdims=vector_b) if not spec.transpose_b else b.sum(-1)
    scale = spec.scale_a if row.gradient == "bgrada" else spec.scale_b
    return y, (sums if scale is None else sums * scale).astype(dtype)


def _forward(spec: Spec, a: Any, b: Any, c: Any, bias: Any, aux: Any) -> Any:
    """Compute, and keep what the gradient reads: a and b, and one array where the epilogue has an activation.

    By ``product`` itself, so that an outer derivative finds its rule.
    """
    row, name = spec.row, function_of(spec.row)
    if _is_composed(row):
        results, pull = jax.vjp(functools.partial(_composed, spec), a, b, c, bias, aux)
        if spec.forbids_composing:
            results = product(spec, a, b, c, bias, aux)
        return results, pull
    residuals = (a, b, _addend(c), _addend(bias))
    if name in ("default", "bias"):
        results = product(spec, a, b, c, bias, None)
        return results, (*residuals, None)
    if row.aux == "store":
        results = product(spec, a, b, c, bias, None)
        return results, (*residuals, results[1])
    if name in _BY_RESULT:
        results = product(spec, a, b, c, bias, None)
        return results, (*residuals, results[0])
    stored = f"{name}_aux_bias" if row.bias else f"{name}_aux"
    if stored in EPILOGUES:
        d, pre = product(dataclasses.replace(spec, epilogue=stored), a, b, c, bias, None)
    else:
        (pre,) = product(plain_spec(spec), a, b, c, bias, None)
        d = activation_of(spec)(wide(pre)).astype(pre.dtype)
    return (d,), (*residuals, pre)


# ---- backward ----


def _sum_to(x: Any, shape: Sequence[Any]) -> Any:
    """Return an array summed over the axes that an operand of this shape was broadcast along."""
    extra = x.ndim - len(shape)
    axes = [axis for axis, extent in enumerate(shape, extra) if extent == 1 and x.shape[axis] != 1]
    x = x.sum((*range(extra), *axes), keepdims=True) if extra or axes else x
    return x.reshape(shape)


def _bits(dtype: Any) -> int:
    return dtypes.lookup(str(dtype)).bits


def _gradient_type(operand: Any, d: Any) -> Any:
    """Return the type of the products that give operands' gradients from that of the result.

    The narrowest that holds the operands' values, or the gradient's type where its range is larger: float16 would
    overflow, bfloat16 only rounds.
    """
    narrow = jnp.bfloat16 if _bits(operand) == 8 else operand
    return d if jnp.finfo(d).tiny < jnp.finfo(narrow).tiny else narrow


def _backward(spec: Spec, residuals: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the gradients of all operands; XLA drops those that nobody reads."""
    if _is_composed(spec.row):
        return residuals(gradients)
    a, b, c, bias, saved = residuals
    if not jnp.issubdtype(gradients[0].dtype, jnp.inexact):
        return None, None, None, None, None
    # Eight bits hold no gradient: all is computed in wider types, and rounded at the end.
    narrow = _bits(gradients[0].dtype) == 8
    d, saved, *more = (wide(x) if narrow and x is not None else x for x in (gradients[0], saved, *gradients[1:]))
    name = function_of(spec.row)
    if name in _BY_RESULT and spec.row.aux == "none":
        d = _BY_RESULT[name](d, saved)
    elif saved is not None:
        d = slope(spec, d, saved)
    if spec.row.aux == "store":
        d = d + more[0]
    # As the product itself does: a factor may be out of the range of the result's type.
    grad_c = None if c is None else _sum_to(wide(d) * spec.beta, c.shape).astype(c.dtype)
    # With the axes that numpy's rules leave away for vectors.
    a2, b2 = (a[None, :] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    d2 = d[..., None] if b.ndim == 1 else d
    d2 = d2[..., None, :] if a.ndim == 1 else d2
    grad_a, grad_b, sums = None, None, None
    if jnp.issubdtype(a.dtype, jnp.inexact):
        working = _gradient_type(a.dtype, d2.dtype)
        factor = spec.alpha * math.prod(spec.scales.values())
        base = Spec(alpha=factor, compute=spec.compute, options=spec.options)
        left, right, result = (x.astype(working) for x in (a2, b2, d2))
        grad_a = _sum_to(_gradient_a(base, spec, right, result), a2.shape).reshape(a.shape).astype(a.dtype)
        # The bias' gradient is a sum of the result's, not of that in the type of the products.
        grad_b, sums = _gradient_b(base, spec, left, right, result, working == d2.dtype and _is_row(bias, d2))
        grad_b = _sum_to(grad_b, b2.shape).reshape(b.shape).astype(b.dtype)
    grad_bias = None
    if bias is not None:
        sums = _bias_gradient(bias, a, b, d2) if sums is None else sums
        grad_bias = sums.reshape(bias.shape).astype(bias.dtype)
    return (
        None if grad_a is None else cut_as(grad_a, sharding_of(a)),
        None if grad_b is None else cut_as(grad_b, sharding_of(b)),
        None if c is None else cut_as(grad_c, c.sharding),
        None if bias is None else cut_as(grad_bias, bias.sharding),
        None,
    )


def _gradient_a(base: Spec, spec: Spec, b: Any, d: Any) -> Any:
    replace = dataclasses.replace
    if spec.transpose_a:
        return product(replace(base, transpose_a=spec.transpose_b, transpose_b=True), b, d, None, None, None)[0]
    return product(replace(base, transpose_b=not spec.transpose_b), d, b, None, None, None)[0]


def _gradient_b(base: Spec, spec: Spec, a: Any, b: Any, d: Any, with_sums: bool) -> tuple[Any, Any]:
    """Return b's gradient and, where asked for and one product gives both, the column sums of ``d``."""
    whole = not spec.transpose_a and a.shape[:-1] == d.shape[:-1] and _has_whole_rows(a) and _has_whole_rows(d)
    if b.ndim == 2 and a.ndim > 2 and whole:
        # One b for the whole batch: its gradient is a single product over all rows.
        a, d = _as_matrix(a), _as_matrix(d)
    with_sums = with_sums and a.ndim == d.ndim == 2
    if spec.transpose_b:
        ours = dataclasses.replace(base, transpose_a=True, transpose_b=spec.transpose_a)
        operands, epilogue = (d, a), "bgrada"
    else:
        ours = dataclasses.replace(base, transpose_a=not spec.transpose_a)
        operands, epilogue = (a, d), "bgradb"
    if with_sums:
        ours = dataclasses.replace(ours, epilogue=epilogue)
    results = product(ours, *operands, None, None, None)
    return results[0], results[1] if with_sums else None


def _has_whole_rows(x: Any) -> bool:
    """Whether jax can merge the axes of rows: on a mesh of explicit axes, where none but the first is cut."""
    sharding = sharding_of(x)
    return sharding is None or not any(sharding.spec[1:-1])


def _as_matrix(x: Any) -> Any:
    # Not -1: an array without elements has no one answer to it.
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _is_row(bias: _Addend | None, d: Any) -> bool:
    """Whether the bias' gradient is the column sums of the whole result, in a type that the epilogue has."""
    return (
        bias is not None
        and len(bias.shape) == 1
        and d.dtype in (jnp.float32, jnp.float16, jnp.bfloat16)
        and bias.dtype == d.dtype
    )


def _bias_gradient(bias: _Addend, a: Any, b: Any, d: Any) -> Any:
    if is_column(len(bias.shape), d.ndim - 2, min(a.ndim, b.ndim) > 1):
        return _sum_to(d.sum(-1, keepdims=True), bias.shape)
    return _sum_to(d.sum(-2), bias.shape)


_recorded.defvjp(_forward, _backward)
