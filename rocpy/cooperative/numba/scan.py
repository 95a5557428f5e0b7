# SPDX-License-Identifier: MIT
"""Scans: rows of 16 ranks by doubling distances, then pairs of rows, of pairs and so on, as GPUs compute them.

The order does not depend on the warp size. Where it cannot be seen, for integers, the scan runs straight through.
"""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import register_jitable

from rocpy.cooperative.numba import operators
from rocpy.cooperative.numba.plans import Call, Plan, builds, plain, with_constants
from rocpy.cooperative.numba.reduce import make_put
from rocpy.cooperative.numba.runtime import arrive, await_leader, group_rank, group_size, open_slots, release
from rocpy.cooperative.numba.types import ThreadDataType, refuse

ROW = 16


def make_inclusive(chosen: operators.Operator) -> Any:
    """Return a function that scans the first n elements of an array in place."""
    combine = chosen.combine

    def straight(values: Any, n: int) -> None:
        for i in range(1, n):
            values[i] = combine(values[i - 1], values[i])

    def laddered(values: Any, n: int) -> None:
        for begin in range(0, n, ROW):
            end = min(begin + ROW, n)
            distance = 1
            while distance < ROW:
                for i in range(end - 1, begin + distance - 1, -1):
                    values[i] = combine(values[i - distance], values[i])
                distance *= 2
        width = ROW
        while width < n:
            for middle in range(width, n, 2 * width):
                left = values[middle - 1]
                for i in range(middle, min(middle + width, n)):
                    values[i] = combine(left, values[i])
            width *= 2

    return register_jitable(straight if chosen.exact else laddered)


@builds("inclusive_scan", "exclusive_scan", "inclusive_sum", "exclusive_sum")
def _build(call: Call) -> Plan:
    dtype, count = call.payload()
    chosen = operators.named("+", dtype) if call.name.endswith("_sum") else operators.resolve(call, dtype)
    exclusive = call.name.startswith("exclusive")
    initial, prefix = call.has("initial"), call.has("prefix")
    if initial and prefix:
        raise refuse(f"{call.name}: pass either initial or prefix; the callback's result is the initial value")
    start = None
    if exclusive and not initial and not prefix:
        if chosen.identity is None:
            raise refuse(f"{call.name}: a Python function has no known neutral element; pass initial=")
        start = chosen.identity
    aggregate = bool(call.literal("aggregate", bool))
    parameters = {"group": call.group, "value": plain(call.types["value"])}
    if initial:
        parameters["initial"] = call.converted("initial", dtype)
    if prefix:
        parameters["prefix"], parameters["state"] = _prefix_types(call, dtype)
    elif call.has("state"):
        raise refuse(f"{call.name}: state= is used only with prefix=; pass prefix= or omit state")
    function = _function(chosen, dtype, count, exclusive, start, initial or prefix, prefix, aggregate)
    names = ["group", "value", "initial", "prefix", "state", "out"]
    constants: dict[str, Any] = {name: None for name in names[2:5] if name not in parameters}
    outputs = [ThreadDataType(dtype, count)] if count else []
    result: types.Type = types.none
    if count and aggregate:
        result = dtype
    elif not count:
        constants["out"] = None
        result = types.Tuple([dtype, dtype]) if aggregate else dtype
    kernel = with_constants(function, tuple(names), constants)
    choices = {"dtype": dtype, "items": count, "op": chosen, "exclusive": exclusive, "aggregate": aggregate}
    return Plan(kernel, parameters, result, outputs, choices=choices)


def _prefix_types(call: Call, dtype: types.Type) -> tuple[types.Type, types.Type]:
    function, state = call.types["prefix"], plain(call.types["state"])
    if not isinstance(function, types.Dispatcher):
        raise refuse(f"{call.name}: prefix is {function}; it must be a Python function of (state, aggregate)")
    if not isinstance(state, types.Array):
        raise refuse(f"{call.name}: state is {state}; give state=, an array of the block or of the grid, with prefix=")
    operators.check(call, "prefix", (state, dtype), dtype, "a Python function of (state, aggregate)")
    return function, state


def _function(  # noqa: C901 - the forms of one function
    chosen: operators.Operator,
    dtype: types.Type,
    count: int,
    exclusive: bool,
    start: Any,
    begins: bool,
    has_prefix: bool,
    aggregate: bool,
) -> Any:
    combine = chosen.combine
    put, scan = make_put(combine, count), make_inclusive(chosen)
    cast = operators.caster(dtype)
    has_start = start is not None
    neutral = start if has_start else 0
    first = _first_of(has_prefix=has_prefix, begins=begins)

    # Slots: totals of the threads, scanned; then what comes before the first; then the total of all.
    @register_jitable
    def fill(group: Any, slots: Any, value: Any, initial: Any, prefix: Any, state: Any) -> None:
        size = group_size(group)
        put(slots, group_rank(group), value)
        if arrive(group):
            scan(slots, size)
            slots[2 * size] = slots[size - 1]
            if begins:
                before = cast(first(initial, prefix, state, slots[size - 1]))
                slots[size] = before
                for i in range(size):
                    slots[i] = combine(before, slots[i])
            elif has_start:
                slots[size] = cast(neutral)
            release(group)
        await_leader(group)

    known = begins or has_start

    @register_jitable
    def before(slots: Any, rank: int, size: int) -> Any:
        return slots[rank - 1] if rank > 0 else slots[size]

    def scalar(group: Any, value: Any, initial: Any, prefix: Any, state: Any, _out: Any) -> Any:
        slots = open_slots(group, dtype, 3)
        fill(group, slots, value, initial, prefix, state)
        rank, size = group_rank(group), group_size(group)
        result = before(slots, rank, size) if exclusive else slots[rank]
        if aggregate:
            return result, slots[2 * size]
        return result

    def items(group: Any, value: Any, initial: Any, prefix: Any, state: Any, out: Any) -> Any:
        slots = open_slots(group, dtype, 3)
        fill(group, slots, value, initial, prefix, state)
        rank, size = group_rank(group), group_size(group)
        held = value[0]
        if known or rank > 0:
            held = before(slots, rank, size)
            if exclusive:
                out[0] = held
            held = combine(held, value[0])
        if not exclusive:
            out[0] = held
        for i in range(1, count):
            item = value[i]
            if exclusive:
                out[i] = held
            held = combine(held, item)
            if not exclusive:
                out[i] = held
        if aggregate:
            return slots[2 * size]
        return None

    return register_jitable(items if count else scalar)


def _first_of(*, has_prefix: bool, begins: bool) -> Any:
    if has_prefix:
        return register_jitable(lambda _initial, prefix, state, total: prefix(state, total))
    if begins:
        return register_jitable(lambda initial, _prefix, _state, _total: initial)
    return register_jitable(lambda _initial, _prefix, _state, total: total)
