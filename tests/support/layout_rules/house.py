# SPDX-License-Identifier: MIT
"""House rules that hold for every file: length, head, and nothing that belongs to one machine."""

import ast
import re
from collections.abc import Iterator

from layout_rules.python_layers import imports
from layout_rules.tree import Tree, matching, numbered, rule

MAXIMUM_LINES = 500
SOURCES = (
    ".py",
    ".pyi",
    ".pyx",
    ".pxd",
    ".c",
    ".h",
    ".cpp",
    ".hpp",
    ".def",
    ".cmake",
    ".sh",
    "CMakeLists.txt",
    "Makefile",
    ".ci/run",
)
SPDX = "SPDX-License-Identifier: MIT"
# Written in parts, so that these lines do not report themselves.
FOLDERS = ("work", "root", "home", "tmp", "Users", "mnt")
MACHINE_PATH = re.compile(r"(?<![\w.}$)*~-])/(?:" + "|".join(FOLDERS) + r")/[\w$]")
HOSTS = re.compile(
    "|".join(
        [
            "pypi" + r"\.org",
            "python" + r"hosted\.",
            "anaconda" + r"\.(?:org|com)",
            "pytorch" + r"\.org/whl",
            "radeon" + r"\.com",
        ]
    )
)
# Where vendors publish builds for AMD GPUs is what the page on installing is about.
VENDORS = {"docs/install.md": re.compile(r"download\.pytorch" + r"\.org/whl/rocm")}
OUTSIDE = re.compile(r"\.\./" + "shared")
LATER = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")


@rule({"rocpy/long.py": "x = 1\n" * 501}, {"csrc/core/long.cpp": "\n" * 501})
def files_are_short(tree: Tree) -> Iterator[str]:
    """A file of more than 500 lines holds two ideas."""
    for path, text in matching(tree, suffixes=(*SOURCES, ".md")):
        count = text.count("\n")
        if count > MAXIMUM_LINES and path != "CHANGELOG.md":
            yield f"{path}: {count} lines, more than {MAXIMUM_LINES}; it holds two ideas"


@rule(
    {"rocpy/bad.py": '"""Says what it is."""\n'},
    {"rocpy/bad.py": f"# {SPDX}\nimport os\n"},
    {"csrc/core/bad.cpp": f"// {SPDX}\n#include <cstdio>\n"},
    {"rocpy/bad.pyx": f"# {SPDX}\nimport os\n"},
)
def files_say_what_they_are(tree: Tree) -> Iterator[str]:
    """A source file begins with its licence, then one sentence on what it is."""
    for path, text in matching(tree, suffixes=SOURCES):
        if not text.strip():
            yield f"{path}: empty"
            continue
        lines = text.splitlines()
        at = next((i for i, line in enumerate(lines[:3]) if SPDX in line), None)
        if at is None:
            yield f"{path}:1: no '{SPDX}' in the first lines"
        elif not head_sentence(path, lines[at + 1 :]):
            yield f"{path}:{at + 2}: no sentence that says what the file is"


def head_sentence(path: str, lines: list[str]) -> bool:
    """Return whether the first text after the licence is a comment or docstring with words in it."""
    for line in lines:
        text = line.strip()
        if text in {"", "*", "*/", "/*", "#", "#pragma once"} or text.startswith(("#!", "# cython:", "# distutils:")):
            continue
        comment = (
            text.startswith(("#", '"""', 'r"""'))
            if path.endswith((".py", ".pyi", ".pyx", ".pxd", ".cmake", ".sh", ".txt", "Makefile", "run"))
            else (text.startswith(("//", "/*", "*")))
        )
        return comment and len(re.findall(r"[A-Za-z]{2,}", text)) >= 3
    return False


