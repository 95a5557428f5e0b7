# SPDX-License-Identifier: MIT
"""Forwards without branches: which are, and the same code with ``activation(layer(x))`` as one call.

The new code reads every name that the old one reads, in the same order, and does everything else as it did. It is made
only of methods that call submodules and torch's functions and return: one that does anything else is left as it is, and
the report names the line.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

import torch
from torch import nn

from rocpy.torch.analysis.catalog import METHODS, torch_functions
from rocpy.torch.analysis.formulas import resolve
from rocpy.torch.analysis.source import Unread, describe, syntax_of

__all__ = ["Chain", "check_straight", "find_calls", "rewrite"]


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls that become one.

    Parameters
    ----------
    layer
        Name of the submodule.
    activation
        What is called with its result, as the code spells it: ``"self.act"``, ``"F.gelu"``; ``".relu"`` for a method.
    arguments
        The other arguments of that, as the code spells them.
    """

    layer: str
    activation: str
    arguments: str = ""


# ---- what a method may do ----

_VALUES = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Tuple, ast.List, ast.Slice, ast.Load,
    ast.operator, ast.unaryop,
)  # fmt: skip


def check_straight(module: nn.Module, function: FunctionType) -> ast.FunctionDef:
    """Return the syntax of a method that only calls submodules and torch's functions and returns.

    Raises
    ------
    Unread
        With what else it does, and where.
    """
    tree = syntax_of(function)
    if not tree.args.args and not tree.args.posonlyargs:
        raise Unread("it takes no self")
    this = [*tree.args.posonlyargs, *tree.args.args][0].arg
    checker = _Checker(module, function, this)
    for at, statement in enumerate(tree.body):
        match statement:
            case ast.Expr(ast.Constant(str())) if at == 0:
                continue
            case ast.Assign(targets, value) if all(map(_is_plain_target, targets)):
                checker.expression(value)
            case ast.AnnAssign(ast.Name(), _, ast.expr() as value) | ast.AugAssign(ast.Name(), _, value):
                checker.expression(value)
            case ast.Return(ast.expr() as value) if at == len(tree.body) - 1:
                checker.expression(value)
            case _:
                raise Unread(f"it does more than call layers and torch's functions: {describe(statement, function)}")
    return tree


def _is_plain_target(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Tuple) and all(map(_is_plain_target, node.elts)))


