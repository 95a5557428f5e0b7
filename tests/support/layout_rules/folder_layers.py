# SPDX-License-Identifier: MIT
"""Rules of the folders inside a library: which of them may import which."""

from collections.abc import Iterator

from layout_rules.python_layers import imports, sources
from layout_rules.tree import Tree, rule

# Of each package its folders and modules, lowest first. One imports itself and what is lower, not what is beside it.
LAYERS = {
    "rocpy.blaslt": (
        {"model"},
        {"arrays"},
        {"selection"},
        {"engine"},
        {"operands"},
        {"native"},
        {"composed"},
        {"custom"},
        {"front"},
        {"grouped"},
        {"_explain", "_support", "weight"},
        {"__init__"},
    ),
    "rocpy.cooperative": (
        {"api", "kernel"},
        {"numba"},
        {"cpu", "amdgpu"},
        {"arrays"},
        {"__init__"},
    ),
    "rocpy.runtime": (
        {"_disk_cache", "device"},
        {"_allocation", "_capture"},
        {"handles"},
        {"event", "memory"},
        {"graph"},
        {"stream"},
        {"kernels"},
        {"__init__"},
    ),
    "rocpy.torch": (
        {"_required"},
        {"analysis", "operators", "process_group"},
        {"layers"},
        {"compiler", "replace"},
        {"__init__"},
    ),
    "rocpy.rccl": (
        {"model"},
        {"engine", "carriers"},
        {"handles", "rendezvous"},
        {"public", "monitoring"},
        {"__init__"},
    ),
}


def layer_of(package: str, name: str) -> str:
    """Return the folder or module of a package that a name is in, as `kernel` of rocpy.cooperative.kernel.mode."""
    return name.removeprefix(f"{package}.").split(".")[0]


@rule(
    {"rocpy/blaslt/model/bad.py": "from rocpy.blaslt.front import stateful\n"},
    {"rocpy/blaslt/engine/bad.pyx": "from rocpy.blaslt.operands._arguments cimport Operands\n"},
    {"rocpy/cooperative/kernel/bad.py": "def late():\n    from rocpy.cooperative.cpu import launcher\n"},
    {"rocpy/cooperative/amdgpu/bad.py": "from rocpy.cooperative.cpu.entry import machine_code\n"},
    {"rocpy/cooperative/numba/bad.py": "from rocpy.cooperative import jit\n"},
    {"rocpy/cooperative/novelty.py": "from rocpy import errors\n"},
    {"rocpy/runtime/handles/bad.pyx": "from rocpy.runtime.stream cimport Stream\n"},
    {"rocpy/torch/operators/bad.py": "from rocpy.torch.layers.modules import Linear\n"},
    {"rocpy/torch/layers/bad.py": "import rocpy.torch\n"},
    {"rocpy/rccl/engine/bad.pyx": "from rocpy.rccl.handles.communicator cimport Handle\n"},
)
def layers_import_downwards(tree: Tree) -> Iterator[str]:
    """The folders of a library have an order, too: none imports what is above it or beside it."""
    for path, text in sources(tree):
        for package, layers in LAYERS.items():
            folder = package.replace(".", "/") + "/"
            if not path.startswith(folder):
                continue
            rank = {member: number for number, members in enumerate(layers) for member in members}
            here = path.removeprefix(folder).split("/")[0].split(".")[0]
            if here not in rank:
                yield f"{path}: {here!r} is in no layer of {package}; add it to one in layout_rules/folder_layers.py"
                continue
            for number, name in imports(path, text):
                if name != package and not name.startswith(f"{package}."):
                    continue
                there = layer_of(package, name)
                if there not in rank and here != "__init__":
                    yield f"{path}:{number}: {here} imports {name} of the package itself; name the module that has it"
                elif there in rank and there != here and rank[there] >= rank[here]:
                    yield f"{path}:{number}: {here} imports {there}, which is not below it"
