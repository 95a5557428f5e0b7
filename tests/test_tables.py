# SPDX-License-Identifier: MIT
"""Every row has an oracle, every public name a docstring with an example; each check notices what is missing."""

import doctest
import inspect
import re
import types
from pathlib import Path

import pytest

import rocpy
from rocpy.blaslt import EPILOGUES
from rocpy.blaslt.model.problem import RESULT_TYPES
from rocpy.testing.cases import cases
from rocpy.testing.oracles import ALIASES, ORACLES
from rocpy.testing.tolerance import FORMATS

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "matmul.md"
DTYPES = GUIDE.parent.parent.parent / "csrc" / "core" / "arrays" / "dtypes.def"
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)
# Tables of data, and a flag: they are described where they stand.
DATA = {"EPILOGUES", "ORACLES"}


def rows_without(rows, oracles):
    """Return the rows that no oracle covers."""
    return sorted(set(rows) - set(oracles))


def undocumented(module, names):
    """Return the public names whose docstring is missing or, for functions and classes, has no example."""
    wrong = []
    for name in names:
        value = getattr(module, name)
        if name in DATA:
            continue
        text = inspect.getdoc(value) or ""
        if isinstance(value, types.ModuleType) or (
            isinstance(value, type) and issubclass(value, (BaseException, Warning))
        ):
            complete = bool(text)
        else:
            complete = bool(text) and bool(EXAMPLE.search(text))
        if not complete:
            wrong.append(name)
    return wrong


def epilogues_of_the_guide(text):
    """Return the names in the first column of the guide's table of epilogues."""
    section = text.split("## Epilogues")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def errors_of_the_page(text):
    """Return the classes in the first column of the tables of docs/concepts/errors.md, each with its other bases."""
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", text, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", bases)) for name, bases in rows}


def test_every_error_is_on_the_page_of_errors():
    listed = errors_of_the_page((GUIDE.parent.parent / "concepts" / "errors.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(rocpy.errors.__all__)
    for name, bases in listed.items():
        assert bases <= {base.__name__ for base in getattr(rocpy.errors, name).__mro__}, name


def test_every_epilogue_has_an_oracle():
    assert rows_without(EPILOGUES, ORACLES) == []
    assert rows_without(ORACLES, EPILOGUES) == [], "an oracle without a row"


def test_a_missing_oracle_is_noticed():
    assert rows_without([*EPILOGUES, "snake"], ORACLES) == ["snake"]


def test_every_dtype_has_bounds_and_cases():
    assert rows_without(RESULT_TYPES, FORMATS) == []
    computed = re.findall(r"^ROCPY_DTYPE\((\w+),.*, product\)$", DTYPES.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows_without(set(RESULT_TYPES) & set(computed), {case.dtype for case in cases("quick")}) == []


def test_every_epilogue_is_in_the_case_list():
    # A row without hipBLASLt's number is composed; tests/blaslt/fusion/test_fallback.py has its cases.
    native = [row.name for row in EPILOGUES.values() if row.enumerator is not None]
    assert rows_without(native, {case.epilogue or "default" for case in cases("quick")}) == []


def test_every_alias_leads_to_a_row():
    for alias, name in ALIASES.items():
        assert rocpy.Epilogue(name) == name
        assert name in EPILOGUES
        assert alias not in EPILOGUES


def test_the_guide_lists_every_epilogue():
    listed = epilogues_of_the_guide(GUIDE.read_text(encoding="utf-8"))
    assert listed - set(ALIASES) == set(EPILOGUES)


def test_an_epilogue_missing_from_the_guide_is_noticed():
    text = GUIDE.read_text(encoding="utf-8").replace("| `bgrada` |", "| |")
    assert epilogues_of_the_guide(text) != epilogues_of_the_guide(GUIDE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "module", [rocpy, rocpy.blaslt, rocpy.errors, rocpy.platform], ids=lambda module: module.__name__
)
def test_public_names_are_documented(module):
    assert undocumented(module, module.__all__) == []


def test_a_missing_docstring_is_noticed():
    module = types.ModuleType("sample")

    def bare():
        pass

    def wordy():
        """Return nothing."""

    def shown():
        """Return nothing.

        >>> shown()
        """

    module.bare, module.wordy, module.shown = bare, wordy, shown
    assert undocumented(module, ["bare", "wordy", "shown"]) == ["bare", "wordy"]


PUBLIC = [
    pytest.param(getattr(module, name), id=f"{module.__name__}.{name}")
    for module in (rocpy, rocpy.blaslt, rocpy.errors, rocpy.platform)
    for name in module.__all__
    if not isinstance(getattr(module, name), types.ModuleType) and name not in DATA
]


def failed_examples(value, name):
    """Run the examples of a docstring, those of methods included, and return how many failed."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    # An extension type's module is not the one it is found in, so that the finder is not asked to compare them.
    for test in doctest.DocTestFinder(exclude_empty=True).find(value, name, module=False, globs={}):
        runner.run(test)
    return runner.summarize(verbose=False).failed


@pytest.mark.parametrize("value", PUBLIC)
def test_examples_of_public_names_run(value):
    assert failed_examples(value, getattr(value, "__name__", "value")) == 0


def test_a_wrong_example_is_noticed(capsys):
    def wrong():
        """Return nothing.

        >>> 1 + 1
        3
        """

    assert failed_examples(wrong, "wrong") == 1