class _Checker:
    """Refuses expressions that are no value, no submodule's call and no call of torch's."""

    def __init__(self, module: nn.Module, function: FunctionType, this: str) -> None:
        self.module, self.function, self.this = module, function, this
        self.locals = frozenset(function.__code__.co_varnames)

    def expression(self, node: ast.AST) -> None:
        match node:
            case ast.Call(callee, arguments, keywords):
                self._callee(callee, node)
                children: Iterable[ast.AST] = (*arguments, *(keyword.value for keyword in keywords))
            case ast.Attribute(ast.Name(name), attribute) if name == self.this:
                if attribute not in self.module.__dict__ and attribute not in self.module._parameters:
                    self._refuse(node, "it reads something that is not its own attribute")
                children = ()
            case ast.Attribute():
                self._global(node)
                children = ()
            case ast.Name(name) if name not in self.locals:
                self._global(node)
                children = ()
            case _ if not isinstance(node, _VALUES):
                self._refuse(node, "it does more than call layers and torch's functions")
            case _:
                children = ast.iter_child_nodes(node)
        for child in children:
            self.expression(child)

    def _global(self, node: ast.expr) -> None:
        try:
            value, _ = resolve(node, self.function)
        except LookupError:
            self._refuse(node, "it reads a name that is neither its own nor torch's")
        if not isinstance(value, (int, float, str, torch.dtype)):
            self._refuse(node, "it reads a name that is neither its own nor torch's")

    def _callee(self, callee: ast.expr, call: ast.Call) -> None:
        module = self.module
        match callee:
            case ast.Attribute(ast.Name(name), attribute) if name == self.this:
                if hasattr(type(module), attribute):
                    self._refuse(call, "it calls a method of its class")
                known = attribute in module._modules or _is_torchs(module.__dict__.get(attribute))
            case ast.Attribute(value, method) if not self._is_global(value):
                known = not method.startswith("_") and hasattr(torch.Tensor, method)
                self.expression(value)
            case _:
                try:
                    known = _is_torchs(resolve(callee, self.function)[0])
                except LookupError:
                    known = False
        if not known:
            self._refuse(call, "it calls something that is neither a submodule nor a function of torch's")

    def _is_global(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self.locals

    def _refuse(self, node: ast.AST, why: str) -> NoReturn:
        raise Unread(f"{why}: {describe(node, self.function)}")


def _is_torchs(value: Any) -> bool:
    return id(getattr(value, "func", value)) in torch_functions()


# ---- calls of layers ----


def _layer_call(node: ast.AST, this: str) -> tuple[str, ast.expr] | None:
    """Return name and argument of ``self.layer(x)``."""
    match node:
        case ast.Call(ast.Attribute(ast.Name(name), layer), [argument], []) if name == this:
            return None if isinstance(argument, ast.Starred) else (layer, argument)
    return None


def _call_of(node: ast.AST) -> tuple[str, ast.expr, str] | None:
    """Return what is called, its first argument and the text of the others, for calls with plain values beside it."""
    match node:
        case ast.Call(ast.Attribute(ast.Call() | ast.Name() as inner, method), [], []) if method in METHODS:
            return f".{method}", inner, ""
        case ast.Call(callee, [first, *rest], keywords) if isinstance(callee, (ast.Attribute, ast.Name)):
            plain = all(isinstance(x, ast.Constant) for x in (*rest, *(keyword.value for keyword in keywords)))
            if plain and not isinstance(first, ast.Starred) and all(keyword.arg for keyword in keywords):
                others = [ast.unparse(x) for x in rest] + [f"{k.arg}={ast.unparse(k.value)}" for k in keywords]
                return ast.unparse(callee), first, ", ".join(others)
    return None


def _loads(node: ast.AST, name: str) -> int:
    return sum(isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Load) for x in ast.walk(node))


def _assigned(statement: ast.stmt) -> str | None:
    """Return the one name that a statement assigns."""
    match statement:
        case ast.Assign([ast.Name(name)]):
            return name
    return None


def _is_read_once(body: list[ast.stmt], at: int) -> bool:
    """Whether what statement ``at`` assigns is read once, by the statement behind it."""
    name = _assigned(body[at])
    if name is None or at + 1 >= len(body) or _loads(body[at + 1], name) != 1:
        return False
    for statement in body[at + 1 :]:
        if (
            isinstance(statement, ast.AugAssign)
            and isinstance(statement.target, ast.Name)
            and statement.target.id == name
        ):
            return False
        if statement is not body[at + 1] and _loads(statement, name):
            return False
        if _stores(statement, name):
            return True
    return True


def _stores(statement: ast.stmt, name: str) -> bool:
    return any(isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Store) for x in ast.walk(statement))


