# SPDX-License-Identifier: MIT
"""Rules of the structure: no import circle, small folders, short functions with few parameters, types told by class."""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from layout_rules.exceptions import CIRCLES, LARGE_FOLDERS, LONG_FUNCTIONS, LONG_SIGNATURES, NAMED_TYPES
from layout_rules.python_layers import imports, lines_for_type_checkers, sources
from layout_rules.tree import Tree, matching, rule

MAXIMUM_FILES = 20
MAXIMUM_LINES = 80
MAXIMUM_PARAMETERS = 8
CYTHON_FUNCTION = re.compile(r"^([ \t]*)(?:cdef|cpdef|def)\b(?! +class\b)[^=\n]*?\b(\w+)\s*\(", re.MULTILINE)
# Functions whose parameters are those of a C function, or of a protocol that another package sets.
FOREIGN_SIGNATURES = re.compile(r"^(?:hip|hiprtc|hipblas|hipblaslt|nccl|rccl)[A-Z]\w*$")


def module_of(path: str) -> str:
    """Return the dotted name of a file's module."""
    return path.rsplit(".", 1)[0].replace("/", ".").removesuffix(".__init__")


def import_graph(tree: Tree) -> dict[str, set[str]]:
    """Return which modules of the packages each imports: at its top, late, for types alone, or by cimport.

    What `rocpy` tells type checkers of its packages, which are attributes of it, is no import.
    """
    both = (*sources(tree), *matching(tree, "rocpy_torch_backend/", suffixes=(".py",)))
    files = [(path, text) for path, text in both if not path.endswith(".pyi")]
    graph: dict[str, set[str]] = {module_of(path): set() for path, _ in files}
    for path, text in files:
        here = module_of(path)
        declared = lines_for_type_checkers(text) if here == "rocpy" else set()
        for line, name in imports(path, text):
            if line in declared:
                continue
            target = name if name in graph else name.rpartition(".")[0]
            if target in graph and target != here:
                graph[here].add(target)
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                components.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(components, key=len, reverse=True)


def file_of(tree: Tree, module: str) -> str:
    """Return the file that a module is written in."""
    base = module.replace(".", "/")
    return next(path for path in (f"{base}.py", f"{base}.pyx", f"{base}.pxd", f"{base}/__init__.py") if path in tree)


@rule(
    {
        "rocpy/runtime/bad.py": "def late():\n    from rocpy.runtime import worse\n",
        "rocpy/runtime/worse.pyx": "from rocpy.runtime.bad cimport late\n",
    },
    {
        "rocpy/runtime/bad.py": "if TYPE_CHECKING:\n    from rocpy.runtime.worse import x\n",
        "rocpy/runtime/worse.py": "from . import bad\n",
    },
    {
        "rocpy/runtime/bad.py": "from rocpy_torch_backend import when_imported\n",
        "rocpy_torch_backend/__init__.py": "def late():\n    from rocpy.runtime import bad\n",
    },
)
def modules_import_no_circle(tree: Tree) -> Iterator[str]:
    """No modules import each other, not even late, by cimport or for types alone; a late import is for speed."""
    for component in circles(import_graph(tree)):
        if not set(component) <= CIRCLES:
            names = " ".join(name.removeprefix("rocpy.") for name in component)
            yield f"{file_of(tree, component[0])}: in a circle of {len(component)}: {names}"


