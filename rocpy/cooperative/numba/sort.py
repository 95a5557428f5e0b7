# SPDX-License-Identifier: MIT
"""Sorts, ranks and top-k on the CPU: one thread numbers the keys in order, each takes its own."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic, register_jitable

from rocpy.cooperative.numba import operators
from rocpy.cooperative.numba.half import BFloat16
from rocpy.cooperative.numba.llvm_types import I8, I16, I32, I64
from rocpy.cooperative.numba.movement import arrangements
from rocpy.cooperative.numba.plans import Call, Plan, builds, item_getter, plain, with_constants
from rocpy.cooperative.numba.runtime import (
    arrive,
    await_leader,
    debugging,
    group_rank,
    group_size,
    open_slots,
    poison,
    release,
    view_at,
)
from rocpy.cooperative.numba.types import ThreadDataType, refuse

FEW = 32  # up to so many are kept in order while all are looked at


def make_sort(before: Any) -> Any:
    """Return a function that orders the numbers 0 to n - 1 by what they stand for; equal ones keep their order."""

    def sort(keys: Any, order: Any, spare: Any, n: int, low: Any, mask: Any) -> None:
        for i in range(n):
            order[i] = i
        source, target = order, spare
        width = 1
        while width < n:
            for begin in range(0, n, 2 * width):
                middle, end = min(begin + width, n), min(begin + 2 * width, n)
                a, b = begin, middle
                for i in range(begin, end):
                    if a < middle and (b >= end or not before(keys[source[b]], keys[source[a]], low, mask)):
                        target[i] = source[a]
                        a += 1
                    else:
                        target[i] = source[b]
                        b += 1
            source, target = target, source
            width *= 2
        for i in range(n):  # the last round may have ended in either of the two
            order[i] = source[i]

    return register_jitable(sort)


def make_select(before: Any) -> Any:
    """Return a function that orders the first k of the numbers 0 to n - 1 by what they stand for."""
    sort = make_sort(before)

    def select(keys: Any, order: Any, spare: Any, n: int, k: int) -> None:
        if k > FEW:
            sort(keys, order, spare, n, 0, 0)
            return
        held = 0
        for i in range(n if k > 0 else 0):
            if held == k and not before(keys[i], keys[order[k - 1]], 0, 0):
                continue
            at = min(held, k - 1)
            while at > 0 and before(keys[i], keys[order[at - 1]], 0, 0):
                order[at] = order[at - 1]
                at -= 1
            order[at] = i
            held = min(held + 1, k)

    return register_jitable(select)


class SlotLayout:
    """Arrays of several types that lie one after the other in the slots of a group, `count` elements a thread."""

    def __init__(self, count: int, **fields: types.Type) -> None:
        self.bytes = 0
        self._views: dict[str, Any] = {}
        # By falling alignment, so that each array is aligned; structured values may have any size.
        for name, element in sorted(fields.items(), key=lambda field: -_alignment(field[1])):
            self._views[name] = _view(element, self.bytes, count)
            self.bytes += _size(element) * count

    def __getitem__(self, name: str) -> Any:
        """Return the function of slots and group size that gives an array."""
        return self._views[name]


def _view(element: types.Type, start: int, count: int) -> Any:
    @intrinsic
    def view(_typing: Any, slots: Any, size: Any) -> Any:
        result = types.Array(element, 1, "C")

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            slots, size = arguments
            return view_at(
                context, builder, signature, slots, builder.mul(size, I64(start)), builder.mul(size, I64(count))
            )

        return result(slots, types.int64), codegen

    return view


def _size(element: types.Type) -> int:
    if isinstance(element, types.Record):
        return int(element.size)
    return 1 if isinstance(element, types.Boolean) else int(element.bitwidth) // 8


def _alignment(element: types.Type) -> int:
    if isinstance(element, types.Record):
        return 0
    return min(_size(element), 8)


# Orders: functions of two keys, and of the lowest bit and the mask that a radix sort looks at.


def ascending(dtype: types.Type) -> Any:
    """Return a function that tells whether a is less than b; NaN is the greatest."""
    if isinstance(dtype, (types.Float, BFloat16)):
        return register_jitable(lambda a, b, _low, _mask: a < b or (b != b and a == a))
    return register_jitable(lambda a, b, _low, _mask: a < b)


def descending(dtype: types.Type) -> Any:
    """Return the same for greater."""
    if isinstance(dtype, (types.Float, BFloat16)):
        return register_jitable(lambda a, b, _low, _mask: a > b or (a != a and b == b))
    return register_jitable(lambda a, b, _low, _mask: a > b)


@intrinsic
def bits_of(_typing: Any, key: Any) -> Any:
    """Return a key as an unsigned integer of the same order."""
    words: dict[int, Any] = {
        8: (I8, types.uint8),
        16: (I16, types.uint16),
        32: (I32, types.uint32),
        64: (I64, types.uint64),
    }
    if isinstance(key, types.Boolean):
        return types.uint8(key), lambda _context, builder, _signature, arguments: builder.zext(arguments[0], I8)
    word, result = words[key.bitwidth]
    top = 1 << (key.bitwidth - 1)

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        value = arguments[0]
        if isinstance(key, (types.Float, BFloat16)):
            value = builder.bitcast(value, word)
            is_zero = builder.icmp_unsigned("==", builder.shl(value, word(1)), word(0))  # of either sign
            value = builder.select(is_zero, word(0), value)
            negative = builder.icmp_signed("<", value, word(0))
            return builder.select(negative, builder.not_(value), builder.xor(value, word(top)))
        return builder.xor(value, word(top)) if key.signed else value

    return result(key), codegen


def _order_of(call: Call, dtype: types.Type) -> tuple[Any, Any]:
    """Return the order that a merge sort's operator stands for, and the choice that it is."""
    named = call.word("op")
    accepted = "'<', '>' or a Python function of two keys"
    if named is None:
        chosen = operators.predicate(call, dtype, accepted)
        before = chosen.combine
        return register_jitable(lambda a, b, _low, _mask: before(a, b)), chosen
    if named not in ("<", ">"):
        raise refuse(f"{call.name}: op is {named!r}; pass {accepted}")
    _must_have_order(call, dtype)
    before = ascending(dtype) if named == "<" else descending(dtype)
    return before, operators.Operator(before, None, exact=True, name=named)


