# SPDX-License-Identifier: MIT
"""What Python's own tools read of rocpy: a signature for each public callable, sub-packages by attribute."""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import typing
from pathlib import Path

import pytest

import rocpy
from rocpy.blaslt.native.plan import NativeProduct

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
SUBPACKAGES = ("compat", "cooperative", "distributed", "epilogues", "rccl", "testing", "tuning", "typing")


CLASSES = (rocpy.Buffer, rocpy.Device, rocpy.Event, rocpy.Graph, rocpy.Matmul, rocpy.Stream, rocpy.Weight)


@pytest.mark.parametrize("cls", CLASSES)
def test_a_docstring_begins_with_a_sentence_or_with_the_signature(cls):
    first = inspect.getdoc(cls).partition("\n")[0]
    assert first.endswith((".", ").")) or first == f"{cls.__name__}{inspect.signature(cls)}"


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
        # Of Matmul the stub has overloads; what it holds has the constructor with all its parameters.
        written_by = NativeProduct if function is rocpy.Matmul else function
        source = Path(rocpy.__file__).parent.joinpath(*written_by.__module__.split(".")[1:]).with_suffix(".pyi")
        (body,) = (
            node
            for node in ast.walk(ast.parse(source.read_text()))
            if isinstance(node, ast.ClassDef) and node.name == written_by.__name__
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
        assert rocpy.compat.nvmath.__name__ == "rocpy.compat.nvmath"
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


COMPAT = (".compat", ".compat.nccl", ".compat.nccl.cupy", ".compat.nccl.torch", ".compat.nvmath")
LINALG = (".compat.nvmath.linalg", ".compat.nvmath.linalg.advanced")
MODULES = (*PACKAGES[1:], ".dtypes", ".typing", ".testing", *COMPAT, *LINALG)


@pytest.mark.parametrize("name", [name for name in MODULES if name != ".plan_cache"])
def test_dir_of_a_module_shows_its_public_names_alone(name):
    module = operator.attrgetter(name[1:])(rocpy)
    extra = set(module.DTYPES) if name == ".dtypes" else set()
    assert {one for one in dir(module) if not one.startswith("_")} == {*module.__all__, *extra} - {"__version__"}
    assert all(hasattr(module, one) for one in dir(module))


def annotated(module):
    """Yield the public classes and functions of a module, and the public methods of its classes."""
    for each in (getattr(module, name) for name in module.__all__):
        if inspect.isfunction(each) or inspect.isclass(each):
            yield each
        for name, member in vars(each).items() if inspect.isclass(each) else ():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                yield function


def check_types(module):
    """Read the types as a program does that makes a form or a command line of a function's parameters."""
    for each in annotated(module):
        typing.get_type_hints(each, localns={"Figure": object})  # matplotlib's, which need not be installed


# Functions that import torch themselves name its types.
@pytest.mark.parametrize("name", ["", *(name for name in MODULES if name != ".compat.nccl.torch")])
def test_types_of_public_callables_can_be_read(name):
    check_types(operator.attrgetter(name[1:])(rocpy) if name else rocpy)


@pytest.mark.parametrize("name", rocpy.typing.__all__)
def test_types_of_arguments_are_types_at_run_time(name):
    kind = getattr(rocpy.typing, name)
    assert typing.get_args(kind | None)[-1] is type(None)


@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_dir_of_a_layer_shows_its_public_names_alone(name):
    module = importlib.import_module(f"rocpy.{name}")
    assert {one for one in dir(module) if not one.startswith("_")} == set(module.__all__)
    check_types(module)
