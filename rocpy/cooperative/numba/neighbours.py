# SPDX-License-Identifier: MIT
"""Discontinuities and differences of neighbours, runs and histograms."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import register_jitable

from rocpy.cooperative.api.operators import NAMES
from rocpy.cooperative.numba import operators
from rocpy.cooperative.numba.movement import same_kind
from rocpy.cooperative.numba.plans import Call, Plan, builds, item_getter, plain, with_constants
from rocpy.cooperative.numba.runtime import (
    arrive,
    arrive_and_wait,
    await_leader,
    debugging,
    group_rank,
    group_size,
    note_access,
    open_slots,
    poison,
    release,
)
from rocpy.cooperative.numba.sort import SlotLayout
from rocpy.cooperative.numba.types import ThreadDataType, refuse

_MOST = 2**63 - 1
_MOST_INDEX = 2**31 - 1
_TILE = ("tile_predecessor", "tile_successor")


def _tile_of(call: Call, dtype: types.Type, sides: tuple[str, ...]) -> tuple[dict[str, types.Type], dict[str, Any]]:
    """Return the items beside the tile as parameters, and what stands for those that are not given."""
    tile_types: dict[str, types.Type] = {}
    constants: dict[str, Any] = {}
    for name in _TILE:
        if not call.has(name):
            constants[name] = None
        elif name not in sides:
            raise refuse(f"{call.name}: {name} is not used with mode {call.literal('mode', str)!r}")
        else:
            tile_types[name] = call.converted(name, dtype)
    return tile_types, constants


def _share_ends(count: int, dtype: types.Type) -> Any:
    """Return a function that shows each thread's first and last item to the others, in slots 2r and 2r + 1."""
    each, get = max(count, 1), item_getter(count)

    @register_jitable
    def share(group: Any, slots: Any, value: Any) -> None:
        rank = group_rank(group)
        slots[2 * rank] = get(value, 0)
        slots[2 * rank + 1] = get(value, each - 1)
        arrive_and_wait(group)

    return share


def _difference_of(call: Call, dtype: types.Type) -> operators.Operator:
    word = call.word("op")
    accepted = "'!=' or a Python function of two items"
    if word is None:
        return operators.predicate(call, dtype, accepted)
    if word != "!=":
        raise refuse(f"{call.name}: op is {word!r}; pass {accepted}")
    if isinstance(dtype, types.Record):
        raise refuse(f"{call.name}: op '!=' is for numbers, and value is {dtype}; pass a Python function")
    return operators.Operator(register_jitable(lambda a, b: a != b), None, exact=True, name="!=")


_HEADS, _TAILS = ("tile_predecessor",), ("tile_successor",)
_FLAGS = {"heads": _HEADS, "tails": _TAILS, "heads_and_tails": _TILE}


@builds("discontinuity")
def _build_discontinuity(call: Call) -> Plan:
    dtype, count = call.payload()
    mode = call.one_of("mode", _FLAGS)
    chosen = _difference_of(call, dtype)
    differs = chosen.combine
    each, get, share = max(count, 1), item_getter(count), _share_ends(count, dtype)
    before = register_jitable(lambda slots, rank: slots[2 * rank - 1])
    after = register_jitable(lambda slots, rank: slots[2 * rank + 2])

    @register_jitable
    def heads(slots: Any, value: Any, rank: int, predecessor: Any, out: Any) -> None:
        out[0] = 1
        if rank > 0:
            out[0] = differs(before(slots, rank), get(value, 0))
        elif predecessor is not None:
            out[0] = differs(predecessor, get(value, 0))
        for k in range(1, each):
            out[k] = differs(get(value, k - 1), get(value, k))

    @register_jitable
    def tails(slots: Any, value: Any, rank: int, size: int, successor: Any, out: Any) -> None:
        for k in range(1, each):
            out[k - 1] = differs(get(value, k - 1), get(value, k))
        out[each - 1] = 1
        if rank < size - 1:
            out[each - 1] = differs(get(value, each - 1), after(slots, rank))
        elif successor is not None:
            out[each - 1] = differs(get(value, each - 1), successor)

    def both(group: Any, value: Any, predecessor: Any, successor: Any, out: Any, also: Any) -> None:
        slots = open_slots(group, dtype, 2)
        share(group, slots, value)
        heads(slots, value, group_rank(group), predecessor, out)
        tails(slots, value, group_rank(group), group_size(group), successor, also)

    def starts(group: Any, value: Any, predecessor: Any, _successor: Any, out: Any) -> None:
        slots = open_slots(group, dtype, 2)
        share(group, slots, value)
        heads(slots, value, group_rank(group), predecessor, out)

    def ends(group: Any, value: Any, _predecessor: Any, successor: Any, out: Any) -> None:
        slots = open_slots(group, dtype, 2)
        share(group, slots, value)
        tails(slots, value, group_rank(group), group_size(group), successor, out)

    function: Any = {"heads": starts, "tails": ends, "heads_and_tails": both}[mode]
    tile_types, constants = _tile_of(call, dtype, _FLAGS[mode])
    outputs = [ThreadDataType(types.int32, each)] * (2 if mode == "heads_and_tails" else 1)
    kernel = with_constants(function, ("group", "value", *_TILE, "out", "also")[: 4 + len(outputs)], constants)
    parameters = {"group": call.group, "value": plain(call.types["value"])} | tile_types
    choices = {"dtype": dtype, "items": count, "mode": mode, "op": chosen}
    return Plan(kernel, parameters, types.none, outputs, count == 0, choices)