def _first_evaluated(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of an expression before which nothing else is called, from the outermost."""
    while True:
        match node:
            case ast.Call(ast.Attribute(ast.Call() | ast.BinOp() as inner)) | ast.Call(ast.Attribute(inner), []):
                yield node
                node = inner
            case ast.Call(callee, [inner, *_]) if not any(isinstance(x, ast.Call) for x in ast.walk(callee)):
                yield node
                node = inner
            case ast.BinOp(ast.Name() | ast.Constant(), _, inner) | ast.BinOp(inner) | ast.UnaryOp(_, inner):
                node = inner
            case _:
                return


# ---- the new code ----


def find_calls(tree: ast.FunctionDef) -> list[Chain]:
    """Return what a method's code calls with the result of a submodule that it calls itself."""
    chains: list[Chain] = []

    def note(chain: Chain) -> bool:
        chains.append(chain)
        return False

    _Rewriter(copy.deepcopy(tree), note, frozenset()).run()
    return chains


def rewrite(
    tree: ast.FunctionDef, wanted: Callable[[Chain], bool], seconds: frozenset[str]
) -> tuple[ast.FunctionDef, list[Chain]]:
    """Return a method's syntax with pairs of calls as one, and the pairs.

    Parameters
    ----------
    tree
        What `check_straight` returned.
    wanted
        Whether a pair is to be one call.
    seconds
        Names of layers that may be computed together with the pair before them.
    """
    rewriter = _Rewriter(copy.deepcopy(tree), wanted, seconds)
    return rewriter.run(), rewriter.chains


def _name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def _call(helper: str, *arguments: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.Call:
    return ast.Call(_name(f"_rocpy_{helper}"), list(arguments), keywords or [])


def _store(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, tree: ast.FunctionDef, wanted: Callable[[Chain], bool], seconds: frozenset[str]) -> None:
        self.tree, self.wanted, self.seconds = tree, wanted, seconds
        self.this = [*tree.args.posonlyargs, *tree.args.args][0].arg
        self.chains: list[Chain] = []

    def run(self) -> ast.FunctionDef:
        body, at, rewritten = self.tree.body, 0, []
        while at < len(body):
            statements, taken = self._across(body, at)
            if not taken:
                statements, taken = [self.visit(body[at])], 1
            for statement in statements:
                ast.copy_location(statement, body[at])
            rewritten += statements
            at += taken
        self.tree.body = rewritten
        return self.tree

    def _take(self, chain: Chain) -> bool:
        if not self.wanted(chain):
            return False
        self.chains.append(chain)
        return True

    # Within one expression, the order in which names are read stays by itself.

    def visit_Call(self, node: ast.Call) -> ast.AST:
        second = _layer_call(node, self.this)
        if second is not None and second[0] in self.seconds:
            pair = self._pair(second[1])
            if pair is not None and pair.func.id == "_rocpy_pair":  # type: ignore[attr-defined]
                return _call("mlp", node.func, *pair.args, keywords=pair.keywords)
            if pair is not None:
                node.args = [pair]
                return node
        pair = self._pair(node)
        return self.generic_visit(node) if pair is None else pair

    def _pair(self, node: ast.AST) -> ast.Call | None:
        """Return the call in place of ``activation(self.layer(x))``."""
        outer = _call_of(node)
        inner = _layer_call(outer[1], self.this) if outer is not None else None
        if outer is None or inner is None:
            return None
        at = len(self.chains)
        if not self._take(Chain(inner[0], outer[0], outer[2])):
            return None
        argument = self.visit(inner[1])
        # In the order in which they are computed.
        self.chains.append(self.chains.pop(at))
        return self._helper(node, outer[0], outer[1].func, argument)  # type: ignore[attr-defined]

    @staticmethod
    def _helper(node: Any, activation: str, layer: ast.expr, argument: ast.expr) -> ast.Call:
        if activation.startswith("."):
            return _call("method", ast.Constant(activation[1:]), layer, argument)
        return _call("pair", node.func, layer, argument, *node.args[1:], keywords=node.keywords)

    # Across statements, the names of the second are read after the first one's calls, if those could change them.

    def _across(self, body: list[ast.stmt], at: int) -> tuple[list[ast.stmt], int]:
        """Return statements in place of those from ``at``, and how many of them; none where nothing is to be done."""
        target = _assigned(body[at])
        if target is None or not _is_read_once(body, at):
            return [], 0
        inner = _layer_call(body[at].value, self.this)  # type: ignore[attr-defined]
        if inner is None:
            return [], 0
        user = next(
            (call for call in _first_evaluated(_value_of(body[at + 1])) if self._is_call_with(call, target)), None
        )
        if user is None:
            return [], 0
        activation, _, others = _call_of(user) or ("", user, "")
        if not self._take(Chain(inner[0], activation, others)):
            return [], 0
        layer, x = f"_rocpy_layer_{at}", f"_rocpy_x_{at}"
        before = [_store(layer, body[at].value.func), _store(x, self.visit(inner[1]))]  # type: ignore[attr-defined]
        plain = [_store(target, ast.Call(_name(layer), [_name(x)], [])), copy.deepcopy(body[at + 1])]
        count = 2
        third = self._third(body, at + 1, user)
        if third is not None and not activation.startswith("."):
            function = f"_rocpy_function_{at}"
            rest = _call(
                "mlp", third.func, _name(function), _name(layer), _name(x), *user.args[1:], keywords=user.keywords
            )
            step = ast.Call(_name(function), [ast.Call(_name(layer), [_name(x)], []), *user.args[1:]], user.keywords)
            last = copy.deepcopy(body[at + 2])
            fused: list[ast.stmt] = [
                _store(function, user.func),
                ast.If(
                    _call("is_quiet_activation", _name(function), *user.args[1:], keywords=user.keywords),
                    [_replaced(body[at + 2], third, rest)],
                    [_store(_assigned(body[at + 1]) or "", step), last],
                ),
            ]
            plain.append(copy.deepcopy(body[at + 2]))
            count = 3
        else:
            nested = self._nested_second(body[at + 1], user)
            if nested is not None and not activation.startswith("."):
                new = _call(
                    "mlp", nested.func, user.func, _name(layer), _name(x), *user.args[1:], keywords=user.keywords
                )
                fused = [_replaced(body[at + 1], nested, new)]
            else:
                fused = [_replaced(body[at + 1], user, self._helper(user, activation, _name(layer), _name(x)))]
        return [*before, ast.If(_call("is_quiet_layer", _name(layer), _name(x)), fused, plain)], count

    @staticmethod
    def _is_call_with(call: ast.Call, name: str) -> bool:
        call_parts = _call_of(call)
        return call_parts is not None and isinstance(call_parts[1], ast.Name) and call_parts[1].id == name

    def _third(self, body: list[ast.stmt], at: int, user: ast.Call) -> ast.Call | None:
        """Return the call of a second layer, by the statement behind one that is the activation's call."""
        target = _assigned(body[at])
        if target is None or body[at].value is not user or not _is_read_once(body, at):  # type: ignore[attr-defined]
            return None
        return next(
            (
                call
                for call in _first_evaluated(_value_of(body[at + 1]))
                if self._is_call_with(call, target) and self._is_second(call)
            ),
            None,
        )

    def _nested_second(self, statement: ast.stmt, user: ast.Call) -> ast.Call | None:
        """Return the call of a second layer around the activation's."""
        for call in _first_evaluated(_value_of(statement)):
            if len(call.args) == 1 and call.args[0] is user and self._is_second(call):
                return call
        return None

    def _is_second(self, call: ast.Call) -> bool:
        call_parts = _layer_call(call, self.this)
        return call_parts is not None and call_parts[0] in self.seconds


def _value_of(statement: ast.stmt) -> ast.AST:
    return getattr(statement, "value", None) or ast.Constant(None)


def _replaced(statement: ast.stmt, old: ast.AST, new: ast.expr) -> ast.stmt:
    """Return a copy of a statement with one expression exchanged; locations stay those of the original."""

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if getattr(node, "_rocpy_marked", False):
                return ast.copy_location(new, node)
            return self.generic_visit(node)

    old._rocpy_marked = True  # type: ignore[attr-defined]
    copied = copy.deepcopy(statement)
    del old._rocpy_marked  # type: ignore[attr-defined]
    changed: ast.stmt = Exchange().visit(copied)
    return changed
