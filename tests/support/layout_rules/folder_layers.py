# SPDX-License-Identifier: MIT
"""Rules of the folders inside a library: which of them may import which."""

from collections.abc import Iterator

from layout_rules.python_layers import imports, sources
from layout_rules.tree import Tree, matching, rule

# Of each package its folders and modules, lowest first. One imports itself and what is lower, not what is beside it.
LAYERS = {
    "rocpy.blaslt": (
        {"_options_scope"},
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
        {"_context", "_disk_cache", "_extents", "_foreign", "device"},
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
    "rocpy.epilogues": (
        {"expressions"},
        {"tracing"},
        {"_custom"},
        {"_ready", "lowering"},
        {"__init__"},
    ),
    "rocpy.distributed": (
        {"_operands", "_ranks", "_spans"},
        {"_overlap"},
        {"_sharded"},
        {"_autograd"},
        {"_linear"},
        {"__init__"},
    ),
    "rocpy.rccl": (
        {"model"},
        {"engine"},
        {"carriers", "handles", "rendezvous"},
        {"public", "monitoring"},
        {"__init__"},
    ),
}
# Epilogues stand between the folders of the product, and tuning above all of them; lowest first.
STRATA = (
    {
        "blaslt._options_scope",
        "blaslt.model",
        "blaslt.arrays",
        "blaslt.selection",
        "blaslt.engine",
        "blaslt.operands",
        "blaslt.native",
    },
    {"epilogues"},
    {"blaslt.composed", "blaslt.custom", "blaslt.front", "blaslt.grouped", "blaslt._explain", "blaslt._support"},
    {"blaslt.weight", "blaslt"},
    {"tuning"},
)
# The folders of source files outside of the package, but for those below them.
FOLDERS = {
    "benchmarks": {"cpp", "peers"},
    "csrc": {"abi", "core", "device", "platforms", "simt", "third_party"},
    "csrc/platforms": {"host"},
    "examples": {"slurm"},
    "tools": {"additions", "metadata", "prose", "sanitizers", "tables", "wheels"},
    "tests": {
        *("amd", "amdgpu", "badinput", "blaslt", "cli", "compat", "conformance", "cooperative", "cpp", "distributed"),
        *(
            "epilogues",
            "foreign",
            "fused",
            "interop",
            "jax",
            "loader",
            "numba_hip",
            "packaging",
            "platform",
            "property",
        ),
        *("rccl", "support", "threads", "torch", "tuning", "typing", "unit"),
    },
}
ROOTS = {"benchmarks", "cmake", "csrc", "docs", "examples", "rocpy", "rocpy_torch_backend", "tests", "tools"}


def stratum_of(module: str) -> int | None:
    """Return the rank of a module among products, epilogues and tuning; ``None`` for one of another package."""
    parts = module.split(".")[1:]
    for length in (2, 1):
        for rank, names in enumerate(STRATA):
            if ".".join(parts[:length]) in names:
                return rank
    return None


@rule(
    {"rocpy/blaslt/model/bad.py": "from rocpy.epilogues import CustomEpilogue\n"},
    {"rocpy/epilogues/bad.py": "def late():\n    from rocpy.blaslt.custom import call\n"},
    {"rocpy/epilogues/bad.py": "from rocpy.blaslt import Options\n"},
    {"rocpy/blaslt/front/bad.py": "if TYPE_CHECKING:\n    from rocpy.tuning import database\n"},
)
def strata_import_downwards(tree: Tree) -> Iterator[str]:
    """Epilogues import the lower folders of the product, and no folder of it imports tuning."""
    for path, text in sources(tree):
        here = stratum_of(path.rpartition(".")[0].replace("/", "."))
        for number, name in imports(path, text) if here is not None else ():
            there = stratum_of(name) if name.startswith("rocpy.") else None
            if there is not None and there > here:
                yield f"{path}:{number}: imports {name}, which is above it"


@rule(
    {"csrc/novelty/bad.cpp": ""},
    {"csrc/bad.cpp": ""},
    {"csrc/platforms/other/bad.cpp": ""},
    {"tools/novelty/bad.py": ""},
    {"tests/novelty/test_bad.py": ""},
    {"benchmarks/novelty/bad.py": ""},
    {"novelty/bad.py": ""},
    {"bad.py": ""},
)
def files_are_in_known_folders(tree: Tree) -> Iterator[str]:
    """A source file lies in a folder that this list knows; another folder is given a meaning here first."""
    for path, _ in matching(tree, suffixes=(".py", ".pyx", ".pxd", ".c", ".cpp", ".h", ".hpp", ".sh")):
        root = path.split("/")[0]
        if root not in ROOTS and path != "conftest.py":
            yield f"{path}: {root!r} is no folder of sources"
            continue
        for folder, children in FOLDERS.items():
            below = path.removeprefix(f"{folder}/") if path.startswith(f"{folder}/") else ""
            name, _, rest = below.partition("/")
            if below and (name not in children if rest else folder.startswith("csrc")):
                yield f"{path}: is in no folder that layout_rules/folder_layers.py knows"


# The kinds of planned products, and who may name one: they themselves, and what chooses among them.
PLANNED_PRODUCTS = {f"rocpy.blaslt.{folder}.plan" for folder in ("native", "composed", "custom")}
KNOW_THEM = ("rocpy/blaslt/native/", "rocpy/blaslt/composed/", "rocpy/blaslt/custom/", "rocpy/blaslt/front/planned.py")


@rule(
    {"rocpy/blaslt/front/bad.pyx": "from rocpy.blaslt.composed.plan import ComposedProduct\n"},
    {"rocpy/tuning/bad.py": "def late():\n    from rocpy.blaslt.custom.plan import CustomProduct\n"},
)
def kinds_of_planned_products_are_chosen_in_one_file(tree: Tree) -> Iterator[str]:
    """What holds or measures a planned product does not know its kind."""
    for path, text in sources(tree):
        for number, name in imports(path, text) if not path.startswith(KNOW_THEM) else ():
            if name.startswith(tuple(PLANNED_PRODUCTS)):
                yield f"{path}:{number}: imports {name}; front/planned.py makes planned products of all kinds"


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
    {"rocpy/epilogues/expressions/bad.py": "from rocpy.epilogues.tracing.trace import trace\n"},
    {"rocpy/epilogues/tracing/bad.py": "def late():\n    from rocpy.epilogues import Expression\n"},
    {"rocpy/distributed/_sharded.py": "from rocpy.distributed._linear import column_linear\n"},
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