_SIDES = {"left": _HEADS, "right": _TAILS}


@builds("adjacent_difference")
def _build_difference(call: Call) -> Plan:
    dtype, count = call.payload()
    mode = call.one_of("mode", _SIDES)
    if isinstance(dtype, types.Boolean) and call.word("op") == "-":
        raise refuse(f"{call.name}: op '-' is for numbers, and value is {dtype}")
    chosen = operators.resolve(call, dtype, (*NAMES, "-"))
    combine = chosen.combine
    each, get, share = max(count, 1), item_getter(count), _share_ends(count, dtype)

    def left(group: Any, value: Any, valid: int, predecessor: Any, _successor: Any, out: Any) -> None:
        slots, rank = open_slots(group, dtype, 2), group_rank(group)
        share(group, slots, value)
        out[0] = get(value, 0)
        if rank * each < valid:
            if rank > 0:
                out[0] = combine(get(value, 0), slots[2 * rank - 1])
            elif predecessor is not None:
                out[0] = combine(get(value, 0), predecessor)
        for k in range(1, each):
            out[k] = combine(get(value, k), get(value, k - 1)) if rank * each + k < valid else get(value, k)

    def right(group: Any, value: Any, valid: int, _predecessor: Any, successor: Any, out: Any) -> None:
        slots, rank, size = open_slots(group, dtype, 2), group_rank(group), group_size(group)
        share(group, slots, value)
        last = min(max(valid, 0), size * each) - 1
        for k in range(each):
            at = rank * each + k
            out[k] = get(value, k)
            if at < last:
                if k + 1 < each:
                    out[k] = combine(get(value, k), get(value, k + 1))
                else:
                    out[k] = combine(get(value, k), slots[2 * rank + 2])
            elif at == last and successor is not None:
                out[k] = combine(get(value, k), successor)

    tile_types, constants = _tile_of(call, dtype, _SIDES[mode])
    limits = call.integers("valid_items")
    if not limits:
        constants["valid_items"] = 2**62
    names = ("group", "value", "valid_items", *_TILE, "out")
    kernel = with_constants(left if mode == "left" else right, names, constants)
    parameters = {"group": call.group, "value": plain(call.types["value"])} | limits | tile_types
    choices = {"dtype": dtype, "items": count, "mode": mode, "op": chosen}
    return Plan(kernel, parameters, types.none, [ThreadDataType(dtype, each)], count == 0, choices)


# Runs.


def _make_runs(call: Call, count: int, dtype: types.Type) -> tuple[Any, Any, SlotLayout]:
    """Return functions that bring a group's runs together and find one, and where they lie."""
    lengths_type = call.companion("lengths", count)
    if not isinstance(lengths_type, types.Integer):
        raise refuse(f"{call.name}: lengths are {lengths_type}; they must be integers")
    each, get = max(count, 1), item_getter(count)
    complaint = f"coop.{call.name}: a length is negative, or 2**63 or more"
    overflow = f"coop.{call.name}: the lengths add up to 2**63 or more"

    @register_jitable
    def bring(group: Any, ends: Any, values: Any, value: Any, lengths: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        for k in range(each):
            length = types.int64(get(lengths, k))
            if length < 0:
                raise IndexError(complaint)
            ends[rank * each + k] = length
            values[rank * each + k] = get(value, k)
        if arrive(group):
            for i in range(1, size * each):
                if ends[i] > _MOST - ends[i - 1]:
                    raise IndexError(overflow)
                ends[i] += ends[i - 1]
            release(group)
        await_leader(group)

    @register_jitable
    def find(ends: Any, runs: int, at: int) -> int:
        low, high = 0, runs
        while low < high:
            middle = (low + high) // 2
            if ends[middle] > at:
                high = middle
            else:
                low = middle + 1
        return low

    return bring, find, SlotLayout(each, ends=types.int64, values=dtype)


@builds("run_length_decode")
def _build_decode(call: Call) -> Plan:
    dtype, count = call.payload()
    decoded = call.literal("items", int)
    if isinstance(decoded, bool) or decoded < 1:
        raise refuse(f"{call.name}: items is {decoded}; it must be 1 or more")
    relative = bool(call.literal("relative", bool))
    each = max(count, 1)
    bring, find, layout = _make_runs(call, count, dtype)
    bytes_each, ends_in, values_in = layout.bytes, layout["ends"], layout["values"]

    large_index = "coop.run_length_decode: an item's index in its run is 2**31 or more; omit relative="

    def decode(group: Any, value: Any, lengths: Any, window: int, out: Any, positions: Any) -> int:
        if window < 0:
            raise IndexError("coop.run_length_decode: window is negative")
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, types.uint8, bytes_each)
        ends, values = ends_in(slots, size), values_in(slots, size)
        bring(group, ends, values, value, lengths)
        runs = size * each
        for k in range(decoded):
            ahead = rank * decoded + k
            if window < ends[runs - 1] - ahead:
                at = window + ahead
                run = find(ends, runs, at)
                out[k] = values[run]
                if positions is not None:
                    index = at - (ends[run - 1] if run > 0 else 0)
                    if index > _MOST_INDEX:
                        raise IndexError(large_index)
                    positions[k] = index
            elif debugging():
                out[k] = poison(dtype)
                if positions is not None:
                    positions[k] = poison(types.int32)
        return ends[runs - 1]

    parameters = {"group": call.group, "value": plain(call.types["value"]), "lengths": plain(call.types["lengths"])}
    parameters |= call.integers("window")
    constants: dict[str, Any] = {} if "window" in parameters else {"window": 0}
    outputs = [ThreadDataType(dtype, decoded)]
    if relative:
        outputs.append(ThreadDataType(types.int32, decoded))
    else:
        constants["positions"] = None
    kernel = with_constants(decode, ("group", "value", "lengths", "window", "out", "positions"), constants)
    choices = {"dtype": dtype, "items": count, "decoded": decoded, "relative": relative}
    return Plan(kernel, parameters, types.int64, outputs, choices=choices)