def _must_have_order(call: Call, dtype: types.Type) -> None:
    if isinstance(dtype, (types.Complex, types.Record)):
        raise refuse(f"{call.name}: keys are {dtype}, which are not ordered")


# Plans.


def _plan(call: Call, options: dict[str, int], ordering: Any, defined: Any, choices: dict[str, Any]) -> Plan:
    """Make the plan of a call that returns keys, and values where it has them.

    Parameters
    ----------
    call
        Of a sort or a top-k.
    options
        Names of the call's two options, with what stands for them where they are not given.
    ordering
        Function of the keys, two arrays of numbers, how many items there are, and the two options; it orders the
        numbers in the first array.
    defined
        Function of how many items there are and of the options: how many of the results are defined.
    choices
        As in `Plan`.
    """
    dtype, count = call.payload("keys")
    paired = "values" in call.types
    each, get = max(count, 1), item_getter(count)
    read = arrangements(each)["striped" if choices.get("blocked_to_striped") else "blocked"]
    fields = {"keys": dtype, "order": types.int32, "spare": types.int32}
    parameters: dict[str, types.Type] = {"group": call.group, "keys": plain(call.types["keys"])}
    if paired:
        fields["values"] = call.companion("values", count)
        parameters["values"] = plain(call.types["values"])
        choices = choices | {"value_dtype": fields["values"]}
    layout = SlotLayout(each, **fields)
    bytes_each, keys_in, order_in, spare_in = layout.bytes, layout["keys"], layout["order"], layout["spare"]

    @register_jitable
    def put(group: Any, held: Any, items: Any) -> None:
        rank = group_rank(group)
        for k in range(each):
            held[rank * each + k] = get(items, k)

    @register_jitable
    def sort_in_slots(group: Any, slots: Any, first: int, second: int) -> None:
        size = group_size(group)
        if arrive(group):
            ordering(keys_in(slots, size), order_in(slots, size), spare_in(slots, size), size * each, first, second)
            release(group)
        await_leader(group)

    take = _taker(group_items=each, read=read, order_in=order_in, defined=defined)
    take_keys = take(keys_in, dtype)
    if paired:
        values_in = layout["values"]
        take_values = take(values_in, fields["values"])

        def pairs(group: Any, keys: Any, values: Any, first: int, second: int, out: Any, also: Any) -> None:
            slots = open_slots(group, types.uint8, bytes_each)
            put(group, keys_in(slots, group_size(group)), keys)
            put(group, values_in(slots, group_size(group)), values)
            sort_in_slots(group, slots, first, second)
            take_keys(group, slots, first, second, out)
            take_values(group, slots, first, second, also)

        function: Any = pairs
    else:

        def only(group: Any, keys: Any, first: int, second: int, out: Any) -> None:
            slots = open_slots(group, types.uint8, bytes_each)
            put(group, keys_in(slots, group_size(group)), keys)
            sort_in_slots(group, slots, first, second)
            take_keys(group, slots, first, second, out)

        function = only
    outputs = [ThreadDataType(fields[name], each) for name in ("keys", "values") if name in fields]
    integer_options = call.integers(*options)
    names = (*parameters, *options, *("out", "also")[: len(outputs)])
    kernel = with_constants(
        function, names, {name: value for name, value in options.items() if name not in integer_options}
    )
    return Plan(
        kernel,
        parameters | integer_options,
        types.none,
        outputs,
        count == 0,
        {"dtype": dtype, "items": count} | choices,
    )


def _taker(*, group_items: int, read: Any, order_in: Any, defined: Any) -> Any:
    def of(held_in: Any, dtype: types.Type) -> Any:
        @register_jitable
        def take(group: Any, slots: Any, first: int, second: int, out: Any) -> None:
            rank, size = group_rank(group), group_size(group)
            held, order = held_in(slots, size), order_in(slots, size)
            limit = defined(size * group_items, first, second)
            for k in range(group_items):
                at = read(group, rank, size, k)
                if at < limit:
                    out[k] = held[order[at]]
                elif debugging():
                    out[k] = poison(dtype)
                else:
                    out[k] = held[at]

        return take

    return of


