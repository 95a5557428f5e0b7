# SPDX-License-Identifier: MIT
"""A function is told of the import of a module, before or after it, once, and imports go on as they were."""

import importlib
import sys

import pytest

from rocpy._import_hook import when_imported


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "made_up_package").mkdir()
    (tmp_path / "made_up_package" / "__init__.py").write_text("")
    (tmp_path / "made_up_package" / "part.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield "made_up_package.part"
    sys.meta_path[:] = finders
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


def test_a_module_that_is_not_there_stays_absent(module):
    when_imported("made_up_package.other", lambda: pytest.fail("there is none"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("made_up_package.other")
