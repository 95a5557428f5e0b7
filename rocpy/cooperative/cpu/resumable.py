# SPDX-License-Identifier: MIT
"""Makes coroutines of kernels: a thread that waits returns to the runtime, and a frame keeps what it needs afterwards.

A barrier is a call that waits, for which a thread needs a stack of its own. Where all barriers have come into one
function, each becomes a call that asks whether to wait and a suspend point of LLVM's coroutines: what is live there
goes into a frame of some words, and the threads of a block take turns on one stack. A kernel that keeps a barrier in a
function that is not in line runs on fibers, as it is.
"""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

from rocpy.cooperative.cpu.assembly import CALL, LABEL, WAITS, waits
from rocpy.cooperative.numba.runtime import FRAME_OFFSET

_PARAMETER = re.compile(r"%[\w.$]+|%\"[^\"]*\"")
_DECLARATIONS = """
declare i32 @rocpy_simt_begin_barrier(ptr, i32)
declare i32 @rocpy_simt_begin_arrive(ptr, i32)
declare noalias ptr @rocpy_simt_frame(ptr, i64)
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare {end} @llvm.coro.end(ptr, i1, token)
"""


def resumable(module: Any, name: str) -> str | None:
    """Return a module in which the function is a coroutine; None if it never waits, or not it alone."""
    entry = module.get_function(name)
    if not waits(str(entry)):
        return None
    if any(waits(str(each)) for each in module.functions if not each.is_declaration and each.name != name):
        return None
    lines = str(module).split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith("define ") and f"@{name}(" in line)
    end = lines.index("}", begin)
    arguments, state = _PARAMETER.findall(lines[begin].partition(f"@{name}(")[2])[:2]
    body = _body(lines[begin + 1 : end], state)
    if body is None:
        return None
    group = re.search(r"(#\d+)[^#]*\{$", lines[begin])
    head = f"define void @{name}(ptr {arguments}, ptr {state}) presplitcoroutine {group[1] if group else ''} {{"
    declared = [
        line
        for line in _DECLARATIONS.format(end="void" if llvm.llvm_version_info[0] >= 22 else "i1").strip().split("\n")
        if not any(each.startswith("declare") and _named(line) in each for each in lines)
    ]
    return "\n".join([*lines[:begin], head, *body, "}", *declared, *lines[end + 1 :]])


def _named(declaration: str) -> str:
    return re.search(r"@[\w.]+\(", declaration)[0]  # type: ignore[index]


def _body(lines: list[str], state: str) -> list[str] | None:
    """Return the lines of a function's body with suspend points in it."""
    result: list[str] = []
    label = "0"  # of a first block without a name
    last: dict[str, str] = {}  # what a block's own end is called, if it was cut
    begun, count = False, 0
    for line in lines:
        named = LABEL.match(line)
        if named:
            label = named[1]
        code = line.strip()
        if not begun and code and not named and " = alloca " not in line:
            result += _begin(state)
            begun = True
        if any(f"@{each}(" in line for each in WAITS):
            call = CALL.match(line)
            if call is None:
                return None
            result += _wait(call, count)
            last[label] = f"rocpy.on{count}"
            count += 1
        elif code == "ret void":
            result.append("  br label %rocpy.leave")
        else:
            result.append(line)
    result = [_renamed(line, last) if " = phi " in line else line for line in result]
    kind = "void" if llvm.llvm_version_info[0] >= 22 else "i1"
    return [
        *result,
        "rocpy.leave:",
        f"  call {kind} @llvm.coro.end(ptr %rocpy.frame, i1 false, token none)",
        "  ret void",
    ]


def _begin(state: str) -> list[str]:
    return [
        "  %rocpy.id = call token @llvm.coro.id(i32 64, ptr null, ptr null, ptr null)",
        "  %rocpy.bytes = call i64 @llvm.coro.size.i64()",
        f"  %rocpy.memory = call ptr @rocpy_simt_frame(ptr {state}, i64 %rocpy.bytes)",
        "  %rocpy.frame = call ptr @llvm.coro.begin(token %rocpy.id, ptr %rocpy.memory)",
        f"  %rocpy.place = getelementptr i8, ptr {state}, i64 {FRAME_OFFSET}",
        "  store ptr %rocpy.frame, ptr %rocpy.place",
    ]


def _wait(call: re.Match[str], number: int) -> list[str]:
    result = call["result"] or f"%rocpy.begun{number}"
    return [
        f"  {result} = call i32 @rocpy_simt_begin_{call['what']}({call['arguments']})",
        f"  %rocpy.goes{number} = icmp ne i32 {result}, 0",
        f"  br i1 %rocpy.goes{number}, label %rocpy.on{number}, label %rocpy.off{number}",
        f"rocpy.off{number}:",
        f"  %rocpy.how{number} = call i8 @llvm.coro.suspend(token none, i1 false)",
        f"  switch i8 %rocpy.how{number}, label %rocpy.leave [ i8 0, label %rocpy.on{number}",
        "    i8 1, label %rocpy.leave ]",
        f"rocpy.on{number}:",
    ]


def _renamed(line: str, last: dict[str, str]) -> str:
    return re.sub(r', %("[^"]*"|[-\w$.]+) \]', lambda match: f", %{last.get(match[1], match[1])} ]", line)