@rule(
    {f"rocpy/runtime/bad{i}.py": "" for i in range(21)},
    {f"csrc/platforms/host/os/bad{i}.cpp": "" for i in range(21)},
    {f"tests/unit/bad{i}.py": "" for i in range(21)},
    {f"tools/tables/bad{i}.py": "" for i in range(21)},
    {f"benchmarks/cpp/bad{i}.cpp": "" for i in range(21)},
)
def folders_are_small(tree: Tree) -> Iterator[str]:
    """A folder of more than 20 source files holds several ideas; a Cython module with its declarations counts once."""
    members: dict[str, dict[str, str]] = {}
    for path, _ in matching(tree, suffixes=SOURCES):
        if path.startswith("csrc/third_party/") or path.endswith("/__init__.py"):
            continue
        pure = PurePosixPath(path)
        name = pure.stem if pure.suffix in CYTHON else pure.name
        members.setdefault(str(pure.parent), {}).setdefault(name, path)
    for folder, names in members.items():
        if len(names) > MAXIMUM_FILES and folder not in LARGE_FOLDERS:
            first = min(names.values(), key=lambda path: ("/bad" not in path, path))
            yield f"{first}: {folder} has {len(names)} source files, more than {MAXIMUM_FILES}"


CYTHON = (".py", ".pyx", ".pxd", ".pyi")
SOURCES = (*CYTHON, ".c", ".cpp", ".h", ".hpp", ".def", ".inc", ".S", ".sh")


def python_functions(text: str) -> Iterator[tuple[str, int, int, list[str]]]:
    """Yield (name, line, number of lines, positional parameters) of each function of a .py file."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1, names


def cython_functions(text: str) -> Iterator[tuple[str, int, int, list[str]]]:
    """Yield the same of a .pyx file, read by its indentation."""
    lines = text.splitlines()
    for match in CYTHON_FUNCTION.finditer(text):
        end = closing(text, match.end() - 1)
        if end is None or not re.match(r"[^\n]*:\s*(#.*)?$", text[end + 1 :].split("\n", maxsplit=1)[0]):
            continue  # a declaration, or a call
        names = []
        for each in split_parameters(text[match.end() : end]):
            if each.startswith("*"):
                break
            names.append(each.split("=")[0].split()[-1] if each.split("=")[0].split() else each)
        first = text.count("\n", 0, match.start(2)) + 1
        body = text.count("\n", 0, end) + 1
        last = body
        indent = len(match[1].expandtabs())
        for number in range(body, len(lines)):
            line = lines[number]
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            last = number + 1 if line.strip() else last
        yield match[2], first, last - first + 1, [name for name in names if name != "/"]


def closing(text: str, start: int) -> int | None:
    """Return where the bracket at ``start`` is closed."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return None


