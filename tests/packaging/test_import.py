# SPDX-License-Identifier: MIT
"""What `import rocpy` does and does not do, seen from another folder in a fresh interpreter."""

import importlib
import json
import sys
import zipfile
from pathlib import Path

import pytest

import rocpy.cli
from rocpy import _interpreter


def test_import_loads_no_framework_and_no_library(python):
    program = """
import json, sys
import numpy
import rocpy
maps = open('/proc/self/maps').read()
print(json.dumps({
    'modules': sorted({'torch', 'jax', 'cupy', 'numba', 'triton', 'rocm', 'hip', 'rich', 'typer'} & set(sys.modules)),
    'libraries': [name for name in ('amdhip64', 'hipblaslt', 'rocpy_host', 'rccl') if f'lib{name}' in maps],
}))
"""
    assert json.loads(python(program)) == {"modules": [], "libraries": []}


def test_import_brings_little_after_numpy(python):
    # What the time of an import is made of; the time itself is measured by bench_import.
    program = """
import sys
import numpy
before = set(sys.modules)
import rocpy
brought = set(sys.modules) - before
brought |= {name.partition(".")[0] for name in brought}
heavy = {"asyncio", "email", "importlib_metadata", "matplotlib", "rich", "scipy", "sqlite3", "typer", "unittest"}
heavy |= {"html", "importlib.resources", "json", "pathlib", "shutil", "tempfile", "urllib"}
late = {"rocpy.epilogues", "rocpy.tuning", "rocpy._search", "rocpy._hip_python"}
late |= {f"rocpy.blaslt.custom.{name}" for name in ("binding", "call", "executables", "plan", "support", "tile")}
late |= {f"rocpy.blaslt.grouped.{name}" for name in ("explain", "function", "group_slices")}
late |= {"rocpy.blaslt._explain", "rocpy.blaslt._support", "rocpy.blaslt.arrays.quantization"}
late |= {"rocpy.blaslt.front.explain_product", "rocpy.blaslt.model.explanation"}
print(*sorted(brought & (heavy | late)))
"""
    assert python(program).split() == []


def test_an_archive_is_refused_with_what_to_do(tmp_path, monkeypatch):
    # Under another name: an installed rocpy may come before every archive.
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("archived/__init__.py", "")
        archive.write(_interpreter.__file__, "archived/_interpreter.py")
    monkeypatch.syspath_prepend(tmp_path / "app.zip")
    with pytest.raises(
        ImportError, match=r"^rocpy cannot be imported from the archive .*app\.zip: .*pip install --target"
    ):
        importlib.import_module("archived._interpreter")
    sys.modules.pop("archived")


def test_packages_are_searched_in_their_own_folders_alone():
    for package in (rocpy, rocpy.cli):
        assert {"/".join(Path(folder).parts[-len(package.__name__.split(".")) :]) for folder in package.__path__} == {
            package.__name__.replace(".", "/")
        }


def test_product_from_another_folder(python):
    program = """
import numpy, rocpy
a = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
print(rocpy.matmul(a, a.T).tolist())
"""
    assert json.loads(python(program, ROCPY_PLATFORM="host")) == [[5.0, 14.0], [14.0, 50.0]]


def test_version_is_the_distributions(python):
    # The distribution may have another name than the package: it is the one with this module for torch.
    program = """
import rocpy
from importlib import metadata
versions = {one.dist.version for one in metadata.entry_points(group="torch.backends", module="rocpy_torch_backend")}
assert versions == {rocpy.__version__}, (versions, rocpy.__version__)
"""
    assert python(program) == ""


def test_every_public_name_can_be_had(python):
    program = """
import rocpy
for name in rocpy.__all__:
    getattr(rocpy, name)
assert set(rocpy.__all__) <= set(dir(rocpy)), set(rocpy.__all__) - set(dir(rocpy))
print(len(rocpy.__all__))
"""
    assert int(python(program)) > 10


@pytest.mark.parametrize(
    ("module", "inner"),
    [
        ("rocpy.blaslt.custom.executables", "rocpy.blaslt.custom.tile"),
        ("rocpy.blaslt.grouped.function", "rocpy.blaslt.grouped._packed"),
        ("rocpy.blaslt.grouped._plans", "rocpy.blaslt.grouped.scales"),
        ("rocpy.rccl.engine.call", "rocpy.runtime.device"),
        ("rocpy.rccl.engine.scope", "rocpy.rccl.engine.pending"),
        ("rocpy.rccl.handles.communicator", "rocpy.rccl.engine.records"),
        ("rocpy.rccl.handles.memory", "rocpy.rccl.engine.staging"),
    ],
)
def test_an_import_that_failed_can_be_repeated(python, module, inner):
    # As memory is short for a moment, for example, when what is imported late is first used.
    program = f"""
import importlib, sys
import rocpy
inner = sys.modules.pop({inner!r}, None)
sys.modules[{inner!r}] = None
try:
    importlib.import_module({module!r})
    print("imported without {inner}")
except ImportError:
    pass
del sys.modules[{inner!r}]
if inner is not None:
    sys.modules[{inner!r}] = inner
importlib.import_module({module!r})
"""
    assert python(program) == ""
