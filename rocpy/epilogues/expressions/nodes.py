# SPDX-License-Identifier: MIT
"""The operations of an expression, one node for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Node", "halves_of"]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: its name, the places of its operands, and an attribute.

    The attribute is the name of an ``input``, the value of a ``const``, the type of a ``cast``, the lane of a ``pick``,
    the exponent of a ``power``. A ``const`` with a ``dtype`` is an array without axes; one without is a number.
    """

    op: str
    args: tuple[int, ...] = ()
    value: Any = None
    dtype: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from others; 1, 1.0 and True are three constants, and -0.0 is not 0.0."""
        return self.op, self.args, type(self.value).__name__, repr(self.value), self.dtype


def halves_of(nodes: Iterable[Node]) -> tuple[bool | None, ...]:
    """Return for each node whether it has half the product's columns; ``None`` if it fits both."""
    per_node: list[bool | None] = []
    for node in nodes:
        kinds = {per_node[arg] for arg in node.args} - {None}
        if node.op in ("x", "interleave"):
            per_node.append(False)
        elif node.op == "pick":
            per_node.append(True)
        else:
            per_node.append(kinds.pop() if kinds else None)
    return tuple(per_node)
