# SPDX-License-Identifier: MIT
"""Makes loops over the threads of a block out of a kernel that is cut at its waits; LLVM makes vectors of them.

One part after the other runs for all threads of a block, in a loop whose turns do not depend on each other: between two
waits, threads read nothing that another writes. After a collective the last thread runs before the others; it sees what
all have brought, as the thread that comes last does where they run one by one.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from rocpy.cooperative.cpu.assembly import Line, without_metadata
from rocpy.cooperative.cpu.work_items import (
    ARGUMENTS,
    LANE,
    LANE_ALIGNMENT,
    LEADS,
    RANK,
    STATE,
    Kernel,
    Part,
    UnsuitedError,
)
from rocpy.cooperative.numba.memory.frames import sizes
from rocpy.cooperative.numba.runtime import DYNAMIC_SHARED_OFFSET, RANGES, SITE_OFFSET, STATE_BYTES, WORDS

_LINE_BYTES = 64
_DECLARATIONS = """
declare ptr @rocpy_simt_block_memory(ptr, i64) nounwind
declare ptr @rocpy_simt_block_slots(ptr, i32, i64) nounwind willreturn memory(none)
declare void @rocpy_simt_block_reserve(ptr, ptr, ptr, i64) nounwind
declare ptr @rocpy_simt_block_shared(ptr, ptr, i64) nounwind willreturn memory(none)
declare ptr @rocpy_simt_shared_in(ptr, i32, ptr, ptr, i64) nounwind
declare void @rocpy_simt_raise_in(ptr, i32, ptr, i32, ptr) noreturn nounwind
"""
_BLOCK = f"ptr {ARGUMENTS}, ptr {STATE}, ptr %rocpy.memory, i64 %rocpy.padded"
_THREAD = f"ptr {LANE}, i64 %rocpy.thread, i32 {RANK}"
_EXTENT = [f"%rocpy.word{WORDS['blockDim'] + axis}" for axis in range(3)]


def work_item_loops(module: Any, name: str) -> str | None:
    """Return a module whose function of that name runs a whole block; None if the kernel is not made for that.

    It is if no other function asks which thread it runs for, and all threads pass the same waits for the block, each
    once, in one order.
    """
    for each in module.functions:
        if not each.is_declaration and each.name != name and "@rocpy_simt_" in str(each):
            return None
    try:
        functions = _Functions(module, name)
    except UnsuitedError:
        return None
    text = str(module)
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("define ") and f"@{name}(" in line)
    last = lines.index("}", first)
    group = 1 + max((int(each) for each in re.findall(r"^!(\d+) = ", text, re.MULTILINE)), default=-1)
    metadata = [
        f"!{group} = distinct !{{}}",
        f'!{group + 1} = !{{!"llvm.loop.parallel_accesses", !{group}}}',
        f"!{group + 2} = distinct !{{!{group + 2}, !{group + 1}}}",
    ]
    own = [*_DECLARATIONS.strip().split("\n"), *functions.all(f", !llvm.access.group !{group}", f"!{group + 2}")]
    return "\n".join([*lines[:first], *own, *lines[last + 1 :], *metadata, ""])


class _Functions:
    def __init__(self, module: Any, name: str) -> None:
        self._kernel = kernel = Kernel(module, name)
        self._name = name
        self._needs = [kernel.needs(part) for part in kernel.parts]
        known = sizes(module, {*kernel.memory.values(), *kernel.saved.values()})
        self._strides = {
            each: -(-known[kind] // LANE_ALIGNMENT) * LANE_ALIGNMENT for each, kind in kernel.memory.items()
        }
        self._strides |= {each: known[kind] for each, kind in kernel.saved.items()}
        self._offsets = dict(zip(self._strides, accumulate(self._strides.values(), initial=0), strict=False))

    def all(self, group: str, loop: str) -> list[str]:
        """Return the functions of all parts and that of the kernel; `group` marks accesses, `loop` loops."""
        lines = []
        for i, part in enumerate(self._kernel.parts):
            lines += self._body(i, part, "" if self._kernel.shares_memory else group)
            lines += self._loop(i, loop)
            lines += self._leader(i) if part.leads else []
        return [*lines, *self._entry()]

    def _begin(self, name: str) -> list[str]:
        """Return the lines that say where in the block's memory the elements of all threads for a value begin."""
        return [
            f"  {_of(name, 'before')} = mul nuw nsw i64 %rocpy.padded, {self._offsets[name]}",
            f"  {_of(name, 'begin')} = getelementptr i8, ptr %rocpy.memory, i64 {_of(name, 'before')}",
        ]

    def _brought(self, needed: list[str | Line], group: str) -> list[str]:
        """Return the lines that bring other parts' values into a part."""
        lines = []
        for each in needed:
            if isinstance(each, Line):
                lines.append(f"  {without_metadata(each.text)}{group if each.operation == 'load' else ''}")
            elif each in self._kernel.memory:
                lines += self._begin(each)
                lines += [
                    f"  {_of(each, 'offset')} = mul nuw nsw i64 %rocpy.thread, {self._strides[each]}",
                    f"  {each} = getelementptr i8, ptr {_of(each, 'begin')}, i64 {_of(each, 'offset')}",
                ]
            else:
                lines += self._element(each)
                lines.append(f"  {each} = load {self._kernel.saved[each]}, ptr {_of(each, 'element')}{group}")
        return lines

    def _element(self, name: str) -> list[str]:
        kind, begin = self._kernel.saved[name], _of(name, "begin")
        return [
            *self._begin(name),
            f"  {_of(name, 'element')} = getelementptr {kind}, ptr {begin}, i64 %rocpy.thread",
        ]

    def _body(self, number: int, part: Part, group: str) -> list[str]:
        """Return a function that runs one thread from one wait to the next."""
        parameters = f"{_BLOCK.replace('ptr', 'ptr noalias', 1)}, {_THREAD}, i32 {LEADS}"
        lines = [
            f"define internal void @{self._name}.body{number}({parameters}) alwaysinline nounwind {{",
            "rocpy.begin:",
            *self._brought(self._needs[number], group),
            f"  br label {part.blocks[0].label}",
        ]
        for block in part.blocks:
            phis = [line for line in block.lines if line.operation == "phi"]
            others = [line for line in block.lines if line.operation != "phi"]
            lines += [f"{block.label[1:]}:", *(f"  {line.text}" for line in phis)]
            lines += [text for line in phis for text in self._save(line, group)]
            for line in others:
                plain = line.operation in ("load", "store") and not re.search(r"\b(atomic|volatile)\b", line.text)
                lines += [f"  {line.text}{group if plain else ''}", *self._save(line, group)]
            if block.waits:
                lines.append("  ret void")
        return [*lines, "}"]

    def _save(self, line: Line, group: str) -> list[str]:
        if line.result not in self._kernel.saved:
            return []
        return [
            *self._element(line.result),
            f"  store {line.type} {line.result}, ptr {_of(line.result, 'element')}{group}",
        ]

    def _loop(self, number: int, metadata: str) -> list[str]:
        """Return a function that runs all threads, or all but the last, from one wait to the next."""
        return [
            f"define internal void @{self._name}.loop{number}({_BLOCK}, i32 %rocpy.skip) noinline nounwind {{",
            "rocpy.begin:",
            *_read_state(),
            f"  %rocpy.limit = sub nsw i32 %rocpy.word{WORDS['size']}, %rocpy.skip",
            "  br label %rocpy.plane",
            "rocpy.plane:",
            "  %rocpy.z = phi i32 [ 0, %rocpy.begin ], [ %rocpy.z.next, %rocpy.plane.end ]",
            f"  %rocpy.z.rows = mul nuw nsw i32 %rocpy.z, {_EXTENT[1]}",
            "  br label %rocpy.row",
            "rocpy.row:",
            "  %rocpy.y = phi i32 [ 0, %rocpy.plane ], [ %rocpy.y.next, %rocpy.row.end ]",
            "  %rocpy.rows = add nuw nsw i32 %rocpy.z.rows, %rocpy.y",
            f"  %rocpy.first = mul nuw nsw i32 %rocpy.rows, {_EXTENT[0]}",
            "  %rocpy.left = sub nsw i32 %rocpy.limit, %rocpy.first",
            f"  %rocpy.whole = icmp sgt i32 %rocpy.left, {_EXTENT[0]}",
            f"  %rocpy.count = select i1 %rocpy.whole, i32 {_EXTENT[0]}, i32 %rocpy.left",
            "  %rocpy.any = icmp sgt i32 %rocpy.count, 0",
            "  br i1 %rocpy.any, label %rocpy.item, label %rocpy.row.end",
            "rocpy.item:",
            "  %rocpy.x = phi i32 [ 0, %rocpy.row ], [ %rocpy.x.next, %rocpy.item ]",
            f"  {RANK} = add nuw nsw i32 %rocpy.first, %rocpy.x",
            *self._one_thread(number, leads=0),
            "  %rocpy.x.next = add nuw nsw i32 %rocpy.x, 1",
            "  %rocpy.more = icmp slt i32 %rocpy.x.next, %rocpy.count",
            f"  br i1 %rocpy.more, label %rocpy.item, label %rocpy.row.end, !llvm.loop {metadata}",
            "rocpy.row.end:",
            "  %rocpy.y.next = add nuw nsw i32 %rocpy.y, 1",
            f"  %rocpy.more.rows = icmp slt i32 %rocpy.y.next, {_EXTENT[1]}",
            "  br i1 %rocpy.more.rows, label %rocpy.row, label %rocpy.plane.end",
            "rocpy.plane.end:",
            "  %rocpy.z.next = add nuw nsw i32 %rocpy.z, 1",
            f"  %rocpy.more.planes = icmp slt i32 %rocpy.z.next, {_EXTENT[2]}",
            "  br i1 %rocpy.more.planes, label %rocpy.plane, label %rocpy.end",
            "rocpy.end:",
            "  ret void",
            "}",
        ]

    def _leader(self, number: int) -> list[str]:
        """Return a function that runs the last thread of the block from one wait to the next."""
        return [
            f"define internal void @{self._name}.leader{number}({_BLOCK}) noinline nounwind {{",
            "rocpy.begin:",
            *_read_state(),
            *(f"  %rocpy.{axis} = sub nsw i32 {extent}, 1" for axis, extent in zip("xyz", _EXTENT, strict=True)),
            f"  {RANK} = sub nsw i32 %rocpy.word{WORDS['size']}, 1",
            *self._one_thread(number, leads=1),
            "  ret void",
            "}",
        ]

    def _one_thread(self, number: int, *, leads: int) -> list[str]:
        own = {WORDS["threadIdx"] + axis: f"%rocpy.{name}" for axis, name in enumerate("xyz")} | {WORDS["rank"]: RANK}
        return [
            *(text for word in RANGES for text in _stored("i32", own.get(word, f"%rocpy.word{word}"), 4 * word)),
            *_stored("i64", "%rocpy.dynamic", DYNAMIC_SHARED_OFFSET),
            *_stored("ptr", self._kernel.parts[number].site, SITE_OFFSET),
            f"  %rocpy.thread = zext nneg i32 {RANK} to i64",
            f"  call void @{self._name}.body{number}({_BLOCK}, {_THREAD}, i32 {leads})",
        ]

    def _entry(self) -> list[str]:
        """Return the function that runs a block."""
        lines = [
            f"define void @{self._name}(ptr {ARGUMENTS}, ptr {STATE}) nounwind {{",
            "rocpy.begin:",
            f"  %rocpy.size.at = getelementptr i8, ptr {STATE}, i64 {4 * WORDS['size']}",
            "  %rocpy.size = load i32, ptr %rocpy.size.at",
            "  %rocpy.threads = zext nneg i32 %rocpy.size to i64",
            f"  %rocpy.past = add nuw nsw i64 %rocpy.threads, {_LINE_BYTES - 1}",
            f"  %rocpy.padded = and i64 %rocpy.past, {-_LINE_BYTES}",
            f"  %rocpy.bytes = mul nuw nsw i64 %rocpy.padded, {sum(self._strides.values())}",
            f"  %rocpy.memory = call ptr @rocpy_simt_block_memory(ptr {STATE}, i64 %rocpy.bytes)",
        ]
        for i, part in enumerate(self._kernel.parts):
            lines += [f"  call void @rocpy_simt_block_reserve(ptr {STATE}, {each})" for each in part.reserves.values()]
            if part.leads:
                lines.append(f"  call void @{self._name}.leader{i}({_BLOCK})")
            lines.append(f"  call void @{self._name}.loop{i}({_BLOCK}, i32 {int(part.leads)})")
        return [*lines, "  ret void", "}"]


def _read_state() -> list[str]:
    """Return the lines that read what all threads of a block know, and reserve what each knows for itself."""
    lines = [f"  {LANE} = alloca [{STATE_BYTES} x i8], align {LANE_ALIGNMENT}"]
    for word, (least, end) in RANGES.items():
        at = f"%rocpy.word{word}.at"
        lines.append(f"  {at} = getelementptr i8, ptr {STATE}, i64 {4 * word}")
        lines.append(f"  %rocpy.word{word} = load i32, ptr {at}, !range !{{i32 {least}, i32 {end}}}")
    lines.append(f"  %rocpy.dynamic.at = getelementptr i8, ptr {STATE}, i64 {DYNAMIC_SHARED_OFFSET}")
    return [*lines, "  %rocpy.dynamic = load i64, ptr %rocpy.dynamic.at"]


def _stored(kind: str, value: str, offset: int) -> list[str]:
    at = f"%rocpy.lane.{offset}"
    return [f"  {at} = getelementptr i8, ptr {LANE}, i64 {offset}", f"  store {kind} {value}, ptr {at}"]


def _of(name: str, what: str) -> str:
    """Return the name of what belongs to a value."""
    return f"%rocpy.{what}.{name[1:]}"
