# SPDX-License-Identifier: MIT
"""Rules of the Python layers: who imports whom, where optional packages are imported, who reads the environment."""

import ast
import functools
import re
from collections.abc import Iterator

from layout_rules.tree import Tree, matching, rule

# Lowest first. A module may import from its own layer and from those below.
LAYERS = (
    {"_messages"},
    {"errors", "dtypes", "typing", "_import_hook", "_integers", "_interpreter", "_signatures"},
    {"_core"},
    {"_search", "_fp_environment", "_json", "_locks", "_variables"},
    {"_hip_python"},
    {"platform"},
    {"_dlpack"},
    {"runtime"},
    {"_producers"},
    {"_memory_record", "_operand"},
    {"rccl", "cooperative"},
    {"blaslt", "epilogues", "tuning"},  # whose folders have an order of their own: folder_layers.py
    {"torch", "jax", "compat"},
    {"distributed"},
    {"testing"},
    {"cli"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
INDEPENDENT = {"blaslt", "rccl", "cooperative"}
# The package itself gathers the public names, `python -m rocpy` starts the command line, and the hook brings in the
# layer for torch when a tensor needs it.
TOP = {"__init__", "__main__", "_torch_hook"}
# Programs that stand above the library may see all of it by its public name.
SEES_THE_PACKAGE = {"cli", "testing", "torch", "jax", "distributed", "compat"}

OPTIONAL = {
    "torch": re.compile(r"^rocpy/(torch/|distributed/_autograd\.py$|compat/nccl/interop/torch\.py$)"),
    "jax": re.compile(r"^rocpy/jax/"),
    "numba": re.compile(
        r"^rocpy/cooperative/(numba/[\w/]+|cpu/(compile|entry|library)|amdgpu/(target|library_calls|primitives|sort|link|numba_hip))\.py$"
    ),
    "triton": re.compile(r"^rocpy/epilogues/lowering/triton\w*\.py$"),
    "cupy": re.compile(r"^rocpy/compat/nccl/interop/cupy\.py$"),
}
CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.*)|c?import\s+([\w., ]+))")
ENVIRONMENT_READER = "rocpy/platform.py"


def submodule(path: str) -> str:
    """Return the layer that a file belongs to: rocpy/runtime/stream.pyx is in runtime."""
    return path.removeprefix("rocpy/").split("/")[0].split(".")[0]


def absolute(path: str, level: int, module: str) -> str:
    """Return the full name of a relative import's module."""
    package = path.rsplit("/", 1)[0].split("/")
    base = package[: len(package) - level + 1]
    return ".".join([*base, module] if module else base)


@functools.cache  # each rule reads the whole tree again for each planted violation
def imports(path: str, text: str) -> tuple[tuple[int, str], ...]:
    """Return (line, imported name) of each import; `from a import b` gives a.b, since b may be a module."""
    return tuple((python_imports if path.endswith((".py", ".pyi")) else cython_imports)(path, text))


def python_imports(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Read the imports of a .py file, late and dynamic ones included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node.level, node.module or "") if node.level else node.module or ""
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


@functools.cache
def lines_for_type_checkers(text: str) -> set[int]:
    """Return the lines of the blocks under `if TYPE_CHECKING`."""
    return {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }


