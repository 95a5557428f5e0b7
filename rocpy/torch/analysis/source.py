# SPDX-License-Identifier: MIT
"""The syntax of a Python function, from source that compiles to the very code that runs; and new code in its place."""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import inspect
from collections.abc import Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any

__all__ = ["Unread", "compile_as", "describe", "syntax_of"]

_MISSING = object()


class Unread(Exception):  # noqa: N818  (an answer, not an error)
    """Why the syntax of a function is not known."""


def syntax_of(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax of a function, without its decorators, at the lines of its file; not to be changed.

    The source is believed only where compiling it gives the function's own code: a file that was edited since, a
    function that was made or rewritten by a program, and a wrapper are not read as something else.

    Raises
    ------
    Unread
        With the reason.
    """
    return _syntax_of(function.__code__)


@functools.lru_cache(maxsize=4096)
def _syntax_of(code: CodeType) -> ast.FunctionDef:
    try:
        # The whole file: how a call is compiled depends on what the module imports.
        lines, _ = inspect.findsource(code)
        tree, compiled = _compiled("".join(lines), code.co_filename)
    except (OSError, SyntaxError, TypeError, IndexError, ValueError, RecursionError):
        raise Unread("its source cannot be read") from None
    node = next((node for node in ast.walk(tree) if _begins_at(node, code)), None)
    if not isinstance(node, ast.FunctionDef):
        raise Unread("it is not a plain function")
    if code.co_freevars:
        raise Unread(f"it reads {', '.join(code.co_freevars)} of the function or class around it")
    if not any(_same(other, code) for other in _codes(compiled)):
        raise Unread("its source is not the code that runs")
    return _bare(copy.deepcopy(node))


@functools.lru_cache(maxsize=4)
def _compiled(source: str, file: str) -> tuple[ast.Module, CodeType]:
    tree = ast.parse(source)
    return tree, compile(source, file, "exec", dont_inherit=True)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _begins_at(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        return False
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return first == code.co_firstlineno


def _bare(node: ast.FunctionDef) -> ast.FunctionDef:
    """Return a definition without what is evaluated where it stands: decorators, defaults and annotations."""
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    # Defaults are the function object's; so many stand here that the syntax is one.
    nothing = ast.copy_location(ast.Constant(None), node)
    arguments.defaults = [nothing for _ in arguments.defaults]
    arguments.kw_defaults = [None if value is None else nothing for value in arguments.kw_defaults]
    node.decorator_list = []
    node.returns = None
    return node


def _compile(definition: ast.FunctionDef, code: CodeType, names: Sequence[str]) -> CodeType:
    """Return a definition's code, in which ``names`` belong to a function around it."""
    inner: Any = definition
    if names:
        around = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
        inner = ast.FunctionDef("around", around, [definition], [], None, None)
        if "type_params" in ast.FunctionDef._fields:
            inner.type_params = []
        ast.fix_missing_locations(ast.copy_location(inner, definition))
    flags = code.co_flags & __future__.annotations.compiler_flag
    compiled = compile(ast.Module([inner], []), code.co_filename, "exec", flags=flags, dont_inherit=True)
    for _ in range(2 if names else 1):
        compiled = next(constant for constant in compiled.co_consts if isinstance(constant, CodeType))
    return compiled


_FIELDS = (
    "co_code", "co_names", "co_varnames", "co_cellvars", "co_freevars", "co_argcount", "co_posonlyargcount",
    "co_kwonlyargcount", "co_exceptiontable", "co_firstlineno", "co_qualname",
)  # fmt: skip


def _same(one: CodeType, other: CodeType) -> bool:
    if any(getattr(one, name, None) != getattr(other, name, None) for name in _FIELDS):
        return False
    if (one.co_flags ^ other.co_flags) & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR):
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    for a, b in zip(one.co_consts, other.co_consts, strict=True):
        if isinstance(a, CodeType) and isinstance(b, CodeType):
            if not _same(a, b):
                return False
        elif (type(a), repr(a)) != (type(b), repr(b)):
            return False
    return True


def compile_as(function: FunctionType, definition: ast.FunctionDef, helpers: dict[str, Any]) -> FunctionType:
    """Return a function like another one of new syntax: of its module, name and defaults.

    Parameters
    ----------
    function
        The original.
    definition
        The syntax.
    helpers
        What its syntax calls by names of their own.
    """
    code = _compile(ast.fix_missing_locations(definition), function.__code__, list(helpers))
    cells = tuple(CellType(helpers[name]) for name in code.co_freevars)
    function_copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, cells)
    function_copy.__kwdefaults__ = function.__kwdefaults__
    function_copy.__qualname__ = function.__qualname__
    return function_copy


def describe(node: ast.AST, function: FunctionType) -> str:
    """Return where a piece of a function's syntax stands and its first line."""
    text = ast.unparse(node).splitlines()[0]
    text = text if len(text) <= 60 else text[:57] + "..."
    file = function.__code__.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"line {getattr(node, 'lineno', '?')} of {file}, `{text}`"


def links(node: ast.expr) -> Iterator[str]:
    """Yield the names of ``a.b.c`` from the first; nothing for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id
        yield from reversed(names)
