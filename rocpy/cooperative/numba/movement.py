# SPDX-License-Identifier: MIT
"""Moving values between threads: each writes its slot, all wait, each reads what it needs."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic, register_jitable

from rocpy.cooperative.numba import runtime
from rocpy.cooperative.numba.groups import WARP
from rocpy.cooperative.numba.llvm_types import I64
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
from rocpy.cooperative.numba.types import ThreadDataType, refuse

_ALGORITHMS = ("direct", "striped", "vectorize", "transpose", "warp_transpose")
_COLLECTIVE = ("transpose", "warp_transpose")


# Numba's sums of integers must not overflow: what LLVM makes of a comparison with one that does is anything.


@register_jitable
def _bounded(distance: int) -> int:
    """Return a distance that no overflow follows from, outside of every group as the one it stands for."""
    return min(max(distance, -(2**62)), 2**62)


@register_jitable
def _wrapped(rank: int, size: int) -> int:
    """Return a rank below twice the group's size as one of the group."""
    return rank - size if rank >= size else rank


SOURCES = {
    "up": lambda rank, distance, size: rank - _bounded(distance),
    "down": lambda rank, distance, size: rank + _bounded(distance),
    "offset": lambda rank, distance, size: rank + _bounded(distance),
    "rotate": lambda rank, distance, size: _wrapped(rank + distance % size, size),
    "xor": lambda rank, distance, size: rank ^ distance,
    "index": lambda rank, distance, size: distance,
}


def _rotated_by_unsigned(rank: int, distance: Any, size: int) -> Any:
    return _wrapped(rank + types.int64(distance % types.uint64(size)), size)


def source_function(mode: str, distance: types.Type) -> Any:
    """Return the function of rank, distance and size that gives the rank whose value a thread gets."""
    return register_jitable(_rotated_by_unsigned if distance == types.uint64 else SOURCES[mode])


@builds("shuffle")
def _build_shuffle(call: Call) -> Plan:
    dtype, _ = call.payload()
    mode = call.one_of("mode", SOURCES)
    call.integer("distance")
    is_unsigned = types.unliteral(call.types["distance"]) == types.uint64
    distance_type = types.uint64 if mode == "rotate" and is_unsigned else types.int64
    source_of = source_function(mode, distance_type)

    def function(group: Any, value: Any, distance: Any) -> Any:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, dtype, 1)
        slots[rank] = value
        arrive_and_wait(group)
        source = source_of(rank, distance, size)
        return slots[source if 0 <= source < size else rank]

    parameters = {"group": call.group, "value": dtype, "distance": distance_type}
    return Plan(function, parameters, dtype, choices={"dtype": dtype, "mode": mode})