def cython_imports(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Read the imports and cimports of a .pyx or .pxd file."""
    # A parenthesised list of names spans lines: join it first, keeping the count of lines.
    joined = re.sub(
        r"(c?import\s*)\(([^)]*)\)", lambda m: m[1] + m[2].replace("\n", " ") + "\n" * m[2].count("\n"), text
    )
    for number, line in enumerate(joined.splitlines(), 1):
        match = CYTHON_IMPORT.match(line.split("#")[0])
        if not match:
            continue
        if match[1] is None:
            for name in match[3].split(","):
                if name.strip():
                    yield number, name.split()[0]
            continue
        level = len(match[1]) - len(match[1].lstrip("."))
        module = absolute(path, level, match[1].lstrip(".")) if level else match[1]
        for name in match[2].split(","):
            if name.strip():
                yield number, f"{module}.{name.split()[0]}"


def sources(tree: Tree) -> Iterator[tuple[str, str]]:
    """Yield the Python and Cython files of the package."""
    yield from matching(tree, "rocpy/", suffixes=(".py", ".pyi", ".pyx", ".pxd"))


@rule({"rocpy/novelty/__init__.py": ""})
def every_module_is_in_a_layer(tree: Tree) -> Iterator[str]:
    """A new folder or module of the package takes its place in LAYERS."""
    for path, _ in sources(tree):
        if submodule(path) not in RANK and submodule(path) not in TOP:
            yield f"{path}: {submodule(path)!r} is in no layer; give it one in layout_rules/python_layers.py"


@rule(
    {"rocpy/dtypes.py": "from rocpy._core import status\n"},
    {"rocpy/_dlpack.pyx": "from rocpy.runtime.stream cimport Stream\n"},
    {"rocpy/runtime/device.pyx": "from .. import blaslt\n"},
    {"rocpy/platform.py": "def late():\n    from rocpy import _operand\n"},
    {"rocpy/runtime/bad.pxd": "cimport rocpy._operand\n"},
    {"rocpy/blaslt/bad.py": "import rocpy\n"},
)
def layers_import_downwards(tree: Tree) -> Iterator[str]:
    """Imports go down the layers, never up."""
    for path, text in sources(tree):
        here = submodule(path)
        if here not in RANK:
            continue
        for number, name in imports(path, text):
            parts = name.split(".")
            if parts[0] != "rocpy":
                continue
            target = parts[1] if len(parts) > 1 else ""
            if target in RANK:
                if RANK[target] > RANK[here]:
                    yield f"{path}:{number}: {here} imports {target}, which is above it"
            elif here not in SEES_THE_PACKAGE:
                yield f"{path}:{number}: {here} imports {name} of the package itself; name the module that has it"


@rule({"rocpy/blaslt/bad.py": "from rocpy import rccl\n"}, {"rocpy/rccl/bad.pyx": "from ..cooperative cimport block\n"})
def libraries_are_independent(tree: Tree) -> Iterator[str]:
    """The matrix product, collectives and cooperative primitives do not know each other."""
    for path, text in sources(tree):
        here = submodule(path)
        for number, name in imports(path, text):
            parts = name.split(".")
            if here in INDEPENDENT and parts[0] == "rocpy" and len(parts) > 1 and parts[1] in INDEPENDENT - {here}:
                yield f"{path}:{number}: {here} imports {parts[1]}; the two are independent"


@rule(
    {"rocpy/blaslt/bad.py": "def f():\n    import torch\n"},
    {"rocpy/cli/bad.py": "import importlib\nt = importlib.import_module('torch')\n"},
    {"rocpy/_operand.pyx": "from numba import cuda\n"},
    {"rocpy/runtime/bad.py": "import triton.language as tl\n"},
    {"rocpy/blaslt/bad.py": "if TYPE_CHECKING:\n    import torch\nelse:\n    import torch as t\n"},
)
def optional_packages_stay_in_their_modules(tree: Tree) -> Iterator[str]:
    """Torch, jax, numba and triton are imported by their own layer alone; others look into sys.modules.

    What stands under `if TYPE_CHECKING` is imported by nobody.
    """
    for path, text in sources(tree):
        unseen = lines_for_type_checkers(text) if path.endswith(".py") else set()
        for number, name in imports(path, text):
            if number in unseen:
                continue
            package = name.split(".")[0]
            if package in OPTIONAL and not OPTIONAL[package].match(path):
                yield f"{path}:{number}: imports {package}; take it from sys.modules, where it is if an operand is its"


@rule(
    {"rocpy/tuning.py": "import os\nvalue = os.environ['ROCPY_TUNING_DB']\n"},
    {"rocpy/cli/bad.py": "import os\nvalue = os.getenv('ROCPY_PLATFORM', '')\n"},
    {"rocpy/cli/bad.py": "import os\nfor name in names:\n    os.environ.get(name)\n"},
    {"rocpy/_core.pyx": "import os\nvalue = os.environ.get('ROCPY_PLATFORM')\n"},
)
def one_python_module_reads_our_variables(tree: Tree) -> Iterator[str]:
    """ROCPY_* variables are read in rocpy/platform.py; others may read foreign variables by a literal name."""
    for path, text in sources(tree):
        if path == ENVIRONMENT_READER:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("#")[0]
            if not re.search(r"\bos\.(environb?|getenvb?)\b|\bfrom os import\b.*\b(environ|getenv)", code):
                continue
            key = re.search(
                r"(?:environ\s*\[|environ\.(?:get|pop|setdefault)\(|getenv\()\s*([\"'])(\w+)\1", code
            ) or re.search(r"([\"'])(\w+)\1 (?:not )?in os\.environ", code)
            if key is None:
                yield f"{path}:{number}: reads the environment by no literal name; rocpy/platform.py is the place"
            elif key[2].startswith("ROCPY_"):
                yield f"{path}:{number}: reads {key[2]}; rocpy/platform.py is the place"
