# SPDX-License-Identifier: MIT
"""Why a kernel cannot be compiled, said in its own words and with its line: Numba's errors are for who knows Numba."""

from __future__ import annotations

import dis
import re
import types as python_types
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import errors

from rocpy.cooperative.numba.types import MARK, NO_MEMORY

_ALLOCATING = r"zeros|ones|empty|full|arange|linspace|eye|zeros_like|ones_like|empty_like|full_like|copy|concatenate"
_WORDS = {
    "IMPORT_NAME": "import is written in it, which kernels cannot do: import what it needs at the head of the file",
    "STORE_GLOBAL": "it sets a global, which kernels cannot do: write into an array",
    "DELETE_GLOBAL": "it deletes a global, which kernels cannot do",
    "LOAD_BUILD_CLASS": "it defines a class, which kernels cannot do",
}


def _types(text: str) -> str:
    """Return types as users write them: without what is known of values."""
    text = re.sub(r"Literal\[str\]\((.*?)\)", r"the text '\1'", text, flags=re.DOTALL)
    return re.sub(r"Literal\[int\]\((-?\d+)\)", r"int64", text)


def _no_element(found: re.Match[str]) -> str:
    what, given = found[1], _types(found[2]).strip()
    if what == "setitem" and given.startswith("readonly array"):
        return "an array is written to that is read-only: pass one that can be written"
    if what == "setitem" and not given.startswith(("array", "unaligned array")):
        return f"an element is set of what stays as it is, ({given}), as tuples do: use coop.local.array"
    if what == "setitem":
        return (
            f"there is no way to set an element, setitem({given}): an index is an integer, a slice, or a tuple of as "
            "many as the array has dimensions, and the value must fit the elements"
        )
    if what == "getitem" and "Dispatcher(" in given:
        return "a kernel is launched here, which kernels cannot do: call it as a function, or launch it afterwards"
    if what == "getitem":
        return (
            f"there is no element, getitem({given}): an index is an integer, a slice, or a tuple of as many as the "
            "array has dimensions; that of a tuple of different types must be a literal"
        )
    if what == "exception_match":
        return "kernels catch any exception or none: write 'except Exception', not the name of one"
    if what == "bool":
        return f"{given} is neither true nor false: compare an element"
    return f"there is no {what}({given}) in kernels"


def _no_attribute(found: re.Match[str]) -> str:
    name, owner = found[1], found[2].strip()
    module = re.match(r"Module\(<module '([\w.]+)'", owner)
    if name == "_allocate":
        return NO_MEMORY
    if module and not module[1].startswith(("rocpy", "numba", "math", "numpy")):
        own = module[1]
        return f"{own}.{name} is a function of a module, which kernels name by itself: from {own} import {name}"
    return f"{module[1] if module else _types(owner)} has no attribute '{name}' in kernels"


def _no_global(found: re.Match[str]) -> str:
    return (
        f"{found[1]} is of type {found[2].rpartition('.')[2]}, which kernels cannot name: numbers, texts, tuples of "
        "them, numpy arrays (as constants) and functions can be; pass anything else as an argument"
    )


def _bad_call(found: re.Match[str]) -> str:
    return f"a function of {found[1]} is called with other arguments: {found[2]}"