@builds("broadcast")
def _build_broadcast(call: Call) -> Plan:
    dtype, count = call.payload()
    each, get = max(count, 1), item_getter(count)

    def items(group: Any, value: Any, source: int, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        if source < 0 or source >= size:
            raise IndexError("coop.broadcast: source is not a rank of the group")
        slots = open_slots(group, dtype, each)
        for k in range(each):
            slots[rank * each + k] = get(value, k)
        arrive_and_wait(group)
        for k in range(each):
            out[k] = slots[source * each + k]

    parameters = {"group": call.group, "value": plain(call.types["value"])} | call.integers("source")
    constants = {} if "source" in parameters else {"source": 0}
    kernel = with_constants(items, ("group", "value", "source", "out"), constants)
    choices = {"dtype": dtype, "items": count}
    return Plan(kernel, parameters, types.none, [ThreadDataType(dtype, each)], count == 0, choices)


@builds("any", "all")
def _build_vote(call: Call) -> Plan:
    call.payload()
    every = call.name == "all"

    def function(group: Any, value: Any) -> bool:
        slots = open_slots(group, types.uint8, 1)
        slots[group_rank(group)] = value
        if arrive(group):
            count = 0
            for i in range(group_size(group)):
                count += slots[i]
            slots[0] = count == group_size(group) if every else count > 0
            release(group)
        await_leader(group)
        return slots[0] != 0

    return Plan(function, {"group": call.group, "value": types.boolean}, types.boolean)


def _warp_only(call: Call) -> None:
    if call.group is not WARP:
        raise refuse(f"{call.name}: a mask has a bit for each thread of a warp; pass coop.this_warp()")


@builds("ballot")
def _build_ballot(call: Call) -> Plan:
    call.payload()
    _warp_only(call)

    def function(group: Any, value: Any) -> Any:
        slots = open_slots(group, types.uint64, 1)
        rank = group_rank(group)
        slots[rank] = types.uint64(value) << types.uint64(rank)
        if arrive(group):
            mask = slots[0]
            for i in range(1, group_size(group)):
                mask |= slots[i]
            slots[0] = mask
            release(group)
        return slots[0]

    return Plan(function, {"group": call.group, "value": types.boolean}, types.uint64)


@builds("match")
def _build_match(call: Call) -> Plan:
    dtype, _ = call.payload()
    _warp_only(call)
    if isinstance(dtype, types.Record):
        raise refuse(f"match: value is {dtype}; expected numbers")

    def function(group: Any, value: Any) -> Any:
        slots = open_slots(group, dtype, 1)
        slots[group_rank(group)] = value
        arrive_and_wait(group)
        mask = types.uint64(0)
        for i in range(group_size(group)):
            if slots[i] == value:
                mask |= types.uint64(1) << types.uint64(i)
        return mask

    return Plan(function, {"group": call.group, "value": dtype}, types.uint64, choices={"dtype": dtype})


# Memory.


def _tile(call: Call, array_name: str) -> tuple[types.Array, str]:
    array = plain(call.types[array_name])
    if not isinstance(array, types.Array) or array.ndim != 1:
        raise refuse(f"{call.name}: {array_name} is {array}; it must be an array of one dimension")
    return array, call.one_of("algorithm", _ALGORITHMS)


def same_kind(call: Call, name: str, array: types.Array, dtype: types.Type) -> None:
    """Check that elements of an array and items can be copied."""
    structured = isinstance(array.dtype, types.Record) or isinstance(dtype, types.Record)
    if array.dtype != dtype and (structured or not isinstance(array.dtype, (types.Number, types.Boolean))):
        raise refuse(f"{call.name}: {name} is {array}, and an item is {dtype}; expected numbers for numbers")


@register_jitable
def _arrives(group: Any) -> None:
    """Let debug mode notice that not all threads come where a GPU would need them."""
    if debugging():
        open_slots(group, types.uint8, 1)
        arrive_and_wait(group)


@register_jitable
def _nothing(group: Any) -> None:
    pass


def _memory_plan(
    call: Call, function: Any, names: tuple[str, ...], parameters: dict[str, types.Type], **more: Any
) -> Plan:
    """Make the plan of a function of group, array, items, valid_items, offset and, of loads, the default."""
    constants = {"valid_items": 2**62, "offset": 0, "oob_default": None}
    missing = {name: constants[name] for name in names if name in constants and name not in parameters}
    return Plan(with_constants(function, names, missing), parameters, choices=more)


@builds("load")
def _build_load(call: Call) -> Plan:
    dtype, count = call.payload("out")
    array, algorithm = _tile(call, "source")
    same_kind(call, "source", array, dtype)
    if call.has("oob_default") and not call.has("valid_items"):
        raise refuse("load: oob_default= is used only with valid_items=; pass it or omit oob_default")
    position, rendezvous = _position_of(algorithm, count), _arrives if algorithm in _COLLECTIVE else _nothing
    fills = call.has("oob_default")
    before, beyond = _complaints(call, "source")

    def load(group: Any, source: Any, out: Any, valid: int, offset: int, default: Any) -> None:
        rendezvous(group)
        rank, size = group_rank(group), group_size(group)
        if debugging():
            for k in range(count):
                at = position(rank, size, k)
                if at < valid and -at <= offset < source.shape[0] - at:
                    note_access(source, offset + at, None)
        if offset >= 0 and size * count <= valid and offset <= source.shape[0] - size * count:
            for k in range(count):
                out[k] = source[types.uint64(offset + position(rank, size, k))]
            return
        for k in range(count):
            at = position(rank, size, k)
            if at < valid:
                if offset < -at:
                    raise IndexError(before)
                if offset >= source.shape[0] - at:
                    raise IndexError(beyond)
                out[k] = source[offset + at]
            elif fills:
                out[k] = default

    parameters = {"group": call.group, "source": array, "out": plain(call.types["out"])}
    parameters |= call.integers("valid_items", "offset") | (
        {"oob_default": call.converted("oob_default", dtype)} if fills else {}
    )
    names = ("group", "source", "out", "valid_items", "offset", "oob_default")
    return _memory_plan(call, load, names, parameters, dtype=dtype, items=count, algorithm=algorithm)


@builds("store")
def _build_store(call: Call) -> Plan:
    dtype, count = call.payload("value")
    array, algorithm = _tile(call, "target")
    same_kind(call, "target", array, dtype)
    if not array.mutable:
        raise refuse("store: target is read-only")
    each, get = max(count, 1), item_getter(count)
    before, beyond = _complaints(call, "target")
    position, rendezvous = _position_of(algorithm, each), _arrives if algorithm in _COLLECTIVE else _nothing

    def store(group: Any, target: Any, value: Any, valid: int, offset: int) -> None:
        rendezvous(group)
        rank, size = group_rank(group), group_size(group)
        if debugging():
            for k in range(each):
                at = position(rank, size, k)
                if at < valid and -at <= offset < target.shape[0] - at:
                    note_access(target, offset + at, get(value, k))
        if offset >= 0 and size * each <= valid and offset <= target.shape[0] - size * each:
            for k in range(each):
                target[types.uint64(offset + position(rank, size, k))] = get(value, k)
            return
        for k in range(each):
            at = position(rank, size, k)
            if at < valid:
                if offset < -at:
                    raise IndexError(before)
                if offset >= target.shape[0] - at:
                    raise IndexError(beyond)
                target[offset + at] = get(value, k)

    parameters = {"group": call.group, "target": array, "value": plain(call.types["value"])}
    parameters |= call.integers("valid_items", "offset")
    names = ("group", "target", "value", "valid_items", "offset")
    return _memory_plan(call, store, names, parameters, dtype=dtype, items=count, algorithm=algorithm)


def _complaints(call: Call, array: str) -> tuple[str, str]:
    """Return what is said of a tile that begins before an array, and of one that ends after it."""
    advice = "pass fewer valid_items or a smaller offset" if call.has("valid_items") else "pass valid_items="
    before = f"coop.{call.name}: the tile begins before {array}; pass an offset of 0 or more"
    return before, f"coop.{call.name}: the tile extends past the end of {array}; {advice}"


def _position_of(algorithm: str, count: int) -> Any:
    if algorithm == "striped":
        return register_jitable(lambda rank, size, k: k * size + rank)
    return register_jitable(lambda rank, size, k: rank * count + k)


# Exchange.


@intrinsic
def _warp_width(_typing: Any, group: Any) -> Any:
    """Return the threads of a whole warp, at most those of the group's width."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        whole = runtime.load_word(builder, runtime.WORDS["warp_size"])
        if group is WARP:
            whole = arguments[0]
        return builder.sext(whole, I64)

    return types.int64(group), codegen


def arrangements(count: int) -> dict[str, Any]:
    """Return functions of group, rank, size and k: the number of item k of a rank, by arrangement."""

    def warp_striped(group: Any, rank: int, size: int, k: int) -> int:
        width = _warp_width(group)
        first = rank // width * width
        return first * count + k * min(width, size - first) + (rank - first)

    return {
        "blocked": register_jitable(lambda group, rank, size, k: rank * count + k),
        "striped": register_jitable(lambda group, rank, size, k: k * size + rank),
        "warp_striped": register_jitable(warp_striped),
    }


_MODES = {
    "blocked_to_striped": ("blocked", "striped"),
    "striped_to_blocked": ("striped", "blocked"),
    "blocked_to_warp_striped": ("blocked", "warp_striped"),
    "warp_striped_to_blocked": ("warp_striped", "blocked"),
    "scatter_to_blocked": ("", "blocked"),
    "scatter_to_striped": ("", "striped"),
    "scatter_to_striped_guarded": ("", "striped"),
    "scatter_to_striped_flagged": ("", "striped"),
}


def _matching_integers(call: Call, name: str, count: int) -> types.Type:
    argument = plain(call.types[name])
    kinds = (types.Integer, types.Boolean) if name == "flags" else types.Integer
    if not isinstance(argument, ThreadDataType) or not isinstance(argument.dtype, kinds) or argument.count != count:
        raise refuse(f"exchange: {name} is {argument}; it must be a ThreadData of {count} integers")
    return argument


@builds("exchange")
def _build_exchange(call: Call) -> Plan:
    dtype, count = call.payload()
    mode = call.one_of("mode", _MODES)
    before, after = _MODES[mode]
    parameters: dict[str, types.Type] = {"group": call.group, "value": plain(call.types["value"])}
    for name, wanted in (("ranks", not before), ("flags", mode.endswith("_flagged"))):
        if wanted != call.has(name):
            raise refuse(f"exchange: mode is {mode!r}, which {'needs' if wanted else 'does not take'} {name}")
        if wanted:
            parameters[name] = _matching_integers(call, name, count)
    read = arrangements(count)[after]
    write = arrangements(count)[before] if before else None
    function: Any
    if write:

        def function(group: Any, value: Any, out: Any) -> None:
            rank, size = group_rank(group), group_size(group)
            slots = open_slots(group, dtype, count)
            for k in range(count):
                slots[write(group, rank, size, k)] = value[k]
            arrive_and_wait(group)
            for k in range(count):
                out[k] = slots[read(group, rank, size, k)]
    else:
        scatter = _make_scatter(dtype, count, read, guarded=mode.endswith("_guarded"))
        if "flags" in parameters:

            def function(group: Any, value: Any, ranks: Any, flags: Any, out: Any) -> None:
                scatter(group, value, ranks, flags, out)
        else:

            def function(group: Any, value: Any, ranks: Any, out: Any) -> None:
                scatter(group, value, ranks, None, out)

    choices = {"dtype": dtype, "items": count, "mode": mode}
    return Plan(function, parameters, types.none, [ThreadDataType(dtype, count)], choices=choices)


def _make_scatter(dtype: types.Type, count: int, read: Any, *, guarded: bool) -> Any:
    def scatter(group: Any, value: Any, ranks: Any, flags: Any, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, dtype, count)
        if debugging():
            for k in range(count):
                slots[rank * count + k] = poison(dtype)
            # Two rounds, since there are two buffers, which take turns.
            arrive_and_wait(group)
            open_slots(group, dtype, count)
            arrive_and_wait(group)
            slots = open_slots(group, dtype, count)
        for k in range(count):
            if flags is not None and not flags[k]:
                continue
            if guarded and ranks[k] < 0:
                continue
            if ranks[k] < 0 or ranks[k] >= size * count:
                raise IndexError("coop.exchange: an index in ranks is outside the group's items")
            slots[ranks[k]] = value[k]
        arrive_and_wait(group)
        for k in range(count):
            out[k] = slots[read(group, rank, size, k)]

    return register_jitable(scatter)