@register_jitable
def _every(n: int, _first: int, _second: int) -> int:
    return n


@builds("merge_sort_keys", "merge_sort_pairs")
def _build_merge(call: Call) -> Plan:
    before, chosen = _order_of(call, call.payload("keys")[0])
    sort = make_sort(before)

    @register_jitable
    def ordering(keys: Any, order: Any, spare: Any, n: int, valid: int, _unused: int) -> None:
        limit = min(max(valid, 0), n)
        sort(keys, order, spare, limit, 0, 0)
        for i in range(limit, n):
            order[i] = i

    return _plan(call, {"valid_items": 2**62, "unused": 0}, ordering, _every, {"op": chosen})


def _radix(call: Call) -> tuple[Any, bool, dict[str, int]]:
    dtype, _ = call.payload("keys")
    if isinstance(dtype, (types.Complex, types.Record)):
        raise refuse(f"{call.name}: keys are {dtype}; integers, booleans and floats are sorted by their bits")
    bits = 1 if isinstance(dtype, types.Boolean) else dtype.bitwidth
    falling = bool(call.literal("descending", bool))
    if falling:
        before = register_jitable(lambda a, b, low, mask: (bits_of(a) >> low) & mask > (bits_of(b) >> low) & mask)
    else:
        before = register_jitable(lambda a, b, low, mask: (bits_of(a) >> low) & mask < (bits_of(b) >> low) & mask)
    sort = make_sort(before)
    complaint = f"coop.{call.name}: bits are from begin_bit up to end_bit, at most {bits}"

    @register_jitable
    def ordering(keys: Any, order: Any, spare: Any, n: int, begin: int, end: int) -> None:
        if begin < 0 or end < begin or end > bits:
            raise IndexError(complaint)
        mask = (types.uint64(1) << types.uint64(end - begin)) - types.uint64(1)
        if end - begin == 64:
            mask = ~types.uint64(0)
        if begin == end:
            begin = 0
        sort(keys, order, spare, n, types.uint64(begin), mask)

    return ordering, falling, {"begin_bit": 0, "end_bit": bits}


@builds("radix_sort_keys", "radix_sort_pairs")
def _build_radix(call: Call) -> Plan:
    ordering, falling, options = _radix(call)
    striped = bool(call.literal("blocked_to_striped", bool))
    return _plan(call, options, ordering, _every, {"descending": falling, "blocked_to_striped": striped})


@builds("radix_rank")
def _build_rank(call: Call) -> Plan:
    ordering, falling, options = _radix(call)
    dtype, count = call.payload("keys")
    each, get = max(count, 1), item_getter(count)
    layout = SlotLayout(each, keys=dtype, order=types.int32, spare=types.int32)
    bytes_each, keys_in, order_in, spare_in = layout.bytes, layout["keys"], layout["order"], layout["spare"]

    def ranks(group: Any, keys: Any, begin: int, end: int, out: Any) -> None:
        rank, size = group_rank(group), group_size(group)
        slots = open_slots(group, types.uint8, bytes_each)
        held, order, positions = keys_in(slots, size), order_in(slots, size), spare_in(slots, size)
        for k in range(each):
            held[rank * each + k] = get(keys, k)
        if arrive(group):
            ordering(held, order, positions, size * each, begin, end)
            for i in range(size * each):
                positions[order[i]] = i
            release(group)
        await_leader(group)
        for k in range(each):
            out[k] = positions[rank * each + k]

    integer_options = call.integers(*options)
    parameters = {"group": call.group, "keys": plain(call.types["keys"])}
    kernel = with_constants(
        ranks,
        (*parameters, *options, "out"),
        {name: value for name, value in options.items() if name not in integer_options},
    )
    choices = {"dtype": dtype, "items": count, "descending": falling}
    return Plan(
        kernel, parameters | integer_options, types.none, [ThreadDataType(types.int32, each)], count == 0, choices
    )


@builds("topk_max_keys", "topk_max_pairs", "topk_min_keys", "topk_min_pairs")
def _build_topk(call: Call) -> Plan:
    dtype, _ = call.payload("keys")
    _must_have_order(call, dtype)
    greatest = "max" in call.name
    select = make_select(descending(dtype) if greatest else ascending(dtype))
    complaint = f"coop.{call.name}: k is negative"

    @register_jitable
    def defined(n: int, k: int, valid: int) -> int:
        return max(min(k, valid, n), 0)

    @register_jitable
    def ordering(keys: Any, order: Any, spare: Any, n: int, k: int, valid: int) -> None:
        if k < 0:
            raise IndexError(complaint)
        select(keys, order, spare, max(min(valid, n), 0), defined(n, k, valid))

    return _plan(call, {"k": 0, "valid_items": 2**62}, ordering, defined, {"greatest": greatest})
