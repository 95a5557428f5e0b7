# SPDX-License-Identifier: MIT
"""The examples in the docstrings of the runtime nouns and of the operand layer run as written."""

import doctest
import importlib

import pytest

import rocpy


@pytest.mark.parametrize("name", ["device", "event", "memory", "stream"])
def test_examples_of_the_runtime(name):
    if name == "stream" and not rocpy.platform.current().host_memory:
        pytest.skip("an example captures arrays in CPU memory, which this device cannot use")
    check(importlib.import_module(f"rocpy.runtime.{name}"))


def test_examples_of_operands():
    check(importlib.import_module("rocpy._operand"))


def check(module):
    """Run the examples of what an extension module defines; doctest itself looks into Python modules only."""
    finder, runner = doctest.DocTestFinder(exclude_empty=True), doctest.DocTestRunner()
    tried = 0
    for value in vars(module).values():
        if getattr(value, "__module__", None) == module.__name__:
            targets = [value, *(v for v in vars(value).values() if callable(v))] if isinstance(value, type) else [value]
            for target in (getattr(member, "__func__", member) for member in targets):
                for test in finder.find(target, getattr(target, "__name__", "example"), module=False, globs={}):
                    if test.examples:
                        result = runner.run(test)
                        assert result.failed == 0
                        tried += 1
    assert tried > 0
