# SPDX-License-Identifier: MIT
"""Cuts a kernel into parts between the waits of its threads, as PoCL does, so that loops can run each for all threads.

A kernel is cut where every thread of a block passes the same barriers and collectives in the same order. What a thread
computes in one part and needs in another is saved in arrays with an element for each thread or, if it follows from the
arguments and the thread's indices, computed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rocpy.cooperative.cpu.assembly import CALL, INCOMING, LABEL, NAME, Line, line_of, plain, read_line, waits
from rocpy.cooperative.numba.runtime import SITE_OFFSET

# What the functions of loops call their parameters.
ARGUMENTS = "%rocpy.arguments"
STATE = "%rocpy.state"  # of the block
LANE = "%rocpy.lane"  # state of the thread, of which the optimizer leaves nothing
LEADS = "%rocpy.leads"
RANK = "%rocpy.rank"
_PARAMETERS = frozenset({ARGUMENTS, STATE, LANE, RANK})  # whose values are the same in all parts

LANE_ALIGNMENT = 16  # of the memory that a thread has for itself
_EXIT = "exit"
_ALLOCA = re.compile(r" = alloca (?P<type>.+?)(?:, i\d+ (?P<count>\d+))?(?:, align (?P<align>\d+))?$")
_RUNTIME = re.compile(r"(?P<before>^.*?)(?:tail )?call (?P<type>[^@]*)@rocpy_simt_(?P<what>\w+)\((?P<arguments>.*)\)")
_ARITHMETIC = ("add", "sub", "mul", "shl", "lshr", "ashr", "and", "or", "xor", "icmp", "select")
_PURE = frozenset((*_ARITHMETIC, "zext", "sext", "trunc", "getelementptr", "bitcast", "ptrtoint", "inttoptr"))
_ALWAYS_THE_SAME = ("block_slots", "block_shared", "dynamic_shared")  # what they return, in one part
_MOST_RECOMPUTED = 16  # instructions for one value: more cost more than to save it


class UnsuitedError(Exception):
    """The kernel cannot be cut."""


@dataclass
class Block:
    """Lines that follow each other, and where it goes from there: labels, the number of a wait, or out."""

    label: str
    lines: list[Line] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    waits: bool = False


@dataclass
class Part:
    """What lies between two waits.

    Attributes
    ----------
    blocks
        Its blocks, the first of them first.
    leads
        Whether one thread goes on before the others.
    collective
        Number of the collective that it ends with; None where it ends with another wait, or the kernel.
    reserves
        Calls for shared memory that every thread makes first, with the arguments by which one may make each for all.
    site
        Constant with the source line that threads are at when it begins.
    defines
        Names of its values.
    """

    blocks: list[Block]
    leads: bool
    collective: int | None = None
    reserves: dict[str, str] = field(default_factory=dict)
    site: str = "null"
    defines: set[str] = field(default_factory=set)


class Kernel:
    """A kernel's parts, in which the functions of the runtime are those for whole blocks.

    Attributes
    ----------
    parts
        In their order.
    memory
        Types of what each thread has in memory of its own over a wait, by name of the pointer to it.
    saved
        Types of values that are saved; known when `needs` of all parts has been asked for.
    shares_memory
        Whether threads use the same memory for themselves, one after the other.
    """

    def __init__(self, module: Any, name: str) -> None:
        function = module.get_function(name)
        self._parameters = dict(
            zip([plain(f"%{each.name}") for each in function.arguments], (ARGUMENTS, STATE), strict=True)
        )
        self._blocks: dict[str, Block] = {}
        self._collective: dict[str, bool] = {}  # for each wait whether it is one; else it is a barrier
        self._ends: dict[str, str] = {}  # labels of what blocks end in that waits have cut
        for block in function.blocks:
            self._read(block)
        self._states = self._find_states()
        self.parts = list(self._find_parts())
        self.saved: dict[str, str] = {}
        self.memory: dict[str, str] = {}
        self.shares_memory = False
        self._definitions: dict[str, Line] = {}
        self._recipes: dict[str, list[Line] | None] = {}
        self._sites = 0
        for before, after in pairwise(self.parts):
            after.site = self._last_site(before)
        for part in self.parts:
            self._prepare(part)

    def _read(self, block: Any) -> None:
        named = LABEL.match(str(block).lstrip("\n"))
        if named is None:
            raise UnsuitedError
        label = plain(f"%{named[1]}")
        current = self._blocks[label] = Block(label)
        for instruction in block.instructions:
            line = read_line(instruction)
            for own, ours in self._parameters.items():
                if own in line.uses:
                    line = line_of(re.sub(rf"{re.escape(own)}(?![-\w$.])", ours, line.text), line.operation, line.type)
            if line.operation != "call" or not waits(line.text):
                current.lines.append(line)
                continue
            number = self._number(line)
            current.next, current.waits = [number], True
            current = self._blocks[_after(number)] = Block(_after(number))
            self._ends[label] = current.label
            if line.result:
                current.lines.append(line_of(f"{line.result} = add i32 {LEADS}, 0", "add", "i32"))
        last = current.lines[-1]
        current.next = [_EXIT] if last.operation == "ret" else re.findall(rf"label ({NAME})", last.text)

    def _number(self, line: Line) -> str:
        call = CALL.match(line.text)
        if call is None or not call["arguments"].endswith(", i32 0"):
            raise UnsuitedError  # a warp waits, or what only the launch knows
        number = str(len(self._collective))
        self._collective[number] = call["what"] == "arrive"
        return number

    def _find_states(self) -> set[str]:
        """Return the names of pointers to the thread's state, which are used for nothing but to read and write it."""
        lines = [line for block in self._blocks.values() for line in block.lines]
        states: set[str] = set()
        size = -1
        while len(states) != size:
            size = len(states)
            for line in lines:
                call = _call_of(line)
                inside = line.operation == "getelementptr" and not states.isdisjoint(line.uses[:1])
                if inside or (call and call["what"] == "current"):
                    states.add(line.result)
        for line in lines:
            if states.isdisjoint(line.uses) or line.operation == "load" or _call_of(line):
                continue
            written = line.operation == "store" and states.isdisjoint(line.uses[:-1])
            if not written and line.operation != "getelementptr":
                raise UnsuitedError
        return states

    def _find_parts(self) -> Iterator[Part]:
        label, number, leads, passed = next(iter(self._blocks)), 0, False, set()
        while True:
            blocks, ends = self._reach(label)
            if len(ends) > 1:
                raise UnsuitedError  # threads may go different ways
            end = ends.pop() if ends else _EXIT
            collective = self._collective.get(end, False)
            yield Part(blocks, leads, number if collective else None)
            if end == _EXIT:
                return
            if end in passed:
                raise UnsuitedError
            passed.add(end)
            label, leads, number = _after(end), collective, number + collective

    def _reach(self, first: str) -> tuple[list[Block], set[str]]:
        labels, ends = [first], set()
        for label in labels:
            for each in self._blocks[label].next:
                if each not in self._blocks:
                    ends.add(each)
                elif each not in labels:
                    labels.append(each)
        return [self._blocks[each] for each in labels], ends

    def _prepare(self, part: Part) -> None:
        """Let the lines of a part call what works for a whole block."""
        self._find_reserves(part)
        labels = {block.label for block in part.blocks}
        blocks = []
        for old in part.blocks:
            lines = [self._incoming(line, labels) if line.operation == "phi" else line for line in old.lines]
            lines = [new for line in lines for new in self._for_block(line, part)]
            blocks.append(Block(old.label, lines, old.next, old.waits))
        part.blocks = blocks
        for line in [line for block in blocks for line in block.lines if line.result]:
            part.defines.add(line.result)
            self._definitions[line.result] = line

    def _site_of(self, line: Line) -> str | None:
        """Return the constant with the source line that an instruction stores in the thread's state, if it does."""
        stored = re.match(rf'store ptr (?P<site>@(?:"[^"]*"|[-\w$.]+)), ptr (?P<to>{NAME})', line.text)
        return stored["site"] if stored and stored["to"] in self._states else None

    def _last_site(self, part: Part) -> str:
        """Return the constant with the source line of the wait that a part ends with: the nearest stored before it."""
        blocks = sorted(part.blocks, key=lambda block: block.waits)  # which are in the order that they are reached in
        lines = [line for block in blocks for line in block.lines]
        return next((site for line in reversed(lines) if (site := self._site_of(line))), part.site)

    def _find_reserves(self, part: Part) -> None:
        """Find the calls for shared memory in a part's first block, all of which every thread runs."""
        site = part.site
        for line in part.blocks[0].lines:
            call = _call_of(line)
            if stored := self._site_of(line):
                site = stored
            elif call and call["what"] == "shared":
                _, _, rest = call["arguments"].partition(", ")
                if not line.uses[1:]:  # of a size that is known
                    part.reserves[line.text] = f"ptr {site}, {rest}"

    def _incoming(self, line: Line, labels: set[str]) -> Line:
        """Return a phi without what comes from blocks of other parts."""
        pairs = [(value, self._ends.get(label, label)) for value, label in INCOMING.findall(line.text)]
        own = ", ".join(f"[ {value}, {label} ]" for value, label in pairs if label in labels)
        return line_of(INCOMING.split(line.text, maxsplit=1)[0] + own, "phi", line.type)

    def _for_block(self, line: Line, part: Part) -> Iterable[Line]:
        if "@llvm.lifetime." in line.text and len(self.parts) > 1:
            return []
        if line.operation == "alloca" and len(self.parts) == 1:
            self.shares_memory = True
        elif line.operation == "alloca":
            self.memory[line.result] = _type_of_alloca(line.text)
            return []
        call = _call_of(line)
        if call is None:
            return [line]
        what, before = call["what"], call["before"]
        _, _, rest = call["arguments"].partition(", ")
        if what == "release":
            return []
        if what == "shared" and line.text in part.reserves:
            return [line_of(f"{before}call ptr @rocpy_simt_block_shared(ptr {STATE}, {rest})", "call", line.type)]
        if what in ("shared", "raise"):
            self._sites += 1
            site = f"%site-{self._sites}"
            function = "ptr @rocpy_simt_shared_in" if what == "shared" else "void @rocpy_simt_raise_in"
            text = f"{before}call {function}(ptr {STATE}, i32 {RANK}, ptr {site}, {rest})"
            return [
                line_of(f"{site}.at = getelementptr i8, ptr {LANE}, i64 {SITE_OFFSET}", "getelementptr", "ptr"),
                line_of(f"{site} = load ptr, ptr {site}.at", "load", "ptr"),
                line_of(text, "call", line.type),
            ]
        if what == "current":
            return [line_of(f"{before}getelementptr i8, ptr {LANE}, i64 0", "getelementptr", "ptr")]
        if what == "slots" and rest.startswith("i32 0, ") and part.collective is not None:
            text = f"{before}call ptr @rocpy_simt_block_slots(ptr {STATE}, i32 {part.collective}, {rest[7:]})"
        elif what == "dynamic_shared":
            text = f"{before}call ptr @rocpy_simt_dynamic_shared(ptr {STATE}) nounwind willreturn memory(none)"
        else:
            raise UnsuitedError
        return [line_of(text, "call", line.type)]

    def needs(self, part: Part) -> list[str | Line]:
        """Return what brings other parts' values into a part, in order: names of memory or of what is saved, lines."""
        brought: dict[str, str | Line] = {}
        for name in [each for block in part.blocks for line in block.lines for each in line.uses]:
            if name in part.defines or not (name in self._definitions or name in self.memory):
                continue
            recipe = self._recipe(name)
            if recipe is None:
                if name in self._states:
                    raise UnsuitedError
                self.saved[name] = self._definitions[name].type
            for line in recipe or []:
                if line.result in part.defines:
                    raise UnsuitedError
                for each in line.uses:
                    if each in self.memory:
                        brought.setdefault(each, each)
                brought.setdefault(line.result, line)
            brought.setdefault(name, name)
        return list(brought.values())

    def _recipe(self, name: str, depth: int = 0) -> list[Line] | None:
        """Return the lines that compute a value from the arguments and the thread's indices; None if none do."""
        if name in self.memory or name in _PARAMETERS:
            return []
        if name in self._recipes:
            return self._recipes[name]
        if depth > _MOST_RECOMPUTED:
            return None
        lines = self._compute_recipe(name, depth)
        if lines is not None or depth == 0:
            self._recipes[name] = lines
        return lines

    def _compute_recipe(self, name: str, depth: int) -> list[Line] | None:
        line = self._definitions.get(name)
        known = line is not None and (
            line.operation in _PURE
            or _call_of(line, *_ALWAYS_THE_SAME) is not None
            or (line.operation == "load" and self._is_constant(line.uses))
        )
        if line is None or not known:
            return None
        result: list[Line] = []
        for each in line.uses:
            lines = self._recipe(each, depth + 1)
            if lines is None:
                return None
            result += [new for new in lines if new not in result]
        return [*result, line] if len(result) < _MOST_RECOMPUTED else None

    def _is_constant(self, uses: tuple[str, ...]) -> bool:
        """Return whether what a pointer points to is the same for a whole launch of the thread."""
        if not uses or uses[0] in self._states or uses[0] == ARGUMENTS:
            return bool(uses)
        line = self._definitions.get(uses[0])
        return line is not None and line.operation == "getelementptr" and line.uses[:1] in ((ARGUMENTS,), (LANE,))


def _call_of(line: Line, *names: str) -> re.Match[str] | None:
    """Return the parts of a call of the runtime's functions, or of those of some names."""
    call = _RUNTIME.search(line.text) if line.operation == "call" else None
    return call if call and (not names or call["what"] in names) else None


def _after(number: str) -> str:
    return f"%rocpy.on{number}"


def _type_of_alloca(text: str) -> str:
    seen = _ALLOCA.search(text)
    if seen is None or int(seen["align"] or 1) > LANE_ALIGNMENT:
        raise UnsuitedError
    return f"[{seen['count']} x {seen['type']}]" if seen["count"] else seen["type"]
