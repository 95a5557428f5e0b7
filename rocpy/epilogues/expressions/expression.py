# SPDX-License-Identifier: MIT
"""An epilogue as data: a graph of operations on the product and on named inputs, with constants folded."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rocpy.epilogues.expressions.node_types import check_numbers, node_type
from rocpy.epilogues.expressions.nodes import Node, halves_of
from rocpy.epilogues.expressions.operations import OPERATIONS, fold
from rocpy.epilogues.expressions.records import FORMAT, read, row_of
from rocpy.epilogues.expressions.text import text_of
from rocpy.epilogues.expressions.types import COMPARISONS, category, comparison_type
from rocpy.errors import InvalidProblemError

__all__ = ["Builder", "Expression", "Node", "with_bias"]

Number = bool | int | float


@dataclass(frozen=True, eq=False, slots=True)
class Expression:
    """A graph of operations on the product ``x`` and on named inputs.

    Parameters
    ----------
    inputs
        Names of the inputs, in order.
    nodes
        The operations; operands come before those that use them.
    outputs
        Places of the results among the nodes.
    single
        Whether there is one result, not a tuple of them.
    defaults
        Values of the inputs that may be left out, by name.
    name
        What it is called; two that differ in the name alone are equal.

    Examples
    --------
    >>> import rocpy
    >>> @rocpy.epilogue
    ... def scaled(x, scale):
    ...     return x * scale + 1.0
    >>> print(scaled.expression)
    scaled(x, scale) = x * scale + 1.0
    >>> rocpy.epilogues.Expression.from_json(scaled.expression.to_json()) == scaled.expression
    True
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    single: bool = True
    defaults: tuple[tuple[str, Number], ...] = ()
    name: str = field(default="epilogue")

    # ---- identity ----

    @property
    def key(self) -> tuple[Any, ...]:
        """What equality compares."""
        nodes = tuple(node.key for node in self.nodes)
        return (
            self.inputs,
            nodes,
            self.outputs,
            self.single,
            tuple((name, repr(value)) for name, value in self.defaults),
        )

    def __eq__(self, other: object) -> bool:
        """Whether another is the same graph, whatever it is called."""
        return isinstance(other, Expression) and (self is other or self.key == other.key)

    def __hash__(self) -> int:
        """Return a hash of the graph."""
        return _hash_of(_Identity(self))

    # ---- JSON ----

    def to_dict(self) -> dict[str, Any]:
        """Return the expression as plain values for JSON and for :meth:`from_dict`."""
        return {
            "format": FORMAT,
            "name": self.name,
            "inputs": list(self.inputs),
            "defaults": dict(self.defaults),
            "nodes": [row_of(node) for node in self.nodes],
            "outputs": list(self.outputs),
            "single": self.single,
        }

    def to_json(self) -> str:
        """Return the expression as a JSON object."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Expression:
        """Return the expression that :meth:`to_dict` wrote.

        Raises
        ------
        InvalidProblemError
            If it is no such record.
        """
        return cls(*read(data))

    @classmethod
    def from_json(cls, text: str) -> Expression:
        """Return the expression that :meth:`to_json` wrote."""
        if not isinstance(text, str):
            raise InvalidProblemError(f"an expression's record is {type(text).__name__}, not the text of an object")
        return _from_json(text)

    # ---- what it says ----

    def uses(self, index: int) -> frozenset[int]:
        """Return the indices of all nodes that a node is made of, its own among them."""
        visited: set[int] = set()
        stack = [index]
        while stack:
            node = stack.pop()
            if node not in visited:
                visited.add(node)
                stack += self.nodes[node].args
        return frozenset(visited)

    @property
    def used_inputs(self) -> tuple[str, ...]:
        """Names of the inputs that a result depends on."""
        read = {node.value for node in self.nodes if node.op == "input"}
        return tuple(name for name in self.inputs if name in read)

    @property
    def reads_x(self) -> bool:
        """Whether a result depends on the product."""
        return any(node.op == "x" for node in self.nodes)

    @property
    def product(self) -> str:
        """What the product is called: ``"x"``, with an underscore where an input has that name."""
        return free_name("x", self.inputs)

    @property
    def halves(self) -> tuple[bool | None, ...]:
        """For each node, whether it has half the product's columns; ``None`` if it fits both."""
        return halves_of(self.nodes)

    @property
    def halved(self) -> bool:
        """Whether its results have half the product's columns."""
        halves = self.halves
        return any(halves[position] for position in self.outputs)

    def types(self, x: str, inputs: Mapping[str, tuple[str, int]]) -> tuple[str, ...]:
        """Return the type of every node for a product and inputs of given types, by torch's rules.

        Parameters
        ----------
        x
            Type of the product.
        inputs
            Type of each input, and its rank class: 2 for arrays, 1 for those without axes, 0 for Python's numbers.

        Raises
        ------
        InvalidProblemError
            If an operation has no meaning for its operands.
        """
        return tuple(dtype for dtype, _ in self._types_and_ranks(x, inputs))

    def compared_types(self, x: str, inputs: Mapping[str, tuple[str, int]]) -> tuple[str, ...]:
        """Return for every comparison the type that holds its operands, an empty name for other nodes.

        Parameters
        ----------
        x, inputs
            As for :meth:`types`.
        """
        known = self._types_and_ranks(x, inputs)
        return tuple(
            comparison_type([known[arg] for arg in node.args]) if node.op in COMPARISONS else "" for node in self.nodes
        )

    def _types_and_ranks(self, x: str, inputs: Mapping[str, tuple[str, int]]) -> list[tuple[str, int]]:
        known: list[tuple[str, int]] = []
        for node in self.nodes:
            args = [known[arg] for arg in node.args]
            known.append(node_type(node, args, x, inputs))
            if category(known[-1][0]) == 1:
                values = [self.nodes[arg].value if self.nodes[arg].op == "const" else None for arg in node.args]
                check_numbers(node.op, known[-1][0], values)
        return known

    def with_values(self, values: Mapping[str, Number]) -> Expression:
        """Return the expression with numbers in the place of inputs."""
        if not values:
            return self
        builder = Builder(tuple(name for name in self.inputs if name not in values))
        copies = builder.copy(self, lambda node: builder.const(values[node.value]) if node.value in values else None)
        defaults = tuple((name, value) for name, value in self.defaults if name not in values)
        return builder.finish([copies[position] for position in self.outputs], self.single, defaults, self.name)

    def __str__(self) -> str:
        """Return it as Python would be written; what is used more than once has a line of its own."""
        return text_of(self)

    def __repr__(self) -> str:
        """Return its text between angle brackets."""
        return f"<rocpy epilogue {self}>"


