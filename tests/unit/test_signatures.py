# SPDX-License-Identifier: MIT
"""What Python's own tools read of rocpy: a signature for each public callable, sub-packages by attribute."""

from __future__ import annotations

import ast
import inspect
import operator
from pathlib import Path

import pytest

import rocpy

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that is not written in C
PACKAGES = (
    "",
    ".blaslt",
    ".cooperative",
    ".distributed",
    ".epilogues",
    ".errors",
    ".plan_cache",
    ".platform",
    ".rccl",
    ".runtime",
    ".tuning",
)
SUBPACKAGES = ("compat", "cooperative", "distributed", "epilogues", "rccl", "testing", "tuning")


def public_callables():
    """Yield the public classes and functions of the packages that need no framework."""
    for package in PACKAGES:
        module = operator.attrgetter(package[1:])(rocpy) if package else rocpy
        for name in module.__all__:
            if callable(getattr(module, name)):
                yield pytest.param(getattr(module, name), id=f"rocpy{package}.{name}")


@pytest.mark.parametrize("function", list(public_callables()))
def test_every_public_callable_has_a_signature(function):
    names = [name for name in inspect.signature(function).parameters if name.startswith("_")]
    assert names == []
    if inspect.isclass(function):
        methods = [each for name, each in vars(function).items() if callable(each) and not name.startswith("_")]
        assert all(inspect.signature(method) for method in methods)


def constructors():
    """Yield the classes whose constructor is written in C, with its parameters in the stub."""
    for function in (rocpy.Buffer, rocpy.Device, rocpy.Event, rocpy.Graph, rocpy.Matmul, rocpy.Stream, rocpy.Weight):
        # Of Matmul the class below has the constructor.
        module = next(base.__module__ for base in function.__mro__ if not base.__flags__ & HEAP_TYPE)
        source = Path(rocpy.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".pyi")
        (body,) = (
            node
            for node in ast.walk(ast.parse(source.read_text()))
            if isinstance(node, ast.ClassDef) and node.name == function.__name__
        )
        (written,) = (node for node in body.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
        yield pytest.param(function, written.args, id=function.__name__)


@pytest.mark.parametrize(("function", "arguments"), list(constructors()))
def test_signatures_of_classes_are_those_of_the_stubs(function, arguments):
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        each.annotation = None
    del (arguments.posonlyargs or arguments.args)[0]  # self
    assert str(inspect.signature(function)) == f"({ast.unparse(arguments)})"


def test_subpackages_are_attributes(run_python):
    run_python(
        f"""
        import rocpy
        for name in {SUBPACKAGES}:
            assert name in dir(rocpy), name
            assert getattr(rocpy, name).__name__ == f"rocpy.{{name}}"
        """
    )


@pytest.mark.torch
def test_the_package_for_torch_is_an_attribute(run_python):
    run_python("import rocpy; assert rocpy.torch.Linear and 'torch' in dir(rocpy)")


def test_a_missing_framework_is_a_missing_attribute(run_python):
    run_python(
        """
        import sys
        sys.modules["jax"] = None
        import rocpy
        assert not hasattr(rocpy, "jax")
        try:
            rocpy.jax
        except AttributeError as error:
            assert "jax" in str(error)
        """
    )


def test_dir_shows_the_public_names_alone():
    public = {name for name in dir(rocpy) if not name.startswith("_")}
    assert public == {*rocpy.__all__, *SUBPACKAGES, "jax", "torch"}
