# SPDX-License-Identifier: MIT
"""Primitives on AMD GPUs: the device library takes the place of the CPU's collectives; the others run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import register_jitable

from rocpy.cooperative.amdgpu import library_calls as library
from rocpy.cooperative.api.device import atomic
from rocpy.cooperative.numba import operators
from rocpy.cooperative.numba.movement import arrangements, source_function
from rocpy.cooperative.numba.plans import DEVICE, Plan, item_getter, with_constants
from rocpy.cooperative.numba.runtime import arrive_and_wait, group_rank, group_size, open_slots

_EVERYONE = 2**31 - 1


def _builds(*names: str) -> Callable[[Any], Any]:
    def register(make: Any) -> Any:
        for name in names:
            DEVICE[name] = make
        return make

    return register


def _own(combine: Any, count: int) -> Any:
    """Return a function that combines a thread's items."""

    def several(value: Any) -> Any:
        total = value[0]
        for i in range(1, count):
            total = combine(total, value[i])
        return total

    return register_jitable(several if count else (lambda value: value))


@_builds("reduce", "sum", "min", "max")
def _reduce(plan: Plan) -> Any:
    dtype, count, chosen = (plan.choices[name] for name in ("dtype", "items", "op"))
    if isinstance(dtype, types.Record):
        return None
    own, combined = _own(chosen.combine, count), library.reduce_in_group(dtype, chosen)

    def function(group: Any, value: Any, valid_items: Any) -> Any:
        return combined(group, own(value), valid_items)

    names = ("group", "value", "valid_items")
    return with_constants(function, names, {} if "valid_items" in plan.parameters else {"valid_items": _EVERYONE})


