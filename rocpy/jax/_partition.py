# SPDX-License-Identifier: MIT
"""How a product is cut over devices by jax.jit: each computes its part, and parts of a sum are added up."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from rocpy import dtypes
from rocpy.blaslt.selection.recipes import function_of
from rocpy.errors import InvalidProblemError
from rocpy.jax._activations import activation_of, derivative_spec, plain_spec, row_sums, slope, wide
from rocpy.jax._call import OPERANDS, Spec, call, is_column, problem_of, varying_axes

__all__ = ["cut_as", "partitioned_call", "sharding_of", "vary_together"]

#: Shapes and types of the operands; ``None`` where there is none.
Seen = tuple[tuple[tuple[int, ...], Any] | None, ...]
#: Of each operand or result, a name for each axis; axes of one name are cut alike, those named "" not at all.
Names = list[tuple[str, ...]]


def vary_together(operands: Sequence[Any]) -> list[Any]:
    """Return the operands of one operation, each varying over the manual axes of `jax.shard_map` that any varies over.

    What is replicated is cast, as jax's own operations do: the gradient of that is the sum over the axes.
    """
    axes = frozenset().union(*(varying_axes(x) for x in operands if x is not None))
    if not axes:
        return list(operands)

    def cast(x: Any) -> Any:
        missing = () if x is None else tuple(sorted(axes - varying_axes(x)))
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    return [cast(x) for x in operands]


def partitioned_call(spec: Spec, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return the results of a product that `jax.jit` knows how to cut."""
    seen = tuple(None if x is None else (tuple(x.shape), x.dtype) for x in operands)
    known = all(isinstance(extent, int) for one in seen if one is not None for extent in one[0])
    # In jax.shard_map the caller has cut it; of symbolic extents nobody knows what can be cut.
    manual = any(varying_axes(x) for x in operands if x is not None)
    if manual or not known:
        return call(spec, operands)
    mesh = _explicit_mesh(operands)
    if mesh is not None:
        return _explicit_call(spec, operands, seen, mesh)
    if not jax.config.jax_use_shardy_partitioner:
        return call(spec, operands)
    results: tuple[Any, ...] = _partitionable(spec, seen)(*(x for x in operands if x is not None))
    return results


# ---- the names of the axes ----


def _aligned(names: tuple[str, ...], shape: Sequence[int], full: dict[str, int]) -> tuple[str, ...]:
    """Return the names of an array's axes from the last; one that is broadcast has none."""
    own = (*("",) * (len(shape) - len(names)), *names)[max(len(names) - len(shape), 0) :]
    return tuple(name if extent == full[name] else "" for name, extent in zip(own, shape, strict=True))


def _names(spec: Spec, seen: Seen) -> tuple[Names, Names]:
    """Return the names of the axes of the operands that are present and of the results."""
    shapes = [None if one is None else one[0] for one in seen]
    a, b, c, bias, aux = shapes
    problem, results = problem_of(spec, [None if one is None else jax.ShapeDtypeStruct(*one) for one in seen])
    rows, columns = len(a or ()) > 1, len(b or ()) > 1
    m, n = ("m",) * rows, ("n",) * columns
    result = tuple(results[0].shape)
    batch = tuple(f"batch{at}" for at in range(len(result) - rows - columns))
    names = (*batch, *m, *n)
    full = dict(zip(names, result, strict=True)) | {"k": problem.k, "": -1}
    pair_a = ("k", *m) if spec.transpose_a else (*m, "k")
    pair_b = (*n, "k") if spec.transpose_b else ("k", *n)
    operands = [_aligned((*batch, *pair_a), a or (), full), _aligned((*batch, *pair_b), b or (), full)]
    if c is not None:
        operands.append(_aligned(names, c, full))
    if bias is not None:
        column = is_column(len(bias), len(batch), rows and columns)
        operands.append(_aligned((*batch, *m, "") if column else (*batch, *(n or ("",))), bias, full))
    if aux is not None:
        operands.append(_aligned(names, aux, full))
    outputs: Names = [names]
    if spec.row.aux == "store":
        outputs.append(names)
    elif spec.row.gradient:
        sums = {"bgrad": (*batch, *n), "bgrada": (*batch, *m), "bgradb": (*batch, *n)}[spec.row.gradient]
        shape = tuple(results[1].shape)
        fits = len(shape) <= len(sums) and all(
            extent in (1, full[name]) for name, extent in zip(sums[len(sums) - len(shape) :], shape, strict=True)
        )
        outputs.append(_aligned(sums, shape, full) if fits else ("",) * len(shape))
    return operands, outputs


