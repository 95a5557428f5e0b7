# SPDX-License-Identifier: MIT
"""Rules of C and C++ functions: none is long, none takes many parameters. Their text is read by its braces."""

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from layout_rules.structure import MAXIMUM_LINES, MAXIMUM_PARAMETERS
from layout_rules.tree import Tree, matching, rule

SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".inc")
FOLDERS = ("csrc/", "rocpy/", "tests/", "benchmarks/", "tools/", "examples/")
NOT_CODE = re.compile(
    r'R"(?P<mark>[^()\s\\]*)\([\s\S]*?\)(?P=mark)"'  # a raw string
    r'|"(?:[^"\\\n]|\\[\s\S])*"'
    r"|(?<![\da-fA-F])'(?:[^'\\\n]|\\.)+'"  # no separator of digits
    r"|//[^\n]*|/\*[\s\S]*?\*/"
)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:[^\n\\]|\\[\s\S])*", re.MULTILINE)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b|\bextern\s*$")
TEMPLATE = re.compile(r"\s*template\s*<")
# A function whose parameters AMD has chosen: a row, or a C++ function by its symbol.
ROW = re.compile(r"^ROCPY_\w+\(\s*\w+\s*,\s*[^,]+,\s*(\w+)\s*,\s*\(|^ROCPY_SYMBOL\((\w+)", re.MULTILINE)
OPENING, CLOSING = "([{", ")]}"


def code_of(text: str) -> str:
    """Return the text with comments, strings, directives and all branches of an #if but the first made blank."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    text = NOT_CODE.sub(blank, text)
    parts, end, skipped = [], 0, 0
    depth = 0  # of the #ifs inside a branch that is left out
    for match in DIRECTIVE.finditer(text):
        between = text[end : match.start()]
        parts += [re.sub(r"[^\n]", " ", between) if skipped else between, blank(match)]
        end = match.end()
        word = match[1]
        if skipped:
            depth += word.startswith("if")
            if word == "endif":
                skipped = depth > 0
                depth -= depth > 0
        else:
            skipped = word in ("else", "elif")
    return "".join([*parts, text[end:]])


def matching_bracket(code: str, start: int) -> int:
    """Return where the bracket at ``start`` is closed; the end of the text where it is not."""
    depth = 0
    for position in range(start, len(code)):
        if code[position] in OPENING:
            depth += 1
        elif code[position] in CLOSING:
            depth -= 1
            if depth == 0:
                return position
    return len(code)


def matching_angle(code: str, start: int) -> int:
    """Return where the `<` at ``start`` is closed."""
    depth, position = 0, start
    while position < len(code):
        letter = code[position]
        if letter in OPENING:
            position = matching_bracket(code, position)
        elif letter == "<":
            depth += 1
        elif letter == ">" and code[position - 1] != "-":
            depth -= 1
            if depth == 0:
                break
        position += 1
    return position


class Function(NamedTuple):
    """A function of a C or C++ file: where its text begins, how long it is and what it takes."""

    name: str
    line: int
    lines: int
    parameters: int


def native_functions(text: str) -> Iterator[Function]:
    """Yield the functions that a C or C++ file defines; a lambda's lines are those of the function around it."""
    code = code_of(text)
    position = head = 0
    while position < len(code):
        letter = code[position]
        if letter in ";}":
            head = position + 1
        elif letter in "([":
            position = matching_bracket(code, position)
        elif letter == "{":
            kind = brace_kind(code[head:position])
            if kind == "scope":
                head = position + 1
            else:
                end = matching_bracket(code, position)
                if kind == "function":
                    yield described(code, head, position, end)
                    head = end + 1
                position = end
        position += 1


def brace_kind(head: str) -> str:
    """Return what a brace after this text opens: a "scope" of declarations, a "function", or a "value"."""
    head = without_template(head)
    signature = parameters_of(head)
    flat = flattened(head)
    if "=" in flat.replace("operator", "") and not re.search(r"\boperator\b", head):
        return "value"
    if signature is None:
        return "scope" if SCOPE.search(flat) or not flat.strip() else "value"
    if SCOPE.match(flat.strip()) and not re.search(r"[\w>]\s*[&*]*\s+[&*]*\w+\s*\(\)", flat):
        return "scope"  # as of `struct alignas(64) Name {`
    tail = flat[signature[1] + 1 :]
    if re.search(r"(?<!:):(?!:)", tail) and re.search(r"[\w>]\s*$", tail):
        return "value"  # of a member that a constructor initialises
    return "function"


