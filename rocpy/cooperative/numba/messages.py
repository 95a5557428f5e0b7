# SPDX-License-Identifier: MIT
"""Why a kernel cannot be compiled, said in its own words and with its line: Numba's errors are for who knows Numba."""

from __future__ import annotations

import dis
import re
import sys
import types as python_types
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import errors
from numba.core.typing import npydecl

from rocpy.cooperative.numba.memory import read_only
from rocpy.cooperative.numba.types import MARK, NO_KEYWORD_ONLY, NO_MEMORY

_ALLOCATING = r"zeros|ones|empty|full|arange|linspace|eye|zeros_like|ones_like|empty_like|full_like|copy|concatenate"
_WORDS = {
    "IMPORT_NAME": "it contains an import, which kernels cannot do: import what it needs at the top of the file",
    "STORE_GLOBAL": "it sets a global, which kernels cannot do: write into an array",
    "DELETE_GLOBAL": "it deletes a global, which kernels cannot do",
    "LOAD_BUILD_CLASS": "it defines a class, which kernels cannot do",
}

_NO_UFUNC = "numpy's functions take no {} in kernels: convert it, as in np.sqrt(np.float32(x))"


def _types(text: str) -> str:
    """Return types as users write them: without what is known of values."""
    text = re.sub(r"Literal\[str\]\((.*?)\)", r"the string '\1'", text, flags=re.DOTALL)
    return re.sub(r"Literal\[int\]\((-?\d+)\)", r"int64", text)


_CHOSEN = "a function is chosen from a tuple, which kernels do by an index that is a literal only: use if and else"


def _is_tuple_of_functions(shown: str) -> bool:
    return re.match(r"(Uni)?Tuple\(.*Dispatcher\(", shown, re.DOTALL) is not None


def _no_element(seen: re.Match[str]) -> str:
    what, shown = seen[1], _types(seen[2]).strip()
    if what == "setitem" and shown.startswith("readonly array"):
        return read_only.MESSAGE
    if what == "setitem" and not shown.startswith(("array", "unaligned array")):
        if "Tuple(" in seen[2].partition(",")[0]:
            return f"an element of an immutable object, ({shown}), is set; tuples are immutable: use coop.local.array"
        return f"an element is set of a value that has none, setitem({shown}): pass an array in its place"
    if what == "setitem":
        return (
            f"an element cannot be set, setitem({shown}): an index is an integer, a slice, or a tuple of as "
            "many as the array has dimensions, and the value must fit the elements"
        )
    if what == "getitem" and _is_tuple_of_functions(shown):
        return _CHOSEN
    if what == "getitem" and "Dispatcher(" in shown:
        return "a kernel is launched here, which kernels cannot do: call it as a function, or launch it afterwards"
    if what == "getitem":
        return (
            f"an element cannot be read, getitem({shown}): an index is an integer, a slice, or a tuple of as many as "
            "the array has dimensions; that of a tuple of different types must be a literal"
        )
    if what == "exception_match":
        return "kernels catch any exception or none: write 'except Exception', not the name of one"
    if what == "bool":
        return f"{shown} is neither true nor false: compare an element"
    return f"there is no {what}({shown}) in kernels"


def _no_attribute(seen: re.Match[str]) -> str:
    name, owner = seen[1], seen[2].strip()
    module = re.match(r"Module\(<module '([\w.]+)'", owner)
    if name == "_allocate":
        return NO_MEMORY
    if module and not module[1].startswith(("rocpy", "numba", "math", "numpy")):
        return _no_member(module[1], name)
    advice = ": a named tuple is a tuple there, whose members have indices" if re.match(r"(Uni)?Tuple\(", owner) else ""
    return f"{module[1] if module else _types(owner)} has no attribute '{name}' in kernels{advice}"


def _no_member(module: str, name: str) -> str:
    shown, value = f"{module}.{name}", getattr(sys.modules.get(module), name, None)
    if value is None or (callable(value) and not isinstance(value, type)):
        return f"{shown} is a function of a module, which kernels refer to by its own name: from {module} import {name}"
    return _no_value(shown, "a class" if isinstance(value, type) else f"of type {type(value).__name__}")


def _no_value(shown: str, kind: str) -> str:
    return (
        f"{shown} is {kind}, which kernels cannot refer to: numbers, strings, tuples of them, numpy arrays (as "
        "constants) and functions can be; pass anything else as an argument"
    )


def _no_global(seen: re.Match[str]) -> str:
    if seen[2] == "function":
        return (
            f"{seen[1]} is a Python function that is not compiled, which only kernels and the Python functions that "
            f"they name can call: decorate {seen[1]} with numba.njit, too"
        )
    return _no_value(seen[1], f"of type {seen[2].rpartition('.')[2]}")


def _bad_call(seen: re.Match[str]) -> str:
    return f"a function of {seen[1]} is called with other arguments: {seen[2]}"


