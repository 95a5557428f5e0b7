# SPDX-License-Identifier: MIT
"""How the operators are computed on DTensors: which cuts of the operands give which cut of the result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from rocpy._producers.torch_modes import is_batched, is_sharded
from rocpy.blaslt.model.epilogues import EPILOGUES

__all__ = ["evenly_sharded", "lacks_lists", "register_for"]

_registered = False


def lacks_lists(operands: Iterable[Any]) -> bool:
    """Whether torch computes no operator of a list of results on such operands: DTensors, and entries of a batch."""
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    return any(map(is_sharded, tensors)) or (not torch.compiler.is_compiling() and any(map(is_batched, tensors)))


def register_for(operands: Iterable[Any]) -> None:
    """Register the strategies when the first DTensor comes by; its module takes a second to import."""
    if not _registered and any(map(is_sharded, operands)):
        _register()


def evenly_sharded(x: Any) -> Any:
    """Return a DTensor whose axes but the last torch can join: uneven ones are gathered on each rank."""
    from torch.distributed.tensor import Replicate

    sizes, placements = list(x.shape), list(x.placements)
    for i, ranks in enumerate(x.device_mesh.shape):
        axis = getattr(placements[i], "dim", None)
        if axis is None or axis == x.dim() - 1:
            continue
        if sizes[axis] == 0 or sizes[axis] % ranks:
            placements[i] = Replicate()
        else:
            sizes[axis] //= ranks
    return x.redistribute(placements=placements)


# Each strategy is a pair of lists: the cuts of the results and those of the operands, None for other arguments.
_Strategies = list[tuple[list[Any], list[Any]]]


def _linear(x: Any, weight: Any, bias: Any, activation: str, *, results: int = 1) -> _Strategies:  # noqa: ARG001
    from torch.distributed.tensor import Partial, Replicate, Shard

    whole, last = Replicate(), Shard(x.ndim - 1)

    def if_present(one: Any) -> Any:
        return None if bias is None else one

    choices: _Strategies = [([whole] * results, [whole, whole, if_present(whole), None])]
    choices += [([Shard(i)] * results, [Shard(i), whole, if_present(whole), None]) for i in range(x.ndim - 1)]
    choices.append(([last] * results, [whole, Shard(0), if_present(Shard(0)), None]))
    if activation == "none":
        choices.append(([Partial()] * results, [last, Shard(1), if_present(Partial()), None]))
    return choices


def _linear_aux(x: Any, weight: Any, bias: Any, activation: str) -> _Strategies:
    return _linear(x, weight, bias, activation, results=2)


def _mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, activation: str) -> _Strategies:  # noqa: ARG001
    from torch.distributed.tensor import Partial, Replicate, Shard

    whole = Replicate()

    def biases(first: Any, second: Any) -> list[Any]:
        return [None if b1 is None else first, None if b2 is None else second]

    def operands(rows: Any, first: Any, second: Any, bias: Any, last: Any) -> list[Any]:
        one, other = biases(bias, last)
        return [rows, first, one, second, other, None]

    choices: _Strategies = [([whole], operands(whole, whole, whole, whole, whole))]
    choices += [([Shard(i)], operands(Shard(i), whole, whole, whole, whole)) for i in range(x.ndim - 1)]
    # The hidden layer cut over the ranks: columns of the first layer, rows of the second.
    choices.append(([Partial()], operands(whole, Shard(0), Shard(1), Shard(0), Partial())))
    return choices


def _product(a: Any, b: Any, c: Any, bias: Any, aux: Any, epilogue: str, *settings: Any) -> _Strategies:
    from torch.distributed.tensor import Partial, Replicate, Shard

    row, whole = EPILOGUES[epilogue], Replicate()
    results = 2 if row.outputs else 1

    def strategy(cut: Any, extra: Any, first: Any, second: Any, bias_cut: Any = whole) -> Any:
        cuts = [cut, extra] if results == 2 else [cut]
        operands = [first, second, None if c is None else cut, None if bias is None else bias_cut]
        return cuts, [*operands, None if aux is None else cut, None, *(None for _ in settings)]

    choices: _Strategies = [strategy(whole, whole, whole, whole)]
    addends = [x for x in (c, aux) if x is not None]
    simple = a.ndim == 2 and b.ndim == 2 and all(x.ndim == 2 for x in addends)
    if not simple or (bias is not None and bias.ndim != 1):
        # Batches that both operands have in full.
        shared = a.ndim == b.ndim > 2 and a.shape[:-2] == b.shape[:-2] and not addends and bias is None
        if shared and not row.gradient:
            choices += [strategy(Shard(i), Shard(i), Shard(i), Shard(i)) for i in range(a.ndim - 2)]
        elif a.ndim > 2 and b.ndim == 2 and not addends and not row.gradient:
            choices += [strategy(Shard(i), Shard(i), Shard(i), whole) for i in range(a.ndim - 1)]
        return choices
    full = all(x.shape == (a.shape[0], b.shape[1]) for x in addends)
    if full:
        of_rows = {"bgrad": Partial(), "bgrada": Shard(0), "bgradb": whole}.get(row.gradient, Shard(0))
        of_columns = {"bgrad": Shard(0), "bgrada": whole, "bgradb": Shard(0)}.get(row.gradient, Shard(1))
        choices.append(strategy(Shard(0), of_rows, Shard(0), whole))
        choices.append(strategy(Shard(1), of_columns, whole, Shard(1), Shard(0)))
    if not addends and bias is None and row.name in ("default", "bgrada", "bgradb"):
        choices.append(strategy(Partial(), Partial(), Shard(1), Shard(0)))
    return choices


def _register() -> None:
    global _registered
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    operators = torch.ops.rocpy
    propagator = DTensor._op_dispatcher.sharding_propagator
    for operator, strategies, first_setting in (
        (operators.linear.default, _linear, 3),
        (operators.linear_aux.default, _linear_aux, 3),
        (operators.mlp.default, _mlp, 5),
        (operators.matmul.default, _product, 5),
        (operators.matmul_extra.default, _product, 5),
    ):
        register_sharding(operator)(strategies)
        # torch would remember a choice for all values of an argument that is no number; ours depends on names.
        chosen = propagator.op_strategy_funcs[operator]
        propagator.register_op_strategy(operator, chosen, RuntimeSchemaInfo(first_setting, needs_pytree=True))
    _registered = True