@_builds("reduce_batched")
def _reduce_batched(plan: Plan) -> Any:
    dtype, count, chosen, everyone = (plan.choices[name] for name in ("dtype", "items", "op", "all"))
    if isinstance(dtype, types.Record):
        return None
    combined = library.reduce_in_group(dtype, chosen)

    def function(group: Any, value: Any, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        for k in range(count):
            total = combined(group, value[k], _EVERYONE)
            for j in range(count):  # places known when it is compiled, so that the items stay in registers
                if j == k if everyone else rank + j * size == k:
                    out[j] = total

    return function


@_builds("inclusive_scan", "exclusive_scan", "inclusive_sum", "exclusive_sum")
def _scan(plan: Plan) -> Any:  # noqa: C901 - the forms of one function
    dtype, count, chosen, exclusive, aggregate = (
        plan.choices[name] for name in ("dtype", "items", "op", "exclusive", "aggregate")
    )
    if isinstance(dtype, types.Record):
        return None
    has_initial, has_prefix = "initial" in plan.parameters, "prefix" in plan.parameters
    combine, cast = chosen.combine, operators.caster(dtype)
    own, scanned = _own(combine, count), library.scan_in_group(dtype, chosen)
    broadcast = library.move_in_group("broadcast", dtype)
    begins = has_initial or has_prefix
    neutral = chosen.identity if exclusive and not begins else None
    has_neutral = neutral is not None
    start = neutral if has_neutral else 0

    if has_prefix:

        @register_jitable
        def first_of(group: Any, _initial: Any, prefix: Any, state: Any, total: Any) -> Any:
            first = total
            if group_rank(group) == 0:
                first = cast(prefix(state, total))
            return broadcast(group, first, 0)
    else:

        @register_jitable
        def first_of(_group: Any, initial: Any, _prefix: Any, _state: Any, total: Any) -> Any:
            return cast(initial) if has_initial else total

    @register_jitable
    def results(group: Any, value: Any, initial: Any, prefix: Any, state: Any) -> Any:
        inclusive, before, total = scanned(group, own(value))
        rank = group_rank(group)
        if begins:
            first = first_of(group, initial, prefix, state, total)
            inclusive = combine(first, inclusive)
            before = combine(first, before) if rank > 0 else first
        elif has_neutral and rank == 0:
            before = cast(start)
        return inclusive, before, total

    def scalar(group: Any, value: Any, initial: Any, prefix: Any, state: Any, _out: Any) -> Any:
        inclusive, before, total = results(group, value, initial, prefix, state)
        result = before if exclusive else inclusive
        if aggregate:
            return result, total
        return result

    def items(group: Any, value: Any, initial: Any, prefix: Any, state: Any, out: Any) -> Any:
        _inclusive, before, total = results(group, value, initial, prefix, state)
        held = value[0]
        if begins or has_neutral or group_rank(group) > 0:
            if exclusive:
                out[0] = before
            held = combine(before, value[0])
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
            return total
        return None

    names = ("group", "value", "initial", "prefix", "state", "out")
    absent: dict[str, Any] = {name: None for name in names[2:5] if name not in plan.parameters}
    if not count:
        absent["out"] = None
    return with_constants(items if count else scalar, names, absent)


@_builds("any")
def _any(_plan: Plan) -> Any:
    return lambda group, value: library.any_in_group(group, value)


@_builds("all")
def _all(_plan: Plan) -> Any:
    return lambda group, value: library.all_in_group(group, value)


@_builds("ballot")
def _ballot(_plan: Plan) -> Any:
    return lambda group, value: library.ballot_in_warp(group, value)


@_builds("match")
def _match(plan: Plan) -> Any:
    dtype = plan.choices["dtype"]
    if not isinstance(dtype, (types.Integer, types.Float)):
        return None
    matching = library.match_in_warp(dtype)
    return lambda group, value: matching(group, value)


@_builds("shuffle")
def _shuffle(plan: Plan) -> Any:
    moved = library.move_in_group("shuffle", plan.choices["dtype"])
    source_of = source_function(plan.choices["mode"], plan.parameters["distance"])

    def function(group: Any, value: Any, distance: Any) -> Any:
        return moved(group, value, source_of(group_rank(group), distance, group_size(group)))

    return function


@_builds("broadcast")
def _broadcast(plan: Plan) -> Any:
    count = plan.choices["items"]
    moved, get = library.move_in_group("broadcast", plan.choices["dtype"]), item_getter(count)
    each = max(count, 1)

    def function(group: Any, value: Any, source: Any, out: Any) -> None:
        for k in range(each):
            out[k] = moved(group, get(value, k), source)

    return with_constants(
        function, ("group", "value", "source", "out"), {} if "source" in plan.parameters else {"source": 0}
    )


# Transposes: neighbours in memory are read by neighbouring threads, and change places in shared memory.

_READ = {"transpose": "striped", "warp_transpose": "warp_striped"}


@_builds("load")
def _load(plan: Plan) -> Any:
    dtype, count, algorithm = (plan.choices[name] for name in ("dtype", "items", "algorithm"))
    if algorithm not in _READ:
        return None
    position = arrangements(count)[_READ[algorithm]]
    fills = "oob_default" in plan.parameters

    def function(group: Any, source: Any, out: Any, valid_items: int, offset: int, oob_default: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, dtype, count)
        limit = min(valid_items, source.shape[0] - offset)
        for k in range(count):
            at = position(group, rank, size, k)
            if at < limit:
                slots[at] = source[types.uint64(offset + at)]
        arrive_and_wait(group)
        for k in range(count):
            at = rank * count + k
            if at < limit:
                out[k] = slots[at]
            elif fills:
                out[k] = oob_default

    names = ("group", "source", "out", "valid_items", "offset", "oob_default")
    constants = {"valid_items": 2**62, "offset": 0, "oob_default": None}
    return with_constants(function, names, {name: constants[name] for name in names[3:] if name not in plan.parameters})


@_builds("store")
def _store(plan: Plan) -> Any:
    dtype, count, algorithm = (plan.choices[name] for name in ("dtype", "items", "algorithm"))
    if algorithm not in _READ:
        return None
    each, get = max(count, 1), item_getter(count)
    position = arrangements(each)[_READ[algorithm]]

    def function(group: Any, target: Any, value: Any, valid_items: int, offset: int) -> None:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, dtype, each)
        for k in range(each):
            slots[rank * each + k] = get(value, k)
        arrive_and_wait(group)
        limit = min(valid_items, target.shape[0] - offset)
        for k in range(each):
            at = position(group, rank, size, k)
            if at < limit:
                target[types.uint64(offset + at)] = slots[at]

    names = ("group", "target", "value", "valid_items", "offset")
    constants = {"valid_items": 2**62, "offset": 0}
    return with_constants(function, names, {name: constants[name] for name in names[3:] if name not in plan.parameters})


@_builds("histogram")
def _histogram(plan: Plan) -> Any:
    count, bins, own = (plan.choices[name] for name in ("items", "bins", "bins_per_thread"))
    each, get = max(count, 1), item_getter(count)

    def function(group: Any, value: Any, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, types.int32, own)
        for k in range(own):
            slots[k * size + rank] = 0
        arrive_and_wait(group)
        for k in range(each):
            item = get(value, k)
            if 0 <= item < min(bins, size * own):
                atomic.add(slots, item, 1)
        arrive_and_wait(group)
        for k in range(own):
            out[k] = slots[k * size + rank]

    return function
