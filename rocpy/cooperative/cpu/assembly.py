# SPDX-License-Identifier: MIT
"""LLVM's assembly as text: instructions, the names that they use, and the calls in which a kernel's thread waits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

WAITS = ("rocpy_simt_barrier", "rocpy_simt_arrive")
CALL = re.compile(
    r"^\s*(?:(?P<result>%\S+) = )?(?:tail |musttail |notail )?call (?:\w+ )*?(?P<type>void|i32) "
    r"@rocpy_simt_(?P<what>barrier|arrive)\((?P<arguments>.*)\)(?: #\d+)?(?:, !.*)?$"
)
LABEL = re.compile(r'^("[^"]*"|[-\w$.]+):')
NAME = r"%[-\w$.]+"  # once they are plain
INCOMING = re.compile(rf"\[ (.*?), ({NAME}) \]")  # of a phi: value and label
_NAMES = re.compile(NAME)
_QUOTED = re.compile(r'"[^"]*"')  # names of constants hold paths of files, in which anything may stand
_NUMBERED_OR_QUOTED = re.compile(r'%"(?P<name>[^"]*)"|"[^"]*"|%(?P<number>\d+)\b')
_METADATA = re.compile(r'^(?P<before>(?:[^"]|"[^"]*")*?), !.*$', re.DOTALL)


@dataclass
class Line:
    """An instruction.

    Attributes
    ----------
    text
        All of it.
    operation
        What it does.
    result, type
        Name and type of what it gives; empty if nothing.
    uses
        Names of the values that it takes, in their order; no labels.
    """

    text: str
    operation: str
    result: str = ""
    type: str = ""
    uses: tuple[str, ...] = ()


def line_of(text: str, operation: str, kind: str = "") -> Line:
    """Return the instruction of a text with plain names."""
    named = re.match(rf"({NAME}) = ", text)
    rest = _QUOTED.sub('""', without_metadata(text[named.end() :] if named else text))
    if operation == "phi":
        uses = [name for value, _ in INCOMING.findall(rest) for name in _NAMES.findall(value)]
    else:
        uses = _NAMES.findall(re.sub(rf"label {NAME}", "", rest))
    return Line(text, operation, named[1] if named else "", kind, tuple(uses))


def read_line(instruction: Any) -> Line:
    """Return one of llvmlite's instructions, with plain names."""
    return line_of(plain(str(instruction).strip()), instruction.opcode, str(instruction.type))


def plain(text: str) -> str:
    """Return a text in which each name stands by itself: neither a number, which counts others, nor in quotes."""
    return _NUMBERED_OR_QUOTED.sub(_as_plain, text)


def without_metadata(text: str) -> str:
    """Return the text of an instruction without what is attached to it."""
    attached = _METADATA.match(text)
    return attached["before"] if attached else text


def _as_plain(name: re.Match[str]) -> str:
    if name["number"] is not None:
        return f"%unnamed-{name['number']}"
    if name["name"] is not None:
        return "%quoted-" + re.sub(r"[^\w.-]", _as_number, name["name"])
    return name[0]


def _as_number(character: re.Match[str]) -> str:
    return f"${ord(character[0]):x}$"


def waits(text: str) -> bool:
    """Return whether a text has a call that waits."""
    return any(f"@{each}(" in text for each in WAITS)


def bring_in_line(module: Any) -> None:
    """Mark each function that waits, or calls one that does, to be put in line."""
    texts = {each.name: str(each) for each in module.functions if not each.is_declaration}
    waiting = {name for name, text in texts.items() if waits(text)}
    grown = set(waiting)
    while grown:
        marks = tuple(f"@{name}(" for name in grown) + tuple(f'@"{name}"(' for name in grown)
        grown = {name for name, text in texts.items() if name not in waiting and any(mark in text for mark in marks)}
        waiting |= grown
    for name in waiting:
        function = module.get_function(name)
        if function.linkage in (llvm.Linkage.internal, llvm.Linkage.private):
            function.add_function_attribute("alwaysinline")
