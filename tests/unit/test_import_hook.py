# SPDX-License-Identifier: MIT
"""A function is told of the import of a module, before or after it, once, and imports go on as they were.

Calls beside a thread that imports a package, which is then in sys.modules and lacks most of its names, work without it.
"""

import importlib
import importlib.util
import pickle
import sys
import types
from importlib.machinery import ModuleSpec

import numpy as np
import pytest

import rocpy
import rocpy_torch_backend
from rocpy import rccl
from rocpy._import_hook import when_imported
from rocpy._messages.modules import imported, is_instance_of


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "made_up_package").mkdir()
    (tmp_path / "made_up_package" / "__init__.py").write_text("")
    (tmp_path / "made_up_package" / "part.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    waiting = dict(rocpy_torch_backend._finder.waiting)
    yield "made_up_package.part"
    rocpy_torch_backend._finder.waiting = waiting
    for name in ("made_up_package", "made_up_package.part"):
        sys.modules.pop(name, None)


def test_told_when_it_is_imported_and_whole(module):
    told = []
    when_imported(module, lambda: told.append(sys.modules[module].value))
    when_imported(module, lambda: told.append("the second is not called"))
    importlib.import_module("made_up_package")
    assert told == []
    assert importlib.import_module(module).value == 5
    assert told == [5]
    assert type(sys.modules[module].__spec__.loader).__name__ == "SourceFileLoader"


def test_told_at_once_when_it_is_there(module):
    importlib.import_module(module)
    told = []
    when_imported(module, lambda: told.append(module))
    assert told == [module]


def test_told_after_it_was_looked_up(module):
    told = []
    when_imported(module, lambda: told.append(module))
    assert importlib.util.find_spec(module).loader.path.endswith("part.py")
    assert importlib.util.find_spec(module) is not None
    assert told == []
    importlib.import_module(module)
    assert told == [module]
    importlib.reload(sys.modules[module])
    assert told == [module]


def test_told_after_an_import_that_failed(module, tmp_path):
    source = tmp_path / "made_up_package" / "part.py"
    working = source.read_text()
    source.write_text("raise KeyboardInterrupt\n")
    told = []
    when_imported(module, lambda: told.append(sys.modules[module].value))
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(module)
    source.write_text(working)
    importlib.invalidate_caches()
    assert importlib.import_module(module).value == 5
    assert told == [5]


def test_told_after_its_import_was_blocked(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    told = []
    when_imported(module, lambda: told.append(module))
    assert told == []
    monkeypatch.delitem(sys.modules, module)
    importlib.import_module(module)
    assert told == [module]


def test_one_finder_sees_all_modules_and_asks_only_those_behind_it(module, monkeypatch):
    for name in (module, "made_up_package.other", "made_up_package.third"):
        when_imported(name, lambda: None)
    seen = [finder for finder in sys.meta_path if type(finder).__module__ == "rocpy_torch_backend"]
    assert len(seen) == 1
    importlib.import_module("made_up_package")
    monkeypatch.setattr(sys, "meta_path", seen)
    assert importlib.util.find_spec(module) is None


def test_a_module_that_is_not_there_stays_absent(module):
    when_imported("made_up_package.other", lambda: pytest.fail("there is none"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("made_up_package.other")


X = np.eye(3, dtype=np.float32)
HALF = rocpy.epilogue(lambda x: x * 0.5)


def buffer():
    stored = rocpy.Buffer(X.shape, X.dtype)
    stored.copy_from(X)
    return stored


def scaled_sum():
    (comm,) = rccl.Communicator.init_all(1)
    result = comm.all_reduce(X, op=comm.premul_sum(2.0, "float32"))
    comm.close()
    return result


def refused_function():
    with pytest.raises(rocpy.InvalidProblemError, match="plain function"):
        rocpy.matmul(X, X, epilogue=lambda x: x)
    return X


CALLS = {
    "Weight": lambda: rocpy.matmul(X, rocpy.Weight(X)),
    "Buffer": lambda: rocpy.matmul(buffer(), buffer()).to_numpy(),
    "pickled Weight": lambda: rocpy.matmul(X, pickle.loads(pickle.dumps(rocpy.Weight(X)))),
    "epilogue": lambda: 2 * rocpy.matmul(X, X, epilogue=HALF),
    "evaluated epilogue": lambda: 2 * HALF(X),
    "quantized": lambda: rocpy.dequantize(*rocpy.quantize(X, "int8")),
    "composed": lambda: rocpy.matmul(X, X, epilogue="sigmoid") * 0 + X,
    "function": refused_function,
    "collective": lambda: scaled_sum() / 2,
}


@pytest.fixture
def being_imported(monkeypatch):
    """Have packages look as they do while their import runs."""
    for name in ("torch", "torch.fx", "torch.nn", "torch._C", "jax", "cupy", "logging", "transformers", "mpi4py.MPI"):
        module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__spec__._initializing = True
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("being_imported")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_takes_no_part_in_an_import_that_runs(call):
    np.testing.assert_allclose(CALLS[call](), X, atol=1e-6)


def test_a_module_is_there_once_its_import_has_ended(monkeypatch):
    module = types.ModuleType("other")
    monkeypatch.setitem(sys.modules, "other", module)  # put there by hand, it has no spec
    assert imported("other") is module
    module.__spec__ = ModuleSpec("other", None)
    assert imported("other") is module
    module.__spec__._initializing = True
    assert imported("other") is None
    assert not is_instance_of(1, "other", "Number")
    module.Number = int
    assert is_instance_of(1, "other", "Number")
    assert imported("absent") is None