# Texts of Numba's, and what is said in their place.
_SAID: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"Untyped global name '(\w+)':.*?<class '([\w.]+)'>", re.DOTALL), _no_global),
    (
        re.compile(r"reflected list.*? assigned to variable '(\w+)' in globals", re.DOTALL),
        r"\1 is a list, which kernels cannot refer to: make it a tuple or a numpy array",
    ),
    (
        re.compile(r"Cannot infer the type of variable '(\w+)[.\d]*'.*?(DictType|list|set)\b", re.DOTALL),
        r"\1 is a list, a dict or a set, which kernels cannot create: use coop.local.array",
    ),
    (
        re.compile(r"Cannot unify (.*?) and (.*?) for '(\$?\w+)[.\d]*'", re.DOTALL),
        lambda seen: (
            f"{'a value' if seen[3].startswith('$') else seen[3]} is {_types(seen[1])} on one path and "
            f"{_types(seen[2])} on another: a variable must have one type"
        ),
    ),
    (
        re.compile(r"[Vv]ariable '(\w+)[.\d]*' (?:is not defined|referenced before assignment)"),
        r"\1 is used before it has a value",
    ),
    (
        re.compile(r"Unsupported array dtype: (.+)"),
        r"it is an array of \1; kernels take arrays of booleans and numbers in this machine's byte order: cast it",
    ),
    (
        re.compile(r"non-precise type array\(pyobject"),
        "it is an array of Python objects; kernels take arrays of booleans and numbers: cast it",
    ),
    (
        re.compile(r"Int value is too large: -?\d+"),
        "it is an integer beyond 64 bits, which is the most that kernels have: pass a float, or parts of it",
    ),
    (re.compile(r"Cannot bind .*? to signature '(.*?)' due to \"TypeError: (.*?)\"", re.DOTALL), _bad_call),
    (
        re.compile(r"No type info available for (.*?) as a callable", re.DOTALL),
        lambda seen: f"{_types(seen[1])} is called, which is not a function",
    ),
    (re.compile(r"Unknown attribute '(\w+)' of type (.*)"), _no_attribute),
    (
        re.compile(r"unsupported opcode \((\w+)\)"),
        lambda seen: _WORDS.get(seen[1], f"it needs something that kernels do not support ({seen[1]})"),
    ),
    (
        re.compile(r"Invalid use of getiter with parameters \((.*?)\)"),
        lambda seen: (
            _CHOSEN
            if _is_tuple_of_functions(seen[1])
            else f"{seen[1]} cannot be iterated over: loop over range(...), an array or a tuple"
        ),
    ),
    (re.compile(r"No definition for lowering (\S+) = "), r"\1 cannot be set"),
    (re.compile(r"The 'with .*?construct is not supported", re.DOTALL), "'with' cannot be used in kernels"),
    (
        re.compile(r"module '([\w.]+)' has no attribute '(\w+)'"),
        lambda seen: (
            f"{'coop' if seen[1] == 'rocpy.cooperative' else seen[1]} has no '{seen[2]}' (module '{seen[1]}' has "
            f"no attribute '{seen[2]}')"
        ),
    ),
    (
        re.compile(r"unsupported type for input operand: (\w+)"),
        lambda seen: _NO_UFUNC.format(seen[1]),
    ),
    (
        re.compile(r"Keyword arguments are not supported"),
        "a function is called with an argument by name that it takes by position only: round(x, 2), not ndigits=2",
    ),
    (
        re.compile(r"op_MAKE_FUNCTION with kwdefaults"),
        f"a nested function has a keyword-only parameter, {NO_KEYWORD_ONLY}",
    ),
    (re.compile(r"name '(\w+)' is not defined"), r"NameError: name '\1' is not defined"),
    (
        re.compile(r"Encountered unsupported constant type used for exception"),
        "what is raised is not an exception: write raise ValueError('...')",
    ),
    (
        re.compile(r"Cannot capture the non-constant value associated with variable '(\w+)'"),
        r"a nested function uses \1 and is not called immediately: pass \1 as an argument",
    ),
)
# Instructions that a reason is about, where Numba names the head of the function, or nothing.
_INSTRUCTIONS = (
    ("a kernel returns nothing", ("RETURN_VALUE", "RETURN_CONST")),
    ("this has a yield", ("YIELD_VALUE",)),
    ("'with' cannot be used", ("BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL")),
    ("prints or creates a string", ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING")),
)
_NO_IMPLEMENTATION = re.compile(
    r"No implementation of function Function\((.*?)\) found for signature:\s*>>> (\w+)\((.*?)\)\s*\n", re.DOTALL
)


def explain(error: BaseException, code: Any, *, on_device: bool = False) -> tuple[str, int | None]:
    """Return why a kernel cannot be compiled, and the line of its file, where that is known.

    Parameters
    ----------
    error
        As compiling raised it.
    code
        Of the kernel.
    on_device
        Whether it was for a GPU, which has less than the CPU.
    """
    text = _plain(error)
    line = _line_in(text, code.co_filename) or _line_of(error, code.co_filename)
    reason = reason_of(error, on_device=on_device)
    return reason, line_of(reason, code) or line or _line_of_word(reason, code)


def line_of(reason: str, code: Any) -> int | None:
    """Return the line of the first instruction that a reason is about, where it is about one.

    Parameters
    ----------
    reason
        Why a kernel cannot be compiled.
    code
        Of the kernel.

    Examples
    --------
    >>> from rocpy.cooperative.numba.messages import line_of
    >>> line_of("a kernel returns nothing, but this returns int64", compile("x = 1", "f", "exec")) is None
    True
    """
    names = next((names for said, names in _INSTRUCTIONS if said in reason), ())
    before: Any = None
    for each in dis.get_instructions(code) if names else ():
        value = before if each.opname == "RETURN_VALUE" else each
        returns_none = value is not None and value.opname in ("LOAD_CONST", "RETURN_CONST") and value.argval is None
        is_print = each.argval == "print" and "prints" in reason
        if is_print or (each.opname in names and not returns_none):
            return None if each.positions is None else each.positions.lineno
        before = each
    return None


def _plain(error: BaseException) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error))


