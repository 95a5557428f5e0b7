# SPDX-License-Identifier: MIT
"""Calls beside a thread that imports another package, which is then in sys.modules and lacks most of its names."""

from __future__ import annotations

import importlib.machinery
import pickle
import sys
import types

import numpy as np
import pytest

import rocpy
from rocpy import _modules, rccl

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
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__spec__._initializing = True
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("being_imported")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_takes_no_part_in_an_import_that_runs(call):
    np.testing.assert_allclose(CALLS[call](), X, atol=1e-6)


def test_a_module_is_there_once_its_import_has_ended(monkeypatch):
    module = types.ModuleType("other")
    monkeypatch.setitem(sys.modules, "other", module)  # put there by hand, it has no spec
    assert _modules.imported("other") is module
    module.__spec__ = importlib.machinery.ModuleSpec("other", None)
    assert _modules.imported("other") is module
    module.__spec__._initializing = True
    assert _modules.imported("other") is None
    assert not _modules.is_instance_of(1, "other", "Number")
    module.Number = int
    assert _modules.is_instance_of(1, "other", "Number")
    assert _modules.imported("absent") is None
