# SPDX-License-Identifier: MIT
"""Sorts, ranks and top-k on AMD GPUs: the device library's, on items in the frame of the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature as make_signature
from numba.extending import intrinsic
from numba.np import arrayobj

from rocpy.cooperative.amdgpu import library_calls as library
from rocpy.cooperative.numba import runtime
from rocpy.cooperative.numba.operators import Operator
from rocpy.cooperative.numba.plans import DEVICE, Plan, item_getter, with_constants
from rocpy.cooperative.numba.types import stack_array

_DIGITS = 16  # of a radix sort: counters of each thread, of 2 bytes where they count up to so many items
_FEW_ITEMS = 64


@dataclass(frozen=True, eq=False)
class _Sort:
    """What is known of a call when the kernel is compiled."""

    function: str  # of rocpy_coop_python.h
    flags: tuple[str, ...]  # its template arguments before the number of items
    items: int
    key: types.Type
    value: types.Type | None = None
    order: Operator | str | None = None  # a functor of the device library's, or a function of Python's
    has_counters: bool = False
    is_numbered: bool = False  # keys have their numbers with them


def _size_and_alignment(context: Any, dtype: types.Type) -> tuple[int, int]:
    data = context.get_data_type(dtype)
    return context.get_abi_sizeof(data), min(16, context.get_abi_alignment(data))


def _thread_bytes(context: Any, sort: _Sort) -> int:
    """Return the shared memory that a sort needs for each thread, aligned for what lies in it."""
    key, alignment = _size_and_alignment(context, sort.key)
    if sort.is_numbered:
        alignment = max(alignment, 4)
        key = _rounded(_rounded(key, 4) + 4, alignment)
    needed = key * sort.items
    if sort.has_counters:
        alignment = max(alignment, 4)
        needed = max(needed, _DIGITS * (2 if sort.items <= _FEW_ITEMS else 4))
    if sort.value is not None:
        value, other = _size_and_alignment(context, sort.value)
        needed, alignment = max(needed, value * sort.items), max(alignment, other)
    return _rounded(needed, alignment)


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _order(context: Any, builder: Any, sort: _Sort, key: str) -> tuple[str, str, str]:
    """Return the word, the C++ argument and the declaration of the order."""
    if sort.order is None:
        return "", "", ""
    if isinstance(sort.order, str):
        return f"_{sort.order}", f", rocpy::{sort.order}{{}}", ""
    signature = make_signature(types.boolean, sort.key, sort.key)
    name = library.linked_function(context, builder, sort.order, signature)
    arguments = f"unsigned char *, const {key} *, const {key} *"
    declared = f'extern "C" __attribute__((device)) void {name}({arguments});\n'
    return f"_{name}", f", rocpy::python::Before<{key}, {name}>{{}}", declared


def _cpp_key(context: Any, dtype: types.Type) -> str:
    return "unsigned char" if isinstance(dtype, types.Boolean) else library.cpp_type(context, dtype)


def _sorter(sort: _Sort, *, paired: bool) -> Any:
    """Return a function of group, items, a second array if `paired`, and two numbers, that sorts the items in place."""

    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        width, *arrays, first, second = arguments
        group, *array_types = signature.args[: len(arrays) + 1]
        key = _cpp_key(context, sort.key)
        word, order, declared = _order(context, builder, sort, key)
        pointed = [key]
        if paired:
            pointed.append("int" if sort.value is None else library.cpp_type(context, sort.value))
        name = (
            "_".join(["rocpy_coop", sort.function, *sort.flags, str(sort.items), *map(library.word_of, pointed)]) + word
        )
        names = ("keys", "values")[: len(pointed)]
        parameters = "".join(f"{kind} *{each}, " for kind, each in zip(pointed, names, strict=True))
        template = ", ".join([*sort.flags, str(sort.items)])
        text = f"{declared}COOP_PYTHON void {name}({parameters}unsigned char *memory, int width, long long first, "
        text += f"long long second) {{ rocpy::python::{sort.function}<{template}>({{static_cast<unsigned>(width), "
        text += f"memory}}, {', '.join(names)}{order}, first, second); }}"
        memory = runtime.device_slots(builder, group, width, _thread_bytes(context, sort))
        pointers = [
            arrayobj.make_array(type_)(context, builder, array).data
            for type_, array in zip(array_types, arrays, strict=True)
        ]
        library.call(builder, name, text, *pointers, memory, width, first, second)
        return context.get_dummy_value()

    if paired:

        @intrinsic
        def sort_pairs(_typing: Any, group: Any, keys: Any, values: Any, first: Any, second: Any) -> Any:
            return types.none(group, keys, values, types.int64, types.int64), write

        return sort_pairs

    @intrinsic
    def sort_keys(_typing: Any, group: Any, keys: Any, first: Any, second: Any) -> Any:
        return types.none(group, keys, types.int64, types.int64), write

    return sort_keys


def _function(plan: Plan, sort: _Sort, options: dict[str, int]) -> Any:
    """Return the function of a plan: it puts the items where the results go, and sorts them there."""
    get, each = item_getter(plan.choices["items"]), sort.items
    passed = [name for name in plan.parameters if name in options]
    constants = {name: value for name, value in options.items() if name not in passed}
    if sort.value is None:
        sort_keys = _sorter(sort, paired=False)

        def only(group: Any, keys: Any, first: int, second: int, out: Any) -> None:
            for k in range(each):
                out[k] = get(keys, k)
            sort_keys(group, out, first, second)

        return with_constants(only, ("group", "keys", *options, "out"), constants)
    sort_pairs = _sorter(sort, paired=True)

    def pairs(group: Any, keys: Any, values: Any, first: int, second: int, out: Any, also: Any) -> None:
        for k in range(each):
            out[k] = get(keys, k)
            also[k] = get(values, k)
        sort_pairs(group, out, also, first, second)

    return with_constants(pairs, ("group", "keys", "values", *options, "out", "also"), constants)


def _bits(dtype: types.Type) -> int:
    return 1 if isinstance(dtype, types.Boolean) else int(dtype.bitwidth)


def _merge(plan: Plan) -> Any:
    choices = plan.choices
    chosen = choices["op"]
    value = choices.get("value_dtype")
    order = {"<": "Less", ">": "Greater"}.get(chosen.name, chosen)
    what = "merge_sort_pairs" if value is not None else "merge_sort_keys"
    items = max(choices["items"], 1)
    sort = _Sort(what, (), items, choices["dtype"], value, order, is_numbered=value is not None)
    return _function(plan, sort, {"valid_items": 2**62, "unused": 0})


def _topk(plan: Plan) -> Any:
    choices = plan.choices
    value = choices.get("value_dtype")
    what = "topk_pairs" if value is not None else "topk_keys"
    order = "Greater" if choices["greatest"] else "Less"
    items = max(choices["items"], 1)
    sort = _Sort(what, (), items, choices["dtype"], value, order, is_numbered=value is not None)
    return _function(plan, sort, {"k": 0, "valid_items": 2**62})


def _flags(plan: Plan, *names: str) -> tuple[str, ...]:
    flags = tuple("true" if plan.choices[name] else "false" for name in names)
    return (*flags, str(_bits(plan.choices["dtype"])))


def _radix(plan: Plan) -> Any:
    choices = plan.choices
    value = choices.get("value_dtype")
    what = "radix_sort_pairs" if value is not None else "radix_sort_keys"
    flags = _flags(plan, "descending", "blocked_to_striped")
    items = max(choices["items"], 1)
    sort = _Sort(what, flags, items, choices["dtype"], value, has_counters=True, is_numbered=value is not None)
    return _function(plan, sort, {"begin_bit": 0, "end_bit": _bits(choices["dtype"])})


def _rank(plan: Plan) -> Any:
    dtype, count = plan.choices["dtype"], plan.choices["items"]
    get, each = item_getter(count), max(count, 1)
    options = {"begin_bit": 0, "end_bit": _bits(dtype)}
    constants = {name: value for name, value in options.items() if name not in plan.parameters}
    sort = _Sort("radix_rank", _flags(plan, "descending"), each, dtype, has_counters=True, is_numbered=True)
    rank_keys, held_in = _sorter(sort, paired=True), _frame_array(dtype, each)

    def ranks(group: Any, keys: Any, first: int, second: int, out: Any) -> None:
        held = held_in()
        for k in range(each):
            held[k] = get(keys, k)
        rank_keys(group, held, out, first, second)

    return with_constants(ranks, ("group", "keys", *options, "out"), constants)


def _frame_array(dtype: types.Type, count: int) -> Any:
    """Return a function that gives an array in the frame of the function that calls it."""
    result = types.Array(dtype, 1, "C")

    @intrinsic
    def array(_typing: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, _signature: Any, _arguments: Any) -> Any:
            return stack_array(context, builder, result, (count,))

        return result(), codegen

    return array


for _ending in ("keys", "pairs"):
    DEVICE[f"merge_sort_{_ending}"] = _merge
    DEVICE[f"radix_sort_{_ending}"] = _radix
    for _side in ("max", "min"):
        DEVICE[f"topk_{_side}_{_ending}"] = _topk
DEVICE["radix_rank"] = _rank