@builds("run_length_decode_into")
def _build_decode_into(call: Call) -> Plan:
    dtype, count = call.payload()
    target = plain(call.types["target"])
    if not isinstance(target, types.Array) or target.ndim != 1 or not target.mutable:
        raise refuse(f"{call.name}: target is {target}; it must be an array of one dimension that can be written")
    same_kind(call, "target", target, dtype)
    each = max(count, 1)
    bring, find, layout = _make_runs(call, count, dtype)
    bytes_each, ends_in, values_in = layout.bytes, layout["ends"], layout["values"]

    def decode(group: Any, target: Any, value: Any, lengths: Any, offset: int) -> int:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, types.uint8, bytes_each)
        ends, values = ends_in(slots, size), values_in(slots, size)
        bring(group, ends, values, value, lengths)
        total = ends[size * each - 1]
        if offset < 0:
            raise IndexError("coop.run_length_decode_into: offset is negative")
        if total > target.shape[0] - offset:
            raise IndexError("coop.run_length_decode_into: the items extend past the end of target")
        for at in range(rank, total, size):
            item = values[find(ends, size * each, at)]
            if debugging():
                note_access(target, offset + at, item)
            target[offset + at] = item
        return total

    parameters = {
        "group": call.group,
        "target": target,
        "value": plain(call.types["value"]),
        "lengths": plain(call.types["lengths"]),
    } | call.integers("offset")
    constants = {} if "offset" in parameters else {"offset": 0}
    kernel = with_constants(decode, ("group", "target", "value", "lengths", "offset"), constants)
    return Plan(kernel, parameters, types.int64, choices={"dtype": dtype, "items": count})


# Counts.


@builds("histogram")
def _build_histogram(call: Call) -> Plan:
    dtype, count = call.payload()
    if not isinstance(dtype, types.Integer):
        raise refuse(f"histogram: value is {dtype}; expected integers, the indices of bins")
    bins, own = call.literal("bins", int), call.literal("bins_per_thread", int)
    if bins < 1 or own < 1:
        raise refuse(f"histogram: {bins} bins, {own} per thread; both must be 1 or more")
    each, get = max(count, 1), item_getter(count)

    def histogram(group: Any, value: Any, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        if size * own < bins:
            raise IndexError("coop.histogram: the threads of the group have too few counters; raise bins_per_thread")
        slots = open_slots(group, types.int32, each + own)
        counters = size * each
        for k in range(each):
            item = get(value, k)
            if item < 0 or item >= bins:
                raise IndexError("coop.histogram: an item is not a valid bin")
            slots[rank * each + k] = item
        if arrive(group):
            for i in range(size * own):
                slots[counters + i] = 0
            for i in range(counters):
                slots[counters + slots[i]] += 1
            release(group)
        await_leader(group)
        for k in range(own):
            out[k] = slots[counters + k * size + rank]

    parameters = {"group": call.group, "value": plain(call.types["value"])}
    choices = {"dtype": dtype, "items": count, "bins": bins, "bins_per_thread": own}
    return Plan(histogram, parameters, types.none, [ThreadDataType(types.int32, own)], choices=choices)
