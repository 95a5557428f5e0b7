# SPDX-License-Identifier: MIT
"""Reductions: neighbours are combined, then neighbours of those, so that the order of operands is that of the ranks.

The tree does not depend on the warp size: a GPU that combines within its warps first, and then across them, gives the
same bits.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import register_jitable

from rocpy.cooperative.numba import operators
from rocpy.cooperative.numba.plans import Call, Plan, builds, plain
from rocpy.cooperative.numba.runtime import (
    arrive,
    await_leader,
    debugging,
    group_rank,
    group_size,
    open_slots,
    poison,
    release,
)
from rocpy.cooperative.numba.types import ThreadDataType, refuse

_NAMES = {"sum": "+", "min": "min", "max": "max"}


def make_put(combine: Any, count: int) -> Any:
    """Return a function that puts a thread's items, combined, into an array."""
    if count == 0:

        def single(slots: Any, at: int, value: Any) -> None:
            slots[at] = value

        return register_jitable(single)

    def put(slots: Any, at: int, value: Any) -> None:
        total = value[0]
        for i in range(1, count):
            total = combine(total, value[i])
        slots[at] = total

    return register_jitable(put)


def make_tree(combine: Any) -> Any:
    """Return a function that combines n elements of an array into the first of them."""

    def tree(values: Any, first: int, n: int) -> None:
        # Each level lies where the one before it began, so that it is read and written without gaps. Unsigned indices
        # are not looked at for being negative.
        start = types.uint64(first)
        count = types.uint64(max(n, 1))
        while count > types.uint64(1):
            half = count // types.uint64(2)
            for i in range(half):
                two = start + types.uint64(2) * i
                values[start + i] = combine(values[two], values[two + types.uint64(1)])
            if count % types.uint64(2):
                values[start + half] = values[start + count - types.uint64(1)]
                half += types.uint64(1)
            count = half

    return register_jitable(tree)


@builds("reduce", "sum", "min", "max")
def _build(call: Call) -> Plan:
    dtype, count = call.payload()
    chosen = operators.named(_NAMES[call.name], dtype) if call.name in _NAMES else operators.resolve(call, dtype)
    limited = call.has("valid_items")
    if limited and count:
        raise refuse(
            f"{call.name}: valid_items counts threads, not items; for a ThreadData, fill the unused items with the "
            "neutral element"
        )
    complaint = f"coop.{call.name}: valid_items is less than 1" if limited else ""
    function = _function(chosen, dtype, count, everyone=bool(call.literal("all", bool)), complaint=complaint)
    parameters = {"group": call.group, "value": plain(call.types["value"])} | call.integers("valid_items")
    choices = {"dtype": dtype, "items": count, "op": chosen, "all": bool(call.literal("all", bool))}
    return Plan(function, parameters, dtype, choices=choices)


def _function(chosen: operators.Operator, dtype: types.Type, count: int, *, everyone: bool, complaint: str) -> Any:
    """Return the function of a reduction; one of fewer than all threads has something to complain of."""
    put, tree = make_put(chosen.combine, count), make_tree(chosen.combine)

    @register_jitable
    def finish(group: Any, value: Any, valid: int) -> Any:
        rank = group_rank(group)
        slots = open_slots(group, dtype, 1)
        put(slots, rank, value)
        if arrive(group):
            tree(slots, 0, valid)
            release(group)
        await_leader(group)
        if everyone or rank == 0 or not debugging():
            return slots[0]
        return poison(dtype)

    def of_some(group: Any, value: Any, valid_items: int) -> Any:
        if valid_items < 1:
            raise IndexError(complaint)
        return finish(group, value, min(valid_items, group_size(group)))

    if complaint:
        return of_some
    return lambda group, value: finish(group, value, group_size(group))


@builds("reduce_batched")
def _build_batched(call: Call) -> Plan:
    dtype, count = call.payload()
    chosen = operators.resolve(call, dtype)
    everyone = bool(call.literal("all", bool))
    tree = make_tree(chosen.combine)

    def batched(group: Any, value: Any, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, dtype, count)
        for k in range(count):
            slots[k * size + rank] = value[k]
        if arrive(group):
            for k in range(count):
                tree(slots, k * size, size)
            release(group)
        await_leader(group)
        for k in range(count):
            batch = k if everyone else rank + k * size
            if batch < count:
                out[k] = slots[batch * size]
            elif debugging():
                out[k] = poison(dtype)
            else:
                out[k] = value[k]

    parameters = {"group": call.group, "value": plain(call.types["value"])}
    choices = {"dtype": dtype, "items": count, "op": chosen, "all": everyone}
    return Plan(batched, parameters, types.none, [ThreadDataType(dtype, count)], choices=choices)
