# SPDX-License-Identifier: MIT
"""Rules of the modules inside a package: how many a folder holds, and that no imports run in circles."""

from collections.abc import Iterator

from layout_rules.python_layers import imports, sources
from layout_rules.tree import Tree, rule

# Packages whose modules import each other in no circle.
WITHOUT_CIRCLES = ("blaslt", "tuning", "rccl", "distributed", "cooperative")
# Packages whose folders hold one idea each.
IN_FOLDERS = ("blaslt", "tuning", "rccl", "distributed", "cooperative")
MAXIMUM_FILES = 20


@rule({f"rocpy/rccl/model/zeta{i:02}.py": "" for i in reversed(range(MAXIMUM_FILES))})
def folders_are_small(tree: Tree) -> Iterator[str]:
    """A folder of more than 20 source files holds several ideas."""
    files: dict[str, list[str]] = {}
    for path, _ in sources(tree):
        if path.split("/")[1] in IN_FOLDERS:
            files.setdefault(path.rsplit("/", 1)[0], []).append(path)
    for folder, paths in files.items():
        if len(paths) > MAXIMUM_FILES:
            yield f"{max(paths)}: {folder} has {len(paths)} source files, more than {MAXIMUM_FILES}"


@rule(
    {
        "rocpy/rccl/model/bad.py": "def late():\n    from rocpy.rccl.model.worse import name\n",
        "rocpy/rccl/model/worse.py": "if TYPE_CHECKING:\n    from rocpy.rccl.model import bad\n",
    },
    {
        "rocpy/distributed/bad.pyx": "from rocpy.distributed.worse cimport name\n",
        "rocpy/distributed/worse.pxd": "from rocpy.distributed cimport bad\n",
    },
)
def imports_run_in_no_circle(tree: Tree) -> Iterator[str]:
    """No module needs itself by way of others; late imports, cimports and those for types alone count."""
    paths: dict[str, str] = {}
    edges: dict[str, set[str]] = {}
    found = [(path, text) for path, text in sources(tree) if path.split("/")[1] in WITHOUT_CIRCLES]
    for path, _ in found:
        module = path.rsplit(".", 1)[0].removesuffix("/__init__").replace("/", ".")
        paths[module] = min(path, paths.get(module, path))
    for path, text in found:
        module = path.rsplit(".", 1)[0].removesuffix("/__init__").replace("/", ".")
        for _, name in imports(path, text):
            target = name if name in paths else name.rsplit(".", 1)[0]
            if target in paths and target != module:
                edges.setdefault(module, set()).add(target)
    for module in sorted(paths):
        circle = shortest_circle(edges, module)
        if circle and module == min(circle):
            yield f"{paths[module]}: imports itself by way of {', '.join(circle[1:])}"


def shortest_circle(edges: dict[str, set[str]], module: str) -> list[str]:
    """Return the modules of the shortest circle of imports that begins at a module; nothing if there is none."""
    before = dict.fromkeys(edges.get(module, ()), module)
    waiting = list(before)
    for current in waiting:
        if current == module:
            circle = [before[current]]
            while circle[-1] != module:
                circle.append(before[circle[-1]])
            return circle[::-1]
        for target in sorted(edges.get(current, ())):
            if target not in before:
                before[target] = current
                waiting.append(target)
    return []
