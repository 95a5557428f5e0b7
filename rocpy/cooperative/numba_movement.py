# SPDX-License-Identifier: MIT
"""Moving values between threads: each writes its slot, all wait, each reads what it needs."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic, register_jitable

from rocpy.cooperative import numba_runtime as runtime
from rocpy.cooperative.numba_primitives import Call, Plan, builds
from rocpy.cooperative.numba_runtime import I64, WARP, arrive, debugging, group_rank, group_size, open_slots, release
from rocpy.cooperative.numba_types import ThreadDataType, refuse

_ALGORITHMS = ("direct", "striped", "vectorize", "transpose", "warp_transpose")
_COLLECTIVE = ("transpose", "warp_transpose")


@register_jitable
def meet(group: Any) -> None:
    """Wait until every slot is written."""
    if arrive(group):
        release(group)


_SOURCES = {
    "up": lambda rank, distance, size: rank - distance,
    "down": lambda rank, distance, size: rank + distance,
    "offset": lambda rank, distance, size: rank + distance,
    "rotate": lambda rank, distance, size: (rank + distance) % size,
    "xor": lambda rank, distance, size: rank ^ distance,
    "index": lambda rank, distance, size: distance,
}


def _named(call: Call, name: str, known: Any) -> str:
    given = call.literal(name, str)
    if given not in known:
        raise refuse(f"{call.name}: {name} is {given!r}; it must be one of: {', '.join(known)}")
    return given


@builds("shuffle")
def _build_shuffle(call: Call) -> Plan:
    dtype, _ = call.payload()
    source_of = register_jitable(_SOURCES[_named(call, "mode", _SOURCES)])
    call.integer("distance")

    def function(group: Any, value: Any, distance: Any) -> Any:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, dtype, 1)
        slots[rank] = value
        meet(group)
        source = source_of(rank, distance, size)
        return slots[source] if 0 <= source < size else slots[rank]

    return Plan(function, {"group": call.group, "value": dtype, "distance": types.int64}, dtype)


@builds("broadcast")
def _build_broadcast(call: Call) -> Plan:
    dtype, count = call.payload()
    has_source = call.given("source")
    parameters: dict[str, types.Type] = {"group": call.group, "value": types.unliteral(call.types["value"])}
    if has_source:
        call.integer("source")
        parameters["source"] = types.int64

    @register_jitable
    def check(group: Any, source: int) -> None:
        if source < 0 or source >= group_size(group):
            raise IndexError("coop.broadcast: source is no rank of the group")

    def scalar(group: Any, value: Any, source: int) -> Any:
        check(group, source)
        slots = open_slots(group, dtype, 1)
        slots[group_rank(group)] = value
        meet(group)
        return slots[source]

    def items(group: Any, value: Any, source: int, out: Any) -> None:
        check(group, source)
        slots = open_slots(group, dtype, count)
        rank = group_rank(group)
        for k in range(count):
            slots[rank * count + k] = value[k]
        meet(group)
        for k in range(count):
            out[k] = slots[source * count + k]

    if count:
        whole = register_jitable(items)
        with_source, without = (lambda g, v, s, o: whole(g, v, s, o)), (lambda g, v, o: whole(g, v, 0, o))
        return Plan(with_source if has_source else without, parameters, types.none, [ThreadDataType(dtype, count)])
    one = register_jitable(scalar)
    return Plan((lambda g, v, s: one(g, v, s)) if has_source else (lambda g, v: one(g, v, 0)), parameters, dtype)


@builds("any", "all")
def _build_vote(call: Call) -> Plan:
    call.payload()
    every = call.name == "all"

    def function(group: Any, value: Any) -> bool:
        slots = open_slots(group, types.uint8, 1)
        slots[group_rank(group)] = value
        if arrive(group):
            found = 0
            for i in range(group_size(group)):
                found += slots[i]
            slots[0] = found == group_size(group) if every else found > 0
            release(group)
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

    def function(group: Any, value: Any) -> Any:
        slots = open_slots(group, dtype, 1)
        slots[group_rank(group)] = value
        meet(group)
        mask = types.uint64(0)
        for i in range(group_size(group)):
            if slots[i] == value:
                mask |= types.uint64(1) << types.uint64(i)
        return mask

    return Plan(function, {"group": call.group, "value": dtype}, types.uint64)


# Memory.


def _place_of(striped: bool, count: int) -> Any:
    if striped:
        return register_jitable(lambda rank, size, k: k * size + rank)
    return register_jitable(lambda rank, size, k: rank * count + k)


def _tile(call: Call, array_name: str) -> tuple[types.Array, str]:
    array = types.unliteral(call.types[array_name])
    if not isinstance(array, types.Array) or array.ndim != 1:
        raise refuse(f"{call.name}: {array_name} is {array}; it must be an array of one dimension")
    for option in ("valid_items", "offset"):
        if call.given(option):
            call.integer(option)
    return array, _named(call, "algorithm", _ALGORITHMS)


def _limits(call: Call) -> dict[str, types.Type]:
    return {name: types.int64 for name in ("valid_items", "offset") if call.given(name)}


@register_jitable
def _arrives(group: Any) -> None:
    """Let debug mode notice that not all threads come where a GPU would need them."""
    if debugging():
        open_slots(group, types.uint8, 1)
        meet(group)


@register_jitable
def _nothing(group: Any) -> None:
    pass


def _flexible(function: Any, limited: bool, shifted: bool) -> Any:
    """Give a function of (group, array, items, valid, offset) the parameters that a call has."""
    if limited and shifted:
        return lambda group, array, items, valid, offset: function(group, array, items, valid, offset)
    if limited:
        return lambda group, array, items, valid: function(group, array, items, valid, 0)
    if shifted:
        return lambda group, array, items, offset: function(group, array, items, 2**62, offset)
    return lambda group, array, items: function(group, array, items, 2**62, 0)


@builds("load")
def _build_load(call: Call) -> Plan:
    dtype, count = call.payload("out")
    array, algorithm = _tile(call, "source")
    if not isinstance(array.dtype, (types.Number, types.Boolean)):
        raise refuse(f"load: source is {array}; numbers are loaded")
    if call.given("oob_default") and not call.given("valid_items"):
        raise refuse("load: oob_default is for items beyond valid_items, which is not given")
    place, rendezvous = _place_of(algorithm == "striped", count), _arrives if algorithm in _COLLECTIVE else _nothing
    fills = call.given("oob_default")

    @register_jitable
    def load(group: Any, source: Any, out: Any, valid: int, offset: int, default: Any) -> None:
        rendezvous(group)
        rank, size = group_rank(group), group_size(group)
        for k in range(count):
            at = place(rank, size, k)
            if at < valid:
                if offset + at < 0 or offset + at >= source.shape[0]:
                    raise IndexError("coop.load: the tile goes beyond source; give valid_items")
                out[k] = source[offset + at]
            elif fills:
                out[k] = default

    parameters = {"group": call.group, "source": array, "out": types.unliteral(call.types["out"])}
    parameters |= _limits(call)
    if not fills:
        plain = register_jitable(lambda group, source, out, valid, offset: load(group, source, out, valid, offset, 0))
        return Plan(_flexible(plain, call.given("valid_items"), call.given("offset")), parameters)
    parameters["oob_default"] = dtype
    if call.given("offset"):
        return Plan(lambda g, s, o, valid, offset, default: load(g, s, o, valid, offset, default), parameters)
    return Plan(lambda g, s, o, valid, default: load(g, s, o, valid, 0, default), parameters)


@builds("store")
def _build_store(call: Call) -> Plan:
    _, count = call.payload("value")
    array, algorithm = _tile(call, "target")
    if not array.mutable:
        raise refuse("store: target is read-only")
    each = max(count, 1)
    place, rendezvous = _place_of(algorithm == "striped", each), _arrives if algorithm in _COLLECTIVE else _nothing
    item = register_jitable((lambda value, k: value[k]) if count else (lambda value, k: value))

    @register_jitable
    def store(group: Any, target: Any, value: Any, valid: int, offset: int) -> None:
        rendezvous(group)
        rank, size = group_rank(group), group_size(group)
        for k in range(each):
            at = place(rank, size, k)
            if at < valid:
                if offset + at < 0 or offset + at >= target.shape[0]:
                    raise IndexError("coop.store: the tile goes beyond target; give valid_items")
                target[offset + at] = item(value, k)

    parameters = {"group": call.group, "target": array, "value": types.unliteral(call.types["value"])}
    return Plan(_flexible(store, call.given("valid_items"), call.given("offset")), parameters | _limits(call))


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


def _arrangements(count: int) -> dict[str, Any]:
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
}


@builds("exchange")
def _build_exchange(call: Call) -> Plan:
    dtype, count = call.payload()
    before, after = _MODES[_named(call, "mode", _MODES)]
    parameters: dict[str, types.Type] = {"group": call.group, "value": types.unliteral(call.types["value"])}
    scatters = not before
    if scatters != call.given("ranks"):
        raise refuse(f"exchange: ranks is for the scatters, which need it; mode is {call.literal('mode', str)!r}")
    arrangements = _arrangements(count)
    read = arrangements[after]
    if scatters:
        ranks = types.unliteral(call.types["ranks"])
        if not isinstance(ranks, ThreadDataType) or not isinstance(ranks.dtype, types.Integer) or ranks.count != count:
            raise refuse(f"exchange: ranks is {ranks}; it must be a ThreadData of {count} integers")
        parameters["ranks"] = ranks

        def scatter(group: Any, value: Any, ranks: Any, out: Any) -> None:
            rank, size = group_rank(group), group_size(group)
            slots = open_slots(group, dtype, count)
            for k in range(count):
                if ranks[k] < 0 or ranks[k] >= size * count:
                    raise IndexError("coop.exchange: a rank is beyond the items of the group")
                slots[ranks[k]] = value[k]
            meet(group)
            for k in range(count):
                out[k] = slots[read(group, rank, size, k)]

        return Plan(scatter, parameters, types.none, [ThreadDataType(dtype, count)])
    write = arrangements[before]

    def rearrange(group: Any, value: Any, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, dtype, count)
        for k in range(count):
            slots[write(group, rank, size, k)] = value[k]
        meet(group)
        for k in range(count):
            out[k] = slots[read(group, rank, size, k)]

    return Plan(rearrange, parameters, types.none, [ThreadDataType(dtype, count)])