# Texts of Numba's, and what is said in their place.
_SAID: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"Untyped global name '(\w+)':.*?<class '([\w.]+)'>", re.DOTALL), _no_global),
    (
        re.compile(r"reflected list.*? assigned to variable '(\w+)' in globals", re.DOTALL),
        r"\1 is a list, which kernels cannot name: make it a tuple or a numpy array",
    ),
    (
        re.compile(r"Cannot infer the type of variable '(\w+)[.\d]*'.*?(DictType|list|set)\b", re.DOTALL),
        r"\1 is a list, a dict or a set, of which kernels make none: use coop.local.array",
    ),
    (
        re.compile(r"Cannot unify (.*?) and (.*?) for '(\$?\w+)[.\d]*'", re.DOTALL),
        lambda found: (
            f"{'a value' if found[3].startswith('$') else found[3]} is {_types(found[1])} on one way and "
            f"{_types(found[2])} on another: a variable has one type"
        ),
    ),
    (
        re.compile(r"[Vv]ariable '(\w+)[.\d]*' (?:is not defined|referenced before assignment)"),
        r"\1 is used before it has a value",
    ),
    (re.compile(r"Cannot bind .*? to signature '(.*?)' due to \"TypeError: (.*?)\"", re.DOTALL), _bad_call),
    (
        re.compile(r"No type info available for (.*?) as a callable", re.DOTALL),
        lambda found: f"{_types(found[1])} is called, which is no function",
    ),
    (re.compile(r"Unknown attribute '(\w+)' of type (.*)"), _no_attribute),
    (
        re.compile(r"unsupported opcode \((\w+)\)"),
        lambda found: _WORDS.get(found[1], f"it needs what kernels have not ({found[1]})"),
    ),
    (
        re.compile(r"Invalid use of getiter with parameters \((.*?)\)"),
        r"there is nothing to go over in \1: a loop goes over range(...), an array or a tuple",
    ),
    (re.compile(r"No definition for lowering (\S+) = "), r"\1 cannot be set"),
    (re.compile(r"The 'with .*?construct is not supported", re.DOTALL), "'with' cannot be used in kernels"),
    (
        re.compile(r"module '([\w.]+)' has no attribute '(\w+)'"),
        lambda found: (
            f"{'coop' if found[1] == 'rocpy.cooperative' else found[1]} has no '{found[2]}' (module '{found[1]}' has "
            f"no attribute '{found[2]}')"
        ),
    ),
    (re.compile(r"name '(\w+)' is not defined"), r"NameError: name '\1' is not defined"),
    (
        re.compile(r"Encountered unsupported constant type used for exception"),
        "what is raised is no exception: write raise ValueError('...')",
    ),
    (
        re.compile(r"Cannot capture the non-constant value associated with variable '(\w+)'"),
        r"a function inside the kernel uses \1, and is not called at once: pass \1 as an argument",
    ),
)
# Instructions that a reason is about, where Numba names the head of the function, or nothing.
_INSTRUCTIONS = (
    ("a kernel returns nothing", ("RETURN_VALUE", "RETURN_CONST")),
    ("this has a yield", ("YIELD_VALUE",)),
    ("'with' cannot be used", ("BEFORE_WITH", "SETUP_WITH", "LOAD_SPECIAL")),
    ("prints or makes a text", ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING")),
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
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    line = _line_in(text, code.co_filename) or _line_of(error, code.co_filename)
    reason = _reason(error, text, on_device=on_device)
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


def _reason(error: BaseException, text: str, *, on_device: bool) -> str:
    own = re.findall(f"{MARK}(.*?){MARK}", text, re.DOTALL)
    if own:
        return str(own[0])
    if found := _NO_IMPLEMENTATION.search(text):
        if on_device and re.fullmatch(_ALLOCATING, found[2]):
            return NO_MEMORY
        return _no_element(_renamed(found))
    for pattern, said in _SAID:
        if found := pattern.search(text):
            return found.expand(said) if isinstance(said, str) else said(found)
    if not isinstance(error, (errors.NumbaError, TypeError, ValueError, NameError)):
        return f"Numba has no code for what it does ({type(error).__name__}: {text})"
    return _first_sentence(text)


def _renamed(found: re.Match[str]) -> re.Match[str]:
    """Return a match whose groups are the function's name and its arguments."""
    return re.match(r"(\w+)\((.*)\)$", f"{found[2]}({found[3]})", re.DOTALL)  # type: ignore[return-value]


def _first_sentence(text: str) -> str:
    kept: list[str] = []
    for each in map(str.strip, text.splitlines()):
        if each.startswith(("File ", "This error", "During:", "[1]", "Failed in")) or not each:
            if kept:
                break
            continue
        kept.append(each)
    return " ".join(kept) or "its types cannot be found"


def _line_in(text: str, filename: str) -> int | None:
    """Return the line that a text of Numba's names."""
    name = re.escape(filename.rsplit("/", 1)[-1])
    lines = re.findall(rf'File "[^"]*{name}", line (\d+)', text) or re.findall(rf"{name} \((\d+)\)", text)
    return int(lines[-1]) if lines else None


def _line_of(error: BaseException, filename: str) -> int | None:
    """Return the line of what Numba was at when it failed: that of an error's place, or of its frames'."""
    for place in _places(error):
        if getattr(place, "filename", None) == filename and isinstance(getattr(place, "line", None), int):
            return int(place.line)
    return None


def _places(error: BaseException) -> Iterator[Any]:
    yield getattr(error, "loc", None)
    frames = []
    step = error.__traceback__
    while step is not None:
        frames.append(step.tb_frame.f_locals)
        step = step.tb_next
    for held in reversed(frames):
        for name in ("loc", "inst", "expr", "self"):
            found = held.get(name)
            yield found if name == "loc" else getattr(found, "loc", None)


def _line_of_word(reason: str, code: Any) -> int | None:
    """Return the first line of a kernel with a word that the reason quotes."""
    words = set(re.findall(r"'(\w+)'", reason)) | set(re.findall(r"^(\w+) ", reason))
    for each in dis.get_instructions(code):
        if each.argval in words and each.positions is not None and each.positions.lineno is not None:
            return each.positions.lineno
        if isinstance(each.argval, python_types.CodeType) and (found := _line_of_word(reason, each.argval)):
            return found
    return None