class _Identity:
    """An expression as a key of a cache by identity, so that its hash is computed once."""

    __slots__ = ("of",)

    def __init__(self, of: Expression) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.of is other.of


@functools.lru_cache(maxsize=1024)
def _hash_of(one: _Identity) -> int:
    return hash(one.of.key)


@functools.lru_cache(maxsize=256)
def _from_json(text: str) -> Expression:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidProblemError(f"an expression's record is not JSON: {error}") from None
    return Expression.from_dict(data)


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return a name, with underscores behind it where it is taken."""
    while name in taken:
        name += "_"
    return name


class Builder:
    """Collects nodes: equal ones are one node, constants are folded."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self.inputs = tuple(inputs)
        self.nodes: list[Node] = []
        self._positions: dict[tuple[Any, ...], int] = {}

    def _put(self, node: Node) -> int:
        position = self._positions.get(node.key)
        if position is None:
            position = self._positions[node.key] = len(self.nodes)
            self.nodes.append(node)
        return position

    def x(self) -> int:
        """Return the place of the product."""
        return self._put(Node("x"))

    def input(self, name: str) -> int:
        """Return the place of an input."""
        return self._put(Node("input", (), name))

    def leaf(self, node: Node) -> int:
        """Return the place of a node without operands."""
        return self._put(node)

    def const(self, value: Number, dtype: str = "") -> int:
        """Return the place of a constant: a number, or an array without axes of a type.

        Raises
        ------
        InvalidProblemError
            If it is an integer of more than 64 bits.
        """
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidProblemError(
                "an integer below -2**63 or above 2**63 - 1 among an epilogue's numbers; use a float"
            )
        return self._put(Node("const", (), value, dtype))

    def value(self, position: int) -> Number | None:
        """Return the value of a node that is a constant."""
        node = self.nodes[position]
        return node.value if node.op == "const" else None

    def op(self, name: str, *args: int, value: Any = None) -> int:
        """Return the place of an operation on other nodes."""
        operation = OPERATIONS[name]
        known = [self.nodes[arg].value for arg in args if self._is_number(arg)]
        if operation.value is not None and len(known) == len(args):
            folded = fold(operation, known)
            if folded is not None:
                return self.const(folded)
        if name == "mul" and self._is_one(args[1]) and self._is_numeric(args[0]):
            return args[0]
        if name == "mul" and self._is_one(args[0]) and self._is_numeric(args[1]):
            return args[1]
        if name == "not" and self.nodes[args[0]].op == "not":
            return self.nodes[args[0]].args[0]
        if operation.commutes and self.nodes[args[0]].op == "const":
            args = args[::-1]  # a number comes second, so that 2 * x and x * 2 are one
        return self._put(Node(name, args, value))

    def _is_number(self, position: int) -> bool:
        # An array without axes has a type of its own, which a folded value would not have.
        return self.nodes[position].op == "const" and not self.nodes[position].dtype

    def _is_one(self, position: int) -> bool:
        # A 1.0 makes whole numbers floating-point ones; the integer changes nothing.
        value = self.value(position)
        return self._is_number(position) and type(value) is int and value == 1

    def _is_numeric(self, position: int) -> bool:
        # Truth values become whole numbers when they are multiplied; the types of others are not known yet.
        node = self.nodes[position]
        if node.op == "cast":
            return bool(node.value != "bool")
        return node.op == "x" or (OPERATIONS[node.op].kind in ("promote", "float") and node.op != "pick")

    def copy(self, source: Expression, replace: Any = None) -> list[int]:
        """Put the nodes of an expression here and return their places; ``replace(node)`` may give another's."""
        copies: list[int] = []
        for node in source.nodes:
            other = None if replace is None else replace(node)
            if other is None:
                args = [copies[arg] for arg in node.args]
                other = self._put(node) if not args else self.op(node.op, *args, value=node.value)
            copies.append(other)
        return copies

    def finish(
        self,
        outputs: Sequence[int],
        single: bool,
        defaults: tuple[tuple[str, Number], ...] = (),
        name: str = "epilogue",
    ) -> Expression:
        """Return the expression of some results; nodes that none of them needs are left out."""
        order: dict[int, int] = {}
        nodes: list[Node] = []

        def visit(root: int) -> None:
            stack = [(root, False)]
            while stack:
                position, done = stack.pop()
                if position in order:
                    continue
                node = self.nodes[position]
                if done:
                    order[position] = len(nodes)
                    nodes.append(replace(node, args=tuple(order[arg] for arg in node.args)))
                else:
                    stack.append((position, True))
                    stack += [(arg, False) for arg in reversed(node.args)]

        for position in outputs:
            visit(position)
        return Expression(
            self.inputs,
            tuple(nodes),
            tuple(order[position] for position in outputs),
            single,
            tuple(sorted(defaults)),
            name,
        )


def with_bias(expression: Expression) -> Expression:
    """Return an expression of the product plus an input ``bias``."""
    builder = Builder((*expression.inputs, "bias"))
    x = builder.op("add", builder.x(), builder.input("bias"))
    positions = builder.copy(expression, lambda node: x if node.op == "x" else None)
    outputs = [positions[position] for position in expression.outputs]
    return builder.finish(outputs, expression.single, expression.defaults, expression.name)
