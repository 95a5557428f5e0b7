# SPDX-License-Identifier: MIT
"""The memory that a kernel's thread has for itself: sizes of LLVM's types, and of functions' frames."""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm

_ALLOCA = re.compile(r" = alloca (?P<type>[^%\n]+?)(?:, i\d+ (?P<count>\d+))?(?:, align \d+)?(?:, addrspace\(\d+\))?$")


def sizes(module: Any, kinds: set[str]) -> dict[str, int]:
    """Return the bytes of an element of each type.

    Parameters
    ----------
    module
        Whose data layout counts.
    kinds
        Types as text, none of which has a name.
    """
    ordered = sorted(kinds)
    declared = "\n".join(f"@size{i} = external global {kind}" for i, kind in enumerate(ordered))
    layout = f'target datalayout = "{module.data_layout}"\n'
    with llvm.parse_assembly(layout + declared) as sized, llvm.create_target_data(module.data_layout) as target:
        of_each = [
            target.get_abi_size(sized.get_global_variable(f"size{i}").global_value_type) for i in range(len(kinds))
        ]
    return dict(zip(ordered, of_each, strict=True))


def frame_bytes(module: Any) -> int:
    """Return the bytes of all variables in the frames of a module's functions, an upper bound of what a thread needs.

    Parameters
    ----------
    module
        As it is before code is emitted; no function of it calls itself.
    """
    seen: list[tuple[str, int]] = []
    for function in module.functions:
        text = "" if function.is_declaration else str(function)
        if " = alloca " in text:
            seen += [(each["type"], int(each["count"] or 1)) for each in map(_ALLOCA.search, text.split("\n")) if each]
    known = sizes(module, {kind for kind, _ in seen})
    return sum(known[kind] * count for kind, count in seen)