def _whole(spec: Spec, seen: Seen) -> tuple[str, ...]:
    """Return the names of the axes that cannot be cut."""
    problem, _ = problem_of(spec, [None if one is None else jax.ShapeDtypeStruct(*one) for one in seen])
    # Eight bits hold no sums of parts, and integers no parts that are multiplied by scales.
    row = dtypes.lookup(problem.dtype)
    whole = ("k",) if row.bits == 8 or (row.kind == "int" and spec.scales) else ()
    if not spec.row.gradient:
        return whole
    # Sums of a broadcast operand are its own.
    return (*whole, *(f"batch{at}" for at in range(max(len(one[0]) for one in seen if one is not None))))


# ---- meshes of explicit axes: types say how arrays are cut ----


def _explicit_mesh(operands: Sequence[Any]) -> Any:
    """Return the mesh over whose explicit axes an operand is cut by its type; ``None`` where none is."""
    for x in operands:
        sharding = None if x is None else getattr(jax.typeof(x), "sharding", None)
        if sharding is not None and any(map(_axes_of, sharding.spec)):
            return sharding.mesh
    return None


def _explicit_call(spec: Spec, operands: Sequence[Any], seen: Seen, mesh: Any) -> tuple[Any, ...]:
    """Return the results of a product whose operands' types say how they are cut, and its own with them."""
    names, outputs = _names(spec, seen)
    present = [(name, x) for name, x in zip(OPERANDS, operands, strict=True) if x is not None]
    cut = _cut(names, [jax.typeof(x).sharding for _, x in present], _whole(spec, seen))
    specs = _specs(names, cut)
    moved = []
    for (name, x), wanted in zip(present, specs, strict=True):
        own = jax.typeof(x).sharding.spec
        for axis, (start, to) in enumerate(zip(own, wanted, strict=True)):
            if _axes_of(start) and _axes_of(start) != _axes_of(to):
                raise InvalidProblemError(
                    f"{name}: axis {axis} is sharded over {_axes_of(start)}, which this product cannot keep: its parts "
                    f"would be gathered; reshard it first, with jax.sharding.reshard({name}, {wanted})"
                )
        # What is whole is cut where its partner is; nothing travels for that.
        moved.append(x if own == wanted else jax.sharding.reshard(x, NamedSharding(mesh, wanted)))
    run = jax.shard_map(
        functools.partial(_part, spec, seen, cut),
        mesh=mesh,
        in_specs=tuple(specs),
        out_specs=tuple(_specs(outputs, cut)),
        check_vma=False,
    )
    results: tuple[Any, ...] = run(*moved)
    return results


def sharding_of(x: Any) -> Any:
    """Return how an array is cut by its type, on a mesh of explicit axes; ``None`` elsewhere."""
    sharding = getattr(jax.typeof(x), "sharding", None)
    return sharding if sharding is not None and sharding.mesh.explicit_axes else None


def cut_as(x: Any, sharding: Any) -> Any:
    """Return an array cut as a type says: that of a gradient is that of what it is the gradient of."""
    return x if sharding is None or jax.typeof(x).sharding == sharding else jax.sharding.reshard(x, sharding)


# ---- the parts ----