@rule(
    {"docs/bad.md": "see /" + "work/main\n"},
    {"tests/bad.py": 'path = "/' + 'home/someone/x"\n'},
    {"tools/bad.py": 'path = "/' + 'tmp/x"\n'},
)
def no_machine_paths(tree: Tree) -> Iterator[str]:
    """The repository runs anywhere, so it names no folder of one machine."""
    for path, text in matching(tree):
        for number, line in numbered(text):
            if match := MACHINE_PATH.search(line):
                yield f"{path}:{number}: names a folder of one machine ({match[0]}...)"


@rule(
    {"README.md": "pip install --index-url https://pypi" + ".org/simple rocpy\n"},
    {"docs/install.md": "pip install --index-url https://pypi" + ".org/simple rocpy\n"},
    {"docs/getting-started.md": "pip install --index-url https://download.pytorch" + ".org/whl/rocm7.2 torch\n"},
)
def no_registry_hosts(tree: Tree) -> Iterator[str]:
    """Packages are named by plain name: where they come from is the machine's business."""
    for path, text in matching(tree):
        for number, line in numbered(text):
            if path in VENDORS:
                line = VENDORS[path].sub("", line)  # noqa: PLW2901
            if match := HOSTS.search(line):
                yield f"{path}:{number}: names a package registry ({match[0]})"


@rule({"tests/bad.py": 'data = "../' + 'shared/cases.json"\n'})
def nothing_outside_the_tree(tree: Tree) -> Iterator[str]:
    """What the repository needs is in it."""
    for path, text in matching(tree):
        for number, line in numbered(text):
            if OUTSIDE.search(line):
                yield f"{path}:{number}: refers to a folder outside the repository"


@rule({"rocpy/bad.py": "x = 1  # TO" + "DO: later\n"})
def nothing_left_for_later(tree: Tree) -> Iterator[str]:
    """What is missing is an issue, not a comment."""
    for path, text in matching(tree, suffixes=SOURCES):
        for number, line in numbered(text):
            if match := LATER.search(line):
                yield f"{path}:{number}: {match[0]}"


@rule(
    {"tests/unit/test_bad.py": "from conftest import helper\n"},
    {"tests/unit/test_bad.py": "from tests.conftest import helper\n"},
)
def nothing_imports_conftest(tree: Tree) -> Iterator[str]:
    """Helpers that tests share live in modules; conftest.py holds fixtures."""
    for path, text in matching(tree, "tests/", "benchmarks/", suffixes=(".py",)):
        for line, name in imports(path, text):
            if "conftest" in name.split("."):
                yield f"{path}:{line}: imports from conftest"


@rule(
    {"rocpy/bad.py": "def f(x):\n    assert x > 0, 'x must be positive'\n"},
    {"rocpy/bad.pyx": "def f(x):\n    assert x > 0\n"},
)
def users_mistakes_are_not_asserted(tree: Tree) -> Iterator[str]:
    """An assert vanishes under -O: a user's mistake raises a typed error."""
    for path, text in matching(tree, "rocpy/", suffixes=(".py", ".pyx")):
        for number, line in numbered(text):
            # `assert x is not None` tells the type checker what the lines above made sure of.
            if re.match(r"\s*assert\b(?!( (?:and )?[\w.]+ is not None)+$)", line.split("#")[0].rstrip()):
                yield f"{path}:{number}: assert; raise a typed error that names the operand"


@rule({"rocpy/rccl/__init__.py": "from rocpy.rccl.group import group\n", "rocpy/rccl/group.py": ""})
def no_module_bears_a_public_name(tree: Tree) -> Iterator[str]:
    """`rocpy.x` must not be a module at one moment and a function at another."""
    for path, text in matching(tree, "rocpy/", suffixes=("/__init__.py",)):
        package = path.removesuffix("/__init__.py")
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                name = alias.asname or alias.name
                module = (node.module or "").replace(".", "/")
                taken = [f"{package}/{name}{suffix}" for suffix in (".py", ".pyx", "/__init__.py")]
                if module != package and any(candidate in tree for candidate in taken):
                    yield f"{path}:{node.lineno}: {name} is also a module of {package}"
