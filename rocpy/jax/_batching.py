# SPDX-License-Identifier: MIT
"""The rule of jax.vmap: the mapped axis becomes a batch axis of one product."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from rocpy.jax._call import OPERANDS, Spec, is_column
from rocpy.jax._partition import partitioned_call

__all__ = ["batched_call"]


def batched_call(spec: Spec, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a product that ``jax.vmap`` knows a rule for."""
    present = tuple(x is not None for x in operands)
    return _mappable(spec, present)(*(x for x in operands if x is not None))


@functools.lru_cache(maxsize=1024)
def _mappable(spec: Spec, present: tuple[bool, ...]) -> Callable[..., Any]:
    """Return the product of those operands that are present, with its rule."""

    def every(operands: Sequence[Any], absent: Any) -> list[Any]:
        rest = iter(operands)
        return [next(rest) if there else absent for there in present]

    @custom_vmap  # type: ignore[untyped-decorator]
    def product(*operands: Any) -> Any:
        return partitioned_call(spec, every(operands, None))

    @product.def_vmap  # type: ignore[untyped-decorator]
    def rule(axis_size: int, in_batched: Sequence[bool], *operands: Any) -> Any:
        return _map(spec, axis_size, every(in_batched, False), every(operands, None))

    return product


def _padded(x: Any, mapped: bool, wanted: int) -> Any:
    """Return an operand with ``wanted`` axes of its own; new ones, of extent 1, stand behind the mapped axis."""
    own = x.ndim - mapped
    if own >= wanted:
        return x
    ones = (1,) * (wanted - own)
    return x.reshape((x.shape[0], *ones, *x.shape[1:]) if mapped else (*ones, *x.shape))


def _map(spec: Spec, size: int, mapped: Sequence[bool], operands: Sequence[Any]) -> tuple[Any, Any]:
    a, b, c, bias, aux = operands
    maps = dict(zip(OPERANDS, mapped, strict=True))
    rows, columns = a.ndim - maps["a"] > 1, b.ndim - maps["b"] > 1  # whether the result has these axes
    a = a if rows else jnp.expand_dims(a, -2)
    b = b if columns else jnp.expand_dims(b, -1)
    m = a.shape[-1 if spec.transpose_a else -2]
    n = b.shape[-2 if spec.transpose_b else -1]
    inner = max(a.ndim - maps["a"], b.ndim - maps["b"])
    own_a, own_b = (x.shape[1:-2] if is_mapped else x.shape[:-2] for x, is_mapped in ((a, maps["a"]), (b, maps["b"])))
    batch = jnp.broadcast_shapes(own_a, own_b)
    a, b = (_padded(x, is_mapped, inner) if is_mapped else x for x, is_mapped in ((a, maps["a"]), (b, maps["b"])))
    if not (maps["a"] or maps["b"]):
        a = jnp.broadcast_to(a, (size, *(1,) * (inner - a.ndim), *a.shape))

    def promoted(x: Any, name: str) -> Any:
        # Something that broadcasts to the result, with the axes that vectors leave away.
        x = _padded(x, maps[name], len(batch) + rows + columns)
        x = x if columns else jnp.expand_dims(x, -1)
        return x if rows else jnp.expand_dims(x, -2)

    if c is not None:
        c = promoted(c, "c")
    if aux is not None:
        aux = jnp.broadcast_to(promoted(aux, "aux"), (size, *batch, m, n))
    if bias is not None:
        own = bias.ndim - maps["bias"]
        if is_column(own, len(batch), rows and columns):
            bias = bias if maps["bias"] else bias[None]
        elif maps["bias"] or own > 1:
            bias = jnp.broadcast_to(_padded(bias, maps["bias"], len(batch) + 1), (size, *batch, n))
    results = batched_call(spec, (a, b, c, bias, aux))

    def demoted(x: Any) -> Any:
        absent = () if rows else (-2,), () if columns else (-1,)
        return jnp.squeeze(x, (*absent[0], *absent[1]))

    if not spec.row.outputs:
        return (demoted(results[0]),), (True,)
    if spec.row.aux == "store":
        return tuple(demoted(x) for x in results), (True, True)
    sums = results[1]
    if spec.row.gradient == "bgrad":
        return (demoted(results[0]), sums), (True, True)
    name, own_batch, length = ("a", own_a, m) if spec.row.gradient == "bgrada" else ("b", own_b, n)
    # The sums of an operand are mapped where it is; a was spread out where neither was.
    spread = name == "a" and not (maps["a"] or maps["b"])
    if not maps[name]:
        return (demoted(results[0]), (sums[0] if spread else sums).reshape(*own_batch, length)), (True, False)
    return (demoted(results[0]), sums.reshape(size, *own_batch, length)), (True, True)