def flattened(head: str) -> str:
    """Return the text with what stands in brackets made blank, brackets left."""
    letters, position = list(head), 0
    while position < len(head):
        if head[position] in OPENING:
            end = matching_bracket(head, position)
            letters[position + 1 : end] = " " * (end - position - 1)
            position = end
        position += 1
    return "".join(letters)


def without_template(head: str) -> str:
    """Return the text with `template <...>` made blank."""
    while match := TEMPLATE.match(head):
        end = matching_angle(head, match.end() - 1)
        head = " " * (end + 1) + head[end + 1 :]
    return head


def parameters_of(head: str) -> tuple[int, int] | None:
    """Return where a function's parameters begin and end: the first brackets after a name that is no specifier."""
    flat = flattened(head)
    for match in re.finditer(r"(\boperator\s*\(\s*\)|\boperator\b[^\w(]+|[\w~]+(?:\s*<[^;{}()]*>)?)\s*\(", flat):
        word = match[1].split("<")[0].strip()
        if word not in ("alignas", "decltype", "noexcept", "__attribute__", "__declspec", "sizeof"):
            start = match.end() - 1
            return start, matching_bracket(flat, start)
    return None


def described(code: str, head: int, body: int, end: int) -> Function:
    """Return the function whose text begins at ``head``, with a body from one brace to the other."""
    text = without_template(code[head:body])
    signature = parameters_of(text)
    assert signature is not None
    before = text[: signature[0]].rstrip()
    name = re.search(r"(operator\b\s*(?:\(\s*\)|[^\w(]+|\w+)|~?\w+)(?:\s*<[^()]*>)?$", before)
    first = head + len(text) - len(text.lstrip())
    lines = code.count("\n", first, end) + 1
    parameters = text[signature[0] + 1 : signature[1]]
    return Function(name[1] if name else before, code.count("\n", 0, first) + 1, lines, count_parameters(parameters))


def count_parameters(text: str) -> int:
    """Return how many parameters a signature has."""
    if text.strip() in ("", "void"):
        return 0
    count, position = 1, 0
    while position < len(text):
        if text[position] in OPENING:
            position = matching_bracket(text, position)
        elif text[position] == "<":
            position = matching_angle(text, position)
        elif text[position] == ",":
            count += 1
        position += 1
    return count


@functools.cache
def functions_of(text: str) -> tuple[Function, ...]:
    """Return the functions of one file's text."""
    return tuple(native_functions(text))


def functions(tree: Tree) -> Iterator[tuple[str, Function]]:
    """Yield file and function of the tree's C and C++."""
    for path, text in matching(tree, *FOLDERS, suffixes=SUFFIXES):
        for function in functions_of(text):
            yield path, function


LONG_BODY = "  x = 1;\n" * 80


@rule(
    {"csrc/core/platform/bad.cpp": "template <class T>\nint long_one(T x) {\n" + LONG_BODY + "}\n"},
    {"csrc/device/bad.h": "struct Bad : Base {\n  int long_one() const noexcept {\n" + LONG_BODY + "  }\n};\n"},
    {"tests/cpp/bad.cpp": "Bad::Bad(int x) : x_{x}, y_(x) {\n" + LONG_BODY + "}\n"},
    {"rocpy/runtime/bad.cpp": 'const char *brace = "}";\nvoid long_one() {\n  f("}");\n' + LONG_BODY + "}\n"},
)
def native_functions_are_short(tree: Tree) -> Iterator[str]:
    """A C or C++ function of more than 80 lines decides more than one thing, or is a table."""
    for path, function in functions(tree):
        if function.lines > MAXIMUM_LINES:
            yield f"{path}:{function.line}: {function.name} has {function.lines} lines, more than {MAXIMUM_LINES}"


@rule(
    {"csrc/core/platform/bad.cpp": "void many(int a, int b, int c, int d, int e, int f, int g, int h, int i) {}\n"},
    {
        "csrc/device/bad.h": "struct Bad {\n  template <class T, class U>\n"
        "  auto many(T a, U b, int (&c)[2], void (*d)(int, int), Pair<T, U> e, int f, int g, int h, int i) {}\n};\n"
    },
)
def native_signatures_are_short(tree: Tree) -> Iterator[str]:
    """A C or C++ function takes no more than 8 parameters, rows apart; more belong together in a struct."""
    tables = [text for _, text in matching(tree, "csrc/", suffixes=(".def",))]
    rows = {row[1] or row[2] for text in tables for row in ROW.finditer(text)}
    for path, function in functions(tree):
        if function.parameters > MAXIMUM_PARAMETERS and function.name.removeprefix("rocpy_host_") not in rows:
            count = function.parameters
            yield f"{path}:{function.line}: {function.name} takes {count} parameters, more than {MAXIMUM_PARAMETERS}"
