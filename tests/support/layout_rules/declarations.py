# SPDX-License-Identifier: MIT
"""Rules of the C and C++ declarations that Cython reads: each is written down once."""

import re
from collections.abc import Iterator

from layout_rules.tree import Tree, matching, rule

EXTERN = re.compile(r"^cdef extern from\b")
# A type, then perhaps the name that C has for it; a function pointer's type has its name in brackets of its own.
TYPE = re.compile(r"(?:cdef |ctypedef )?(?:cppclass|struct|union|enum(?: class)?) (\w+)")
POINTER_TYPE = re.compile(r"ctypedef .*\(\*(\w+)\)\s*\(")
OTHER = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:\(|$)")
FOREIGN_NAME = re.compile(r'"(?:\w+::)*(\w+)"')


def declared(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name in C) of what the extern blocks of a Cython file declare, without the members of types."""
    inside = verbatim = anonymous = False
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("#")[0].rstrip() if not verbatim else line
        if not verbatim and code and not code[0].isspace():
            inside, anonymous = bool(EXTERN.match(code)), False
            continue
        if '"""' in line:
            verbatim = not verbatim
            continue
        if not inside or verbatim or not code or code.strip() in ("pass", ")"):
            continue
        indent = len(code) - len(code.lstrip())
        if indent == 4:
            anonymous = code.strip().removeprefix("cdef ") == "enum:"
            if not anonymous:
                yield number, name_of(code.strip())
        elif anonymous:
            yield number, code.split("=")[0].strip()


def name_of(declaration: str) -> str:
    """Return the name that a declaration has in C, without its namespace."""
    if match := FOREIGN_NAME.search(declaration):
        return match[1]
    match = TYPE.match(declaration) or POINTER_TYPE.match(declaration) or OTHER.search(declaration)
    return match[1] if match else declaration


@rule(
    {
        "rocpy/runtime/bad.pyx": 'cdef extern from "table.hpp" nogil:\n    struct Bad:\n        int x\n',
        "rocpy/runtime/worse.pyx": 'cdef extern from "table.hpp":\n    cppclass Bad:\n        int y\n    void good()\n',
    },
    {
        "rocpy/runtime/bad.pxd": 'cdef extern from "bad.hpp":\n    enum:\n        bad_one\n        bad_two\n',
        "rocpy/runtime/bad.pyx": 'cdef extern from "bad.hpp":\n    const int bad_two\n',
    },
    {
        "rocpy/runtime/bad.pxd": 'cdef extern from "bad.hpp":\n    int bad(int a,\n            int c) except +\n',
        "rocpy/runtime/worse.pxd": 'cdef extern from *:\n    """\n    int b();\n    """\n    int b "ns::bad"(int a)\n',
    },
)
def c_is_declared_once(tree: Tree) -> Iterator[str]:
    """A C or C++ type, function or variable is declared to Cython in one file; the others cimport it from there."""
    files: dict[str, dict[str, int]] = {}
    for path, text in matching(tree, "rocpy/", suffixes=(".pyx", ".pxd")):
        for number, name in declared(text):
            files.setdefault(name, {}).setdefault(path, number)
    for name, lines in files.items():
        first, *others = sorted(lines, key=lambda path: ("/bad" not in path, path))
        for path in others:
            yield f"{first}:{lines[first]}: {name} is declared in {path} too"