def split_parameters(text: str) -> list[str]:
    """Return the parameters of a signature."""
    parts, depth = [""], 0
    for letter in re.sub(r"#[^\n]*", "", text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def functions(tree: Tree) -> Iterator[tuple[str, str, int, int, list[str]]]:
    """Yield (file, name, line, number of lines, positional parameters) of the package's functions."""
    for path, text in sources(tree):
        if path.endswith((".py", ".pyx")):
            for function in functions_of(path, text):
                yield path, *function


@functools.cache
def functions_of(path: str, text: str) -> tuple[tuple[str, int, int, list[str]], ...]:
    """Return the functions of one file."""
    return tuple((python_functions if path.endswith(".py") else cython_functions)(text))


@rule(
    {"rocpy/runtime/bad.py": "def long():\n" + "    x = 1\n" * 80},
    {"rocpy/runtime/bad.pyx": "cdef int long(int x) except -1:\n" + "    x = 1\n" * 80},
)
def functions_are_short(tree: Tree) -> Iterator[str]:
    """A function of more than 80 lines, its docstring apart, decides more than one thing."""
    for path, name, line, count, _ in functions(tree):
        code = count - docstring_lines(tree[path].splitlines()[line - 1 : line - 1 + count])
        if code > MAXIMUM_LINES and f"{path}:{name}" not in LONG_FUNCTIONS:
            yield f"{path}:{line}: {name} has {code} lines, more than {MAXIMUM_LINES}"


def docstring_lines(lines: list[str]) -> int:
    """Return how many lines of a function are its docstring."""
    quotes = [number for number, line in enumerate(lines) if '"""' in line]
    if not quotes or not lines[quotes[0]].lstrip().startswith(('"""', 'r"""')):
        return 0
    first = quotes[0]
    return 1 if lines[first].count('"""') == 2 else next((n for n in quotes if n > first), first) - first + 1


@rule(
    {"rocpy/runtime/bad.py": "def many(a, b, c, d, e, f, g, h, i):\n    pass\n"},
    {"rocpy/runtime/bad.pyx": "cdef many(int a, b, c,\n          d, e, f, g, h, object i):\n    pass\n"},
)
def signatures_are_short(tree: Tree) -> Iterator[str]:
    """A function takes no more than 8 positional parameters, self apart; more belong together in a class."""
    for path, name, line, _, names in functions(tree):
        count = len([each for each in names if each not in ("self", "cls", "ctx")])
        if (
            count > MAXIMUM_PARAMETERS
            and not FOREIGN_SIGNATURES.match(name)
            and f"{path}:{name}" not in LONG_SIGNATURES
        ):
            yield f"{path}:{line}: {name} takes {count} positional parameters, more than {MAXIMUM_PARAMETERS}"


TYPE_NAME = re.compile(r"__(?:qual)?name__\s*(?:[!=]=|(?:not )?in\b)|(?:[!=]=|\bin )\s*[\w.()\[\]]*__(?:qual)?name__")


@rule(
    {"rocpy/runtime/bad.py": "def f(x):\n    return type(x).__name__ == 'Weight'\n"},
    {"rocpy/runtime/bad.pyx": "if 'Weight' == x.__class__.__name__:\n    pass\n"},
    {"rocpy/runtime/bad.py": "def f(x):\n    return type(x).__qualname__ in ('A', 'B')\n"},
)
def types_are_told_by_class(tree: Tree) -> Iterator[str]:
    """A type is recognised by its class or a protocol, not by the text of its name."""
    for path, text in sources(tree):
        for number, line in enumerate(text.splitlines(), 1):
            if TYPE_NAME.search(line.split("#")[0]) and "__main__" not in line and path not in NAMED_TYPES:
                yield f"{path}:{number}: tests a type by its name: {line.strip()}"


# Tuples that were told apart by their length, and read by position, before they were classes.
LENGTH = r"\blen\([\w.]*(?:scales|runs?)\)"
BY_NUMBER = re.compile(rf"{LENGTH}\s*(?:[=!]=|[<>]=?|(?:not )?in\b)|(?:[=!]=|[<>]=?)\s*{LENGTH}")
BY_POSITION = re.compile(r"\bscales\[-?[\d:]")


@rule(
    {"rocpy/runtime/bad.pyx": "if scales is None or len(scales) == 5:\n    pass\n"},
    {"rocpy/runtime/bad.py": "def f(call):\n    return 'packed' if 4 == len(call.run) else ''\n"},
    {"rocpy/runtime/bad.py": "def f(scales):\n    return scales[4]\n"},
    {"rocpy/runtime/bad.pyx": "more = scales[5:]\n"},
)
def scales_and_runs_are_told_by_class(tree: Tree) -> Iterator[str]:
    """The scales of a call and the runs of its groups are classes, read by name; their number tells nothing."""
    for path, text in sources(tree):
        for number, line in enumerate(text.splitlines(), 1) if path.endswith((".py", ".pyx")) else ():
            code = line.split("#")[0]
            if BY_NUMBER.search(code) or BY_POSITION.search(code):
                yield f"{path}:{number}: tells scales or runs by number or position: {line.strip()}"


# Each list of exceptions, and the rule that it is of.
OF_LIST = {
    "CIRCLES": modules_import_no_circle,
    "LARGE_FOLDERS": folders_are_small,
    "LONG_FUNCTIONS": functions_are_short,
    "LONG_SIGNATURES": signatures_are_short,
    "NAMED_TYPES": types_are_told_by_class,
}
