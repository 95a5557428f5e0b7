# SPDX-License-Identifier: MIT
"""Reductions: neighbours are combined, then neighbours of those, so that the order of operands is that of the ranks.

The tree does not depend on the warp size: a GPU that combines within its warps first, and then across them, gives the
same bits.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import register_jitable

from rocpy.cooperative import numba_operators as operators
from rocpy.cooperative.numba_primitives import Call, Plan, builds
from rocpy.cooperative.numba_runtime import arrive, debugging, group_rank, group_size, open_slots, poison, release
from rocpy.cooperative.numba_types import refuse

_NAMES = {"sum": "+", "min": "min", "max": "max"}


def make_own(combine: Any, count: int) -> Any:
    """Return a function that combines a thread's own items."""
    if count == 0:
        return register_jitable(lambda value: value)

    def own(value: Any) -> Any:
        total = value[0]
        for i in range(1, count):
            total = combine(total, value[i])
        return total

    return register_jitable(own)


def make_tree(combine: Any) -> Any:
    """Return a function that combines the first n elements of an array into its first."""

    def tree(values: Any, n: int) -> None:
        step = 1
        while step < n:
            for i in range(0, n - step, 2 * step):
                values[i] = combine(values[i], values[i + step])
            step *= 2

    return register_jitable(tree)


@builds("reduce", "sum", "min", "max")
def _build(call: Call) -> Plan:
    dtype, count = call.payload()
    chosen = operators.named(_NAMES[call.name], dtype) if call.name in _NAMES else operators.resolve(call, dtype)
    limited = call.given("valid_items")
    if limited and count:
        raise refuse(f"{call.name}: valid_items counts threads; with a ThreadData fill the rest with a neutral element")
    function = _function(chosen, dtype, count, everyone=bool(call.literal("all", bool)), limited=limited)
    parameters = {"group": call.group, "value": types.unliteral(call.types["value"])}
    if limited:
        call.integer("valid_items")
        parameters["valid_items"] = types.int64
    return Plan(function, parameters, dtype)


def _function(chosen: operators.Operator, dtype: types.Type, count: int, *, everyone: bool, limited: bool) -> Any:
    own, tree = make_own(chosen.combine, count), make_tree(chosen.combine)

    @register_jitable
    def finish(group: Any, value: Any, valid: int) -> Any:
        rank = group_rank(group)
        slots = open_slots(group, dtype, 1)
        slots[rank] = own(value)
        if arrive(group):
            tree(slots, valid)
            release(group)
        if everyone or rank == 0 or not debugging():
            return slots[0]
        return poison(dtype)

    if limited:
        return lambda group, value, valid_items: finish(group, value, min(valid_items, group_size(group)))
    return lambda group, value: finish(group, value, group_size(group))