@functools.lru_cache(maxsize=1024)
def _partitionable(spec: Spec, seen: Seen) -> Callable[..., Any]:
    """Return a product of such operands with its rules."""
    operands, outputs = _names(spec, seen)
    whole = _whole(spec, seen)

    @custom_partitioning  # type: ignore[untyped-decorator]
    def product(*operands: Any) -> Any:
        return call(spec, _every(seen, operands))

    def rule(mesh: Any, values: Any, results: Any) -> Any:  # noqa: ARG001
        used = dict.fromkeys(name for names in (*operands, *outputs) for name in names if name)
        unnamed = iter(range(10**6))

        def mapped(names: tuple[str, ...]) -> Any:
            return ArrayMapping(*(name or f"one{next(unnamed)}" for name in names))

        return SdyShardingRule(
            tuple(map(mapped, operands)),
            tuple(map(mapped, outputs)),
            reduction_factors=tuple(name for name in ("k",) if name not in whole),
            need_replication_factors=tuple(name for name in used if name in whole),
        )

    def partition(mesh: Any, arguments: Any, results: Any) -> Any:
        cut = _cut([*operands, *outputs], [array.sharding for array in (*arguments, *results)], whole)
        operand_shardings, result_shardings = (
            [NamedSharding(mesh, one) for one in _specs(names, cut)] for names in (operands, outputs)
        )
        return mesh, functools.partial(_part, spec, seen, cut), tuple(result_shardings), tuple(operand_shardings)

    product.def_partition(partition, sharding_rule=rule)
    return product


def _every(seen: Seen, operands: Sequence[Any]) -> list[Any]:
    """Return all operands of a call, ``None`` where there is none."""
    rest = iter(operands)
    return [None if one is None else next(rest) for one in seen]


def _axes_of(entry: Any) -> tuple[str, ...]:
    """Return the mesh's axes that one axis of an array is cut over."""
    return (entry,) if isinstance(entry, str) else entry if isinstance(entry, tuple) else ()


def _cut(names: Names, shardings: Sequence[Any], whole: tuple[str, ...]) -> dict[str, Any]:
    """Return the axes of the mesh that each name is cut over: as the first array says, each of the mesh's once."""
    cut: dict[str, Any] = {}
    used: set[str] = set()
    for own, sharding in zip(names, shardings, strict=True):
        for name, axes in zip(own, getattr(sharding, "spec", ()), strict=False):
            mesh_axes = _axes_of(axes)
            if name and mesh_axes and name not in cut and name not in whole and used.isdisjoint(mesh_axes):
                cut[name] = mesh_axes
                used.update(mesh_axes)
    return cut


def _specs(names: Names, cut: dict[str, Any]) -> list[PartitionSpec]:
    return [PartitionSpec(*(cut.get(name) for name in own)) for own in names]


def _part(spec: Spec, seen: Seen, cut: dict[str, Any], *operands: Any) -> tuple[Any, ...]:
    """Return the results of one device."""
    parts = _every(seen, operands)
    results = _sum_of_parts(spec, parts, cut["k"]) if "k" in cut else call(spec, parts)
    if spec.row.gradient == "bgrad" and "m" in cut:
        return results[0], jax.lax.psum(results[1], cut["m"])
    return results


def _sum_of_parts(spec: Spec, operands: Sequence[Any], axes: Any) -> tuple[Any, ...]:
    """Return the results where each device has a part of the sums: what follows the product follows their total."""
    a, b, c, bias, aux = operands
    row = spec.row
    of_operand = row.gradient in ("bgrada", "bgradb")
    bare = dataclasses.replace(plain_spec(spec), epilogue=row.name if of_operand else "default", beta=0.0)
    parts = jax.lax.psum(call(bare, (a, b, None, None, None)), axes)
    y = parts[0]
    if c is not None:
        y = y + jnp.asarray(spec.beta, y.dtype) * c
    if of_operand:
        return y, parts[1]
    if bias is not None:
        y = y + bias.reshape(_bias_shape(bias, y, a.ndim > 1, b.ndim > 1))
    if row.aux == "load":
        y = slope(derivative_spec(spec), y, aux)
    if row.gradient:
        return y, row_sums(spec, y, a.ndim == 1, b.ndim == 1)
    if row.aux == "load" or function_of(row) in ("default", "bias"):
        return (y,)
    d = activation_of(spec)(wide(y)).astype(y.dtype)
    return (d, y) if row.aux == "store" else (d,)


def _bias_shape(bias: Any, y: Any, rows: bool, columns: bool) -> tuple[int, ...]:
    """Return the shape by which a bias broadcasts to the result."""
    shape = tuple(bias.shape)
    if not (rows or columns):
        return shape[:-1]  # its one column is no axis of the result
    if not (rows and columns) or is_column(len(shape), y.ndim - 2, True):
        return shape
    return (*shape[:-1], 1, shape[-1]) if len(shape) > 1 else shape