def reason_of(error: BaseException, *, on_device: bool = False) -> str:
    """Return why a function cannot be compiled, on the CPU or for a GPU."""
    text = _plain(error)
    own = re.findall(f"{MARK}(.*?){MARK}", text, re.DOTALL)
    if own:
        return str(own[0])
    if seen := _NO_IMPLEMENTATION.search(text):
        if on_device and re.fullmatch(_ALLOCATING, seen[2]):
            return NO_MEMORY
        if seen[1].startswith("<ufunc") and "bfloat16" in seen[3]:
            return _NO_UFUNC.format("bfloat16")
        return _no_element(_renamed(seen))
    for pattern, said in _SAID:
        if seen := pattern.search(text):
            return seen.expand(said) if isinstance(said, str) else said(seen)
    if changed := _changed_in_place(error):
        return changed
    if not isinstance(error, (errors.NumbaError, TypeError, ValueError, NameError)):
        return f"Numba cannot compile it ({type(error).__name__}: {text})"
    return _first_sentence(text)


def _changed_in_place(error: BaseException) -> str:
    """Return why Numba has no type for ``x += y`` of an array, whose rule then fails; empty for any other error."""
    frame: Any = {}
    step = error.__traceback__
    while step is not None:
        frame, step = step.tb_frame.f_locals, step.tb_next
    if not isinstance(frame.get("self"), npydecl.NumpyRulesInplaceArrayOperator) or "lhs" not in frame:
        return ""
    if not frame["lhs"].mutable:
        return read_only.MESSAGE
    return f"the elements of {frame['lhs']}, changed in place by {frame['rhs']}, do not take the result: write a loop"


def _renamed(seen: re.Match[str]) -> re.Match[str]:
    """Return a match whose groups are the function's name and its arguments."""
    return re.match(r"(\w+)\((.*)\)$", f"{seen[2]}({seen[3]})", re.DOTALL)  # type: ignore[return-value]


def _first_sentence(text: str) -> str:
    own_lines: list[str] = []
    for each in map(str.strip, text.splitlines()):
        if each.startswith(("File ", "This error", "During:", "[1]", "Failed in")) or not each:
            if own_lines:
                break
            continue
        own_lines.append(each)
    return " ".join(own_lines) or "its types cannot be found"


def _line_in(text: str, filename: str) -> int | None:
    """Return the line that a text of Numba's names."""
    name = re.escape(filename.rsplit("/", 1)[-1])
    lines = re.findall(rf'File "[^"]*{name}", line (\d+)', text) or re.findall(rf"{name} \((\d+)\)", text)
    return int(lines[-1]) if lines else None


def _line_of(error: BaseException, filename: str) -> int | None:
    """Return the line of what Numba was at when it failed: that of an error's place, or of its frames'."""
    for location in _locations(error):
        if getattr(location, "filename", None) == filename and isinstance(getattr(location, "line", None), int):
            return int(location.line)
    return None


def _locations(error: BaseException) -> Iterator[Any]:
    yield getattr(error, "loc", None)
    frames = []
    step = error.__traceback__
    while step is not None:
        frames.append(step.tb_frame.f_locals)
        step = step.tb_next
    for held in reversed(frames):
        for name in ("loc", "inst", "expr", "self"):
            seen = held.get(name)
            yield seen if name == "loc" else getattr(seen, "loc", None)


def _line_of_word(reason: str, code: Any) -> int | None:
    """Return the first line of a kernel with a word that the reason quotes."""
    words = set(re.findall(r"'(\w+)'", reason)) | set(re.findall(r"^(\w+) ", reason))
    for each in dis.get_instructions(code):
        if each.argval in words and each.positions is not None and each.positions.lineno is not None:
            return each.positions.lineno
        if isinstance(each.argval, python_types.CodeType) and (seen := _line_of_word(reason, each.argval)):
            return seen
    return None
